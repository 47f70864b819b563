"""Metadata, rules, references and settings as JSON documents, as requests and the log carry them.

Empty members are omitted when written and may be missing when read. A member of another type is
declined as a malformed request.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.registry.errors import malformed
from penstock.registry.store.events import SubjectConfig
from penstock.schemas.identity import Metadata, Rule, RuleSet
from penstock.schemas.model import Reference
from penstock.schemas.rules import RULE_LISTS, RULE_TEXTS

Document = dict[str, Any]

CONFIG_TEXTS: Final = (
    ("policy", "compatibilityPolicy"),
    ("group", "compatibilityGroup"),
    ("alias", "alias"),
    ("alias_for_deks", "aliasForDeks"),
)
CONFIG_FLAGS: Final = (
    ("normalize", "normalize"),
    ("validate_fields", "validateFields"),
    ("validate_new_schemas", "validateNewSchemas"),
    ("validate_rules", "validateRules"),
)
CONFIG_METADATA: Final = (
    ("default_metadata", "defaultMetadata"),
    ("override_metadata", "overrideMetadata"),
)
CONFIG_RULE_SETS: Final = (
    ("default_rule_set", "defaultRuleSet"),
    ("override_rule_set", "overrideRuleSet"),
)


def read_text(document: Mapping[str, Any], name: str) -> str | None:
    """A string; a number or a flag is converted."""
    value = document.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise malformed(f"{name} must be a string")


def read_flag(document: Mapping[str, Any], name: str) -> bool | None:
    """True or false, also as a string."""
    value = document.get(name)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise malformed(f"{name} must be true or false")


def read_whole(document: Mapping[str, Any], name: str) -> int | None:
    """An integer, also as a string."""
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 12:
        number = int(value)
    else:
        raise malformed(f"{name} must be a whole number")
    if not -(2**31) <= number < 2**31:
        raise malformed(f"{name} is out of range")
    return number


def read_map(document: Mapping[str, Any], name: str) -> Document:
    """An object; empty if missing."""
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed(f"{name} must be an object")
    return value


def read_list(document: Mapping[str, Any], name: str) -> list[Any]:
    """An array; empty if missing."""
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed(f"{name} must be an array")
    return value


def read_texts(values: Iterable[Any], name: str) -> tuple[str, ...]:
    """An array of strings."""
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise malformed(f"{name} must hold strings only")
    return texts


def _text_map(document: Mapping[str, Any], name: str) -> dict[str, str]:
    values = read_map(document, name)
    return {key: read_text(values, key) or "" for key in values}


def read_references(document: Mapping[str, Any]) -> tuple[Reference, ...]:
    """The member `references`."""
    references = []
    for member in read_list(document, "references"):
        if not isinstance(member, dict):
            raise malformed("a reference must be an object")
        name, subject = read_text(member, "name"), read_text(member, "subject")
        version = read_whole(member, "version")
        references.append(Reference(name or "", subject or "", -1 if version is None else version))
    return tuple(references)


def write_references(references: Sequence[Reference]) -> list[Document]:
    """The inverse of `read_references`."""
    return [reference._asdict() for reference in references]


def read_metadata(document: Mapping[str, Any], name: str = "metadata") -> Metadata | None:
    """Tags by path, properties, and the names of secret ones. Empty is not the same as missing."""
    if document.get(name) is None:
        return None
    given = read_map(document, name)
    tags = read_map(given, "tags")
    return Metadata(
        {path: read_texts(read_list(tags, path), "tags") for path in tags},
        _text_map(given, "properties"),
        read_texts(read_list(given, "sensitive"), "sensitive"),
    )


def write_metadata(metadata: Metadata) -> Document:
    """The inverse of `read_metadata`."""
    return without_empty(
        {
            "tags": {path: list(tags) for path, tags in metadata.tags.items()},
            "properties": dict(metadata.properties),
            "sensitive": list(metadata.sensitive),
        }
    )


def read_rule_set(document: Mapping[str, Any], name: str = "ruleSet") -> RuleSet | None:
    """The rules, by purpose."""
    if document.get(name) is None:
        return None
    given = read_map(document, name)
    lists = {
        ours: tuple(_read_rule(member) for member in read_list(given, theirs))
        for ours, theirs in RULE_LISTS
    }
    return RuleSet(**lists, enable_at=read_text(given, "enableAt"))


def _read_rule(document: Any) -> Rule:
    if not isinstance(document, dict):
        raise malformed("a rule must be an object")
    texts = {ours: read_text(document, theirs) for ours, theirs in RULE_TEXTS}
    return Rule(
        **texts,
        tags=read_texts(read_list(document, "tags"), "tags"),
        params=_text_map(document, "params"),
        disabled=read_flag(document, "disabled") or False,
    )


def write_rule_set(rule_set: RuleSet) -> Document:
    """The inverse of `read_rule_set`."""
    lists: Document = {
        theirs: [_write_rule(rule) for rule in getattr(rule_set, ours)]
        for ours, theirs in RULE_LISTS
    }
    return without_empty({**lists, "enableAt": rule_set.enable_at})


def _write_rule(rule: Rule) -> Document:
    texts = {theirs: getattr(rule, ours) for ours, theirs in RULE_TEXTS}
    lists = {"tags": list(rule.tags), "params": dict(rule.params)}
    return {**without_empty({**texts, **lists}), "disabled": rule.disabled}


def read_config(document: Mapping[str, Any], level_name: str) -> SubjectConfig:
    """Settings. The level has one name in requests and another in responses and in the log."""
    members: Document = {"compatibility": read_text(document, level_name)}
    for ours, theirs in CONFIG_TEXTS:
        members[ours] = read_text(document, theirs)
    for ours, theirs in CONFIG_FLAGS:
        members[ours] = read_flag(document, theirs)
    for ours, theirs in CONFIG_METADATA:
        members[ours] = read_metadata(document, theirs)
    for ours, theirs in CONFIG_RULE_SETS:
        members[ours] = read_rule_set(document, theirs)
    return SubjectConfig(**members)


def write_config(config: SubjectConfig, level_name: str) -> Document:
    """The inverse of `read_config`."""
    members: Document = {}
    for ours, theirs in (*CONFIG_TEXTS[2:], *CONFIG_FLAGS):
        members[theirs] = getattr(config, ours)
    members[level_name] = config.compatibility
    for ours, theirs in CONFIG_TEXTS[:2]:
        members[theirs] = getattr(config, ours)
    members = without_empty(members)
    for ours, theirs in CONFIG_METADATA:
        if (metadata := getattr(config, ours)) is not None:
            members[theirs] = write_metadata(metadata)
    for ours, theirs in CONFIG_RULE_SETS:
        if (rule_set := getattr(config, ours)) is not None:
            members[theirs] = write_rule_set(rule_set)
    return members


def given_members(document: Mapping[str, Any], level_name: str) -> frozenset[str]:
    """The settings that a request names, null included: null clears."""
    rows = (
        ("compatibility", level_name),
        *CONFIG_TEXTS,
        *CONFIG_FLAGS,
        *CONFIG_METADATA,
        *CONFIG_RULE_SETS,
    )
    return frozenset(ours for ours, theirs in rows if theirs in document)


def without_empty(document: Document) -> Document:
    """Without null, "", [] and {}, as Confluent omits them."""
    return {
        name: value
        for name, value in document.items()
        if value is not None and value != "" and value != [] and value != {}
    }
