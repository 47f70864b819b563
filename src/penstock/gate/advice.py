"""A change of a schema in plain words: what breaks for whom, which levels allow it, how to mend it.

Only words are made here; what differs is found by `schemas`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.gate.lint import Lint, lint
from penstock.schemas.compatibility import Break, Level, compare
from penstock.schemas.model import ParsedSchema, Policy

_NEW_FIELD: Final = "keep the field as it is, and add a new one for the new meaning"
_NEW_NUMBER: Final = "add a new field with a new number, and reserve the old number and name"
# By the kind of difference: what to do when new readers fail, and when old readers fail.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "give the field a default, so that readers can fill it in for older events",
        "keep the field: readers in the field have no default for it. To remove it, first register "
        "a version in which it has a default, and let all readers upgrade to that",
    ),
    "TYPE_MISMATCH": (
        f"{_NEW_FIELD}; only int to long to float to double, and string to bytes, may be widened",
        f"{_NEW_FIELD}; old readers cannot take a wider type",
    ),
    "NAME_MISMATCH": (
        "keep the name, or name the old one as an alias",
        "keep the name: old readers know no other",
    ),
    "MISSING_ENUM_SYMBOLS": (
        "keep all symbols, or give the enum a default for those that are gone",
        "old readers do not know the new symbols: give the enum a default first, and add symbols "
        "once all readers have it",
    ),
    "MISSING_UNION_BRANCH": (
        "keep every type that older events may hold in the union",
        "old readers do not know the new type: add a field for it instead",
    ),
    "FIXED_SIZE_MISMATCH": ("a fixed keeps its size: make a new type under a new name",) * 2,
    "PACKAGE_CHANGED": ("keep the package: it is part of every message's name",) * 2,
    "MESSAGE_REMOVED": ("keep the message, even if nobody should use it any more",) * 2,
    "FIELD_KIND_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_SCALAR_KIND_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_NAMED_TYPE_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_NUMERIC_LABEL_CHANGED": (_NEW_NUMBER,) * 2,
    "REQUIRED_FIELD_ADDED": ("make the field optional",) * 2,
    "REQUIRED_FIELD_REMOVED": ("keep the field, or make it optional in a version before",) * 2,
    "ONEOF_FIELD_REMOVED": ("keep the member of the oneof, and mark it deprecated",) * 2,
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "move one field at most into a new oneof; add new fields for the others",
    )
    * 2,
    "FIELD_MOVED_TO_EXISTING_ONEOF": ("add a new member to the oneof instead",) * 2,
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "older events may hold anything under that name: close the object "
        '("additionalProperties": false) before, or set compatibilityPolicy to LENIENT',
    )
    * 2,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": ("keep the property, or open the object first",)
    * 2,
    "REQUIRED_PROPERTY_ADDED": ("make the property optional, or give it a default",) * 2,
    "REQUIRED_ATTRIBUTE_ADDED": ("make the property optional, or give it a default",) * 2,
    "TYPE_CHANGED": (_NEW_FIELD,) * 2,
    "TYPE_NARROWED": ("keep all types that were allowed",) * 2,
    "ENUM_ARRAY_NARROWED": ("keep all values that were allowed",) * 2,
    "DIFFERENT_SCHEMA_TYPE": ("use another subject for another language",) * 2,
}
_GENERAL: Final = (
    "keep what older events may hold readable: widen, do not narrow",
    "do not write what readers in the field refuse: narrow, do not widen",
)


class ExplainedChange(NamedTuple):
    """One thing that breaks."""

    path: str
    kind: str
    sentence: str
    breaks: str  # for whom
    remedy: str


class Explanation(NamedTuple):
    """A proposed schema beside an earlier one."""

    changes: tuple[ExplainedChange, ...]
    allowed: tuple[Level, ...]  # of the levels that look at two versions
    upgrade_first: str
    lints: tuple[Lint, ...]


def explain(
    proposed: ParsedSchema, earlier: ParsedSchema, policy: Policy = Policy.STRICT
) -> Explanation:
    """All that can be said about following `earlier` with `proposed`."""
    breaks = compare(Level.FULL, proposed, earlier, policy)
    new_reads_old = not any(one.new_is_reader for one in breaks)
    old_reads_new = all(one.new_is_reader for one in breaks)
    if proposed.type is not earlier.type:
        old_reads_new = False
    allowed = [Level.NONE]
    if new_reads_old:
        allowed.append(Level.BACKWARD)
    if old_reads_new:
        allowed.append(Level.FORWARD)
    if new_reads_old and old_reads_new:
        allowed.append(Level.FULL)
    return Explanation(
        tuple(_change(one) for one in breaks),
        tuple(allowed),
        _order(new_reads_old=new_reads_old, old_reads_new=old_reads_new),
        lint(proposed, earlier),
    )


def _order(*, new_reads_old: bool, old_reads_new: bool) -> str:
    if new_reads_old and old_reads_new:
        return "anybody: consumers and producers may upgrade in any order"
    if new_reads_old:
        return "consumers: the old ones cannot read what new producers write"
    if old_reads_new:
        return "producers: new consumers cannot read what the old ones wrote"
    return "nobody can: readers and writers would have to change at one moment. Use a new subject"


def _change(one: Break) -> ExplainedChange:
    difference = one.difference
    kind = difference.kind
    pair = _REMEDIES.get(kind) or _remedy_of_family(kind)
    who = (
        "consumers with the new schema cannot read events that are there"
        if one.new_is_reader
        else "consumers with the old schema cannot read new events"
    )
    return ExplainedChange(
        difference.path, kind, one.sentence, who, pair[0] if one.new_is_reader else pair[1]
    )


def _remedy_of_family(kind: str) -> tuple[str, str]:
    """Kinds of JSON Schema come in families: REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL …"""
    if "PROPERTY_ADDED_TO_OPEN" in kind or "ADDED_NOT_COVERED" in kind:
        return _REMEDIES["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]
    if "PROPERTY_REMOVED" in kind:
        return _REMEDIES["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]
    if kind.startswith("REQUIRED"):
        return _REMEDIES["REQUIRED_PROPERTY_ADDED"]
    return _GENERAL
