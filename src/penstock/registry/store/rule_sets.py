"""Rule sets: what they may contain, and how the settings of a subject complete them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from penstock.registry.errors import invalid_rule_set
from penstock.registry.store.events import Contents, SubjectConfig
from penstock.schemas.identity import Metadata, Rule, RuleSet

VERSION_PROPERTY: Final = "confluent:version"
_KINDS: Final = frozenset(("TRANSFORM", "CONDITION"))
_MIGRATION_MODES: Final = frozenset(("UPGRADE", "DOWNGRADE", "UPDOWN"))
_DOMAIN_MODES: Final = frozenset(("WRITE", "READ", "WRITEREAD"))


def check_rule_set(rule_set: RuleSet | None) -> None:
    """Declines a set with duplicate names, or with rules of the wrong kind."""
    if rule_set is None:
        return
    groups = (
        (rule_set.migration_rules, _MIGRATION_MODES),
        (rule_set.domain_rules, _DOMAIN_MODES),
        (rule_set.encoding_rules, _DOMAIN_MODES),
    )
    seen: set[str] = set()
    for rules, modes in groups:
        for rule in rules:
            _check_rule(rule, modes)
            if rule.name in seen:
                raise invalid_rule_set(f"Found rule with duplicate name '{rule.name}'")
            seen.add(rule.name or "")


def _check_rule(rule: Rule, modes: frozenset[str]) -> None:
    if not rule.name:
        raise invalid_rule_set("Empty rule name")
    if rule.name[:1].isdecimal() or not rule.name.replace("-", "_").isidentifier():
        raise invalid_rule_set(f"'{rule.name}' is not a valid rule name")
    if not rule.type:
        raise invalid_rule_set(f"Missing type for rule '{rule.name}'")
    if rule.kind not in _KINDS:
        raise invalid_rule_set(f"Invalid kind for rule '{rule.name}': {rule.kind}")
    if rule.mode not in modes:
        raise invalid_rule_set(f"Invalid mode for rule '{rule.name}': {rule.mode}")


def merged_metadata(below: Metadata | None, above: Metadata | None) -> Metadata | None:
    """Merged key by key; `above` wins."""
    if below is None or above is None:
        return above if below is None else below
    return Metadata(
        {**below.tags, **above.tags},
        {**below.properties, **above.properties},
        tuple(dict.fromkeys((*below.sensitive, *above.sensitive))),
    )


def merged_rule_set(below: RuleSet | None, above: RuleSet | None) -> RuleSet | None:
    """Merged rule by rule; `above` wins."""
    if below is None or above is None:
        return above if below is None else below
    return RuleSet(
        _merged_rules(below.migration_rules, above.migration_rules),
        _merged_rules(below.domain_rules, above.domain_rules),
        _merged_rules(below.encoding_rules, above.encoding_rules),
        above.enable_at or below.enable_at,
    )


def _merged_rules(below: Sequence[Rule], above: Sequence[Rule]) -> tuple[Rule, ...]:
    names = {rule.name for rule in above}
    return (*(rule for rule in below if rule.name not in names), *above)


def governed(contents: Contents, previous: Contents | None, config: SubjectConfig) -> Contents:
    """The contents to store: given or inherited from the previous version, with the settings."""
    metadata, rule_set = contents.metadata, contents.rule_set
    if metadata is None and rule_set is None and previous is not None:
        metadata, rule_set = without_version(previous.metadata), previous.rule_set
    metadata = merged_metadata(config.default_metadata, metadata)
    metadata = merged_metadata(metadata, config.override_metadata)
    rule_set = merged_rule_set(config.default_rule_set, rule_set)
    rule_set = merged_rule_set(rule_set, config.override_rule_set)
    return contents._replace(metadata=metadata, rule_set=rule_set)


def with_version(metadata: Metadata | None, version: int) -> Metadata:
    """The metadata with the number of the version in it."""
    base = metadata or Metadata()
    return replace(base, properties={**base.properties, VERSION_PROPERTY: str(version)})


def has_version(metadata: Metadata | None) -> bool:
    """Whether versions of the subject have their number in their metadata."""
    return metadata is not None and VERSION_PROPERTY in metadata.properties


def without_version(metadata: Metadata | None) -> Metadata | None:
    """The metadata without the number; None if nothing is left."""
    if metadata is None or not has_version(metadata):
        return metadata
    rest = {key: text for key, text in metadata.properties.items() if key != VERSION_PROPERTY}
    if not rest and not metadata.tags and not metadata.sensitive:
        return None
    return replace(metadata, properties=rest)


def same_contract(left: Contents, right: Contents) -> bool:
    """Whether metadata and rules are the same, apart from the number of the version."""
    ours, theirs = without_version(left.metadata), without_version(right.metadata)
    return _unordered(ours) == _unordered(theirs) and left.rule_set == right.rule_set


def _unordered(metadata: Metadata | None) -> object:
    if metadata is None:
        return None
    tags = {path: frozenset(values) for path, values in metadata.tags.items()}
    return tags, dict(metadata.properties), frozenset(metadata.sensitive)


def rule_types(rule_set: RuleSet | None) -> frozenset[str]:
    """The types of all rules of a set."""
    if rule_set is None:
        return frozenset()
    rules = chain(rule_set.migration_rules, rule_set.domain_rules, rule_set.encoding_rules)
    return frozenset(rule.type for rule in rules if rule.type)
