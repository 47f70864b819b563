"""Which rules of a schema are active for an operation, and what happens when one cannot run.

The meaning is Confluent's: `enableAt` may turn a whole rule set off for clients, a rule may be
disabled, `mode` says for which operations it runs, and `onFailure` names one action for both
directions or, separated by a comma, one for each. Reads documents and decides; runs no rule.
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
    """The operations that rules run for."""

    WRITE = "WRITE"
    READ = "READ"
    UPGRADE = "UPGRADE"  # an event of an older version is read as a newer one
    DOWNGRADE = "DOWNGRADE"


_BOTH: Final = {  # a mode that covers two operations, in the order of `onFailure`
    "WRITEREAD": (RuleMode.WRITE, RuleMode.READ),
    "UPDOWN": (RuleMode.UPGRADE, RuleMode.DOWNGRADE),
}
_MIGRATIONS: Final = (RuleMode.UPGRADE, RuleMode.DOWNGRADE)


def active_rules(rule_set: RuleSet | None, mode: RuleMode) -> Iterator[Rule]:
    """The rules that a client has to run for an operation."""
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
    """The first active rule whose failure may not be ignored; None if there is none.

    A rule that should change or check what is written always blocks: without it the value would
    be written in clear, or against the contract.
    """
    for rule in active_rules(rule_set, mode):
        if mode is RuleMode.WRITE or _action_on_failure(rule, mode) != _NO_ACTION:
            return rule
    return None


def describe_rule(rule: Rule) -> str:
    """A rule in an error's words."""
    return f"{rule.name!r} ({rule.type}, mode {rule.mode})"


def read_rule_set(document: Mapping[str, Any]) -> RuleSet | None:
    """The member `ruleSet` of a registry's answer; raises ValueError if it is malformed."""
    given = document.get("ruleSet")
    if given is None:
        return None
    lists = {
        attribute: tuple(_read_rule(one) for one in given.get(member) or ())
        for attribute, member in RULE_LISTS
    }
    return RuleSet(**lists, enable_at=given.get("enableAt"))


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
    place = modes.index(mode) if len(actions) == len(modes) else 0
    return actions[place].strip().upper()
