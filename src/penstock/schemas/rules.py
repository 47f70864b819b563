"""Which rules of a schema are active for an operation, and whether an unsupported rule blocks it.

The semantics are Confluent's: `enableAt` can disable a whole rule set for clients, a rule can be
disabled, `mode` selects the operations, and `onFailure` is one action for both directions or two
separated by a comma. Reads documents and decides; never runs a rule.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from penstock.schemas.identity import Rule, RuleSet

RULE_TEXTS: Final = (  # attribute, member of the document
    ("name", "name"),
    ("doc", "doc"),
    ("kind", "kind"),
    ("mode", "mode"),
    ("type", "type"),
    ("expr", "expr"),
    ("on_success", "onSuccess"),
    ("on_failure", "onFailure"),
)
RULE_LISTS: Final = (
    ("migration_rules", "migrationRules"),
    ("domain_rules", "domainRules"),
    ("encoding_rules", "encodingRules"),
)
_CLIENT_SIDE: Final = ("ALL", "CLIENT")  # values of enableAt under which clients run the rules
_NO_ACTION: Final = "NONE"


class RuleMode(StrEnum):
    """The operations that a rule applies to."""

    WRITE = "WRITE"
    READ = "READ"
    UPGRADE = "UPGRADE"  # an event of an older version is read as a newer one
    DOWNGRADE = "DOWNGRADE"


_BOTH: Final = {  # modes for two operations, in the order of `onFailure`
    "WRITEREAD": (RuleMode.WRITE, RuleMode.READ),
    "UPDOWN": (RuleMode.UPGRADE, RuleMode.DOWNGRADE),
}
_MIGRATIONS: Final = (RuleMode.UPGRADE, RuleMode.DOWNGRADE)


def active_rules(rule_set: RuleSet | None, mode: RuleMode) -> Iterator[Rule]:
    """The rules that a client must run for an operation."""
    if rule_set is None or (rule_set.enable_at or "ALL").upper() not in _CLIENT_SIDE:
        return
    if mode in _MIGRATIONS:
        rules = [*rule_set.migration_rules]
    else:
        rules = [*rule_set.domain_rules, *rule_set.encoding_rules]
    for rule in rules:
        if not rule.disabled and mode in _modes(rule):
            yield rule


def blocking_rule(rule_set: RuleSet | None, mode: RuleMode) -> Rule | None:
    """The first active rule that must not be skipped; None if there is none.

    A rule for writing always blocks: without it the value would be written unencrypted, or would
    violate the contract.
    """
    for rule in active_rules(rule_set, mode):
        if mode is RuleMode.WRITE or _action_on_failure(rule, mode) != _NO_ACTION:
            return rule
    return None


def describe_rule(rule: Rule) -> str:
    """The rule as part of an error message."""
    return f"{rule.name!r} ({rule.type}, mode {rule.mode})"


def read_rule_set(document: Mapping[str, Any]) -> RuleSet | None:
    """The member `ruleSet` of a registry's response; ValueError if it is malformed."""
    rule_set = document.get("ruleSet")
    if rule_set is None:
        return None
    lists = {
        attribute: tuple(_read_rule(rule) for rule in rule_set.get(member) or ())
        for attribute, member in RULE_LISTS
    }
    return RuleSet(**lists, enable_at=rule_set.get("enableAt"))


def _read_rule(document: Mapping[str, Any]) -> Rule:
    texts = {attribute: document.get(member) for attribute, member in RULE_TEXTS}
    if not all(text is None or isinstance(text, str) for text in texts.values()):
        raise ValueError(f"a member of the rule {document.get('name')!r} is not a string")
    return Rule(
        **texts,
        tags=tuple(document.get("tags") or ()),
        params=dict(document.get("params") or {}),
        disabled=document.get("disabled") is True,
    )


def _modes(rule: Rule) -> tuple[str, ...]:
    mode = (rule.mode or "").upper()
    return _BOTH.get(mode, (mode,))


def _action_on_failure(rule: Rule, mode: RuleMode) -> str:
    actions = (rule.on_failure or "ERROR").split(",")
    modes = _modes(rule)
    index = modes.index(mode) if len(actions) == len(modes) else 0
    return actions[index].strip().upper()
