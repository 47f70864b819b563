"""How to avoid a breaking change, by the kind of difference."""

from collections.abc import Mapping
from typing import Final

from penstock.gate.results import UpgradeOrder

_NEW_FIELD: Final = "keep the field as it is, and add a new field for the new meaning"
_NEW_NUMBER: Final = "add a new field with a new number, and reserve the old number and name"
_OPTIONAL: Final = "make the property optional, or give it a default"
# What to do if new readers fail, and if old readers fail.
_REMEDIES: Final[Mapping[str, tuple[str, str]]] = {
    "READER_FIELD_MISSING_DEFAULT_VALUE": (
        "give the field a default, which readers use for older events",
        "keep the field: deployed readers have no default for it. To remove it, first register a "
        "version in which it has a default, and upgrade all readers to that version",
    ),
    "TYPE_MISMATCH": (
        f"{_NEW_FIELD}; only int to long to float to double, and string to bytes, can be widened",
        f"{_NEW_FIELD}; old readers cannot read a wider type",
    ),
    "NAME_MISMATCH": (
        "keep the name, or add the old name as an alias",
        "keep the name: old readers do not know the new one",
    ),
    "MISSING_ENUM_SYMBOLS": (
        "keep all symbols, or give the enum a default for the removed ones",
        "old readers do not know the new symbols: give the enum a default first, and add symbols "
        "when all readers have it",
    ),
    "MISSING_UNION_BRANCH": (
        "keep every type of the union that older events may contain",
        "old readers do not know the new type: add a field for it instead",
    ),
    "FIXED_SIZE_MISMATCH": ("keep the size of the fixed, or add a type with a new name",) * 2,
    "PACKAGE_CHANGED": ("keep the package: it is part of every message's name",) * 2,
    "MESSAGE_REMOVED": ("keep the message, and mark it deprecated",) * 2,
    "FIELD_KIND_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_SCALAR_KIND_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_NAMED_TYPE_CHANGED": (_NEW_NUMBER,) * 2,
    "FIELD_NUMERIC_LABEL_CHANGED": (_NEW_NUMBER,) * 2,
    "REQUIRED_FIELD_ADDED": ("make the field optional",) * 2,
    "REQUIRED_FIELD_REMOVED": (
        "keep the field, or make it optional in a version before its removal",
    )
    * 2,
    "ONEOF_FIELD_REMOVED": ("keep the member of the oneof, and mark it deprecated",) * 2,
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "move at most one field into a new oneof; add new fields for the others",
    )
    * 2,
    "FIELD_MOVED_TO_EXISTING_ONEOF": ("add a new member to the oneof instead",) * 2,
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "older events may contain any value under that name: close the object first "
        '("additionalProperties": false), or set compatibilityPolicy to LENIENT',
    )
    * 2,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": ("keep the property, or open the object first",)
    * 2,
    "REQUIRED_PROPERTY_ADDED": (_OPTIONAL,) * 2,
    "REQUIRED_ATTRIBUTE_ADDED": (_OPTIONAL,) * 2,
    "TYPE_CHANGED": (_NEW_FIELD,) * 2,
    "TYPE_NARROWED": ("keep all types that were allowed",) * 2,
    "ENUM_ARRAY_NARROWED": ("keep all values that were allowed",) * 2,
    "DIFFERENT_SCHEMA_TYPE": ("use another subject for another language",) * 2,
    "FIELD_IN_USE_REMOVED": ("keep the field until the reader no longer uses it",) * 2,
    "FIELD_IN_USE_RENAMED": ("keep the name until the reader uses the new one",) * 2,
    "UNCHECKABLE": ("change the schema so that the two can be compared",) * 2,
    "VERSION_REWRITTEN": ("restore the published version, and add the change as a new one",) * 2,
}
_GENERAL: Final = (
    "keep everything that older events may contain readable: widen, do not narrow",
    "do not write what deployed readers refuse: narrow, do not widen",
)
_UPGRADES: Final[Mapping[UpgradeOrder, str]] = {
    UpgradeOrder.ANY: "any: consumers and producers can be upgraded in any order",
    UpgradeOrder.CONSUMERS_FIRST: "consumers: old ones cannot read what new producers write",
    UpgradeOrder.PRODUCERS_FIRST: "producers: new consumers cannot read what old ones wrote",
    UpgradeOrder.NONE: "no order is safe: all readers and writers would have to change at the "
    "same moment. Use a new subject",
}


def remedy_for(kind: str, *, new_is_reader: bool) -> str:
    """What to do instead of a breaking change."""
    remedies = _REMEDIES.get(kind) or _remedies_of_family(kind)
    return remedies[0] if new_is_reader else remedies[1]


def upgrade_advice(order: UpgradeOrder) -> str:
    """Who must be upgraded first, and why."""
    return _UPGRADES[order]


def _remedies_of_family(kind: str) -> tuple[str, str]:
    """Kinds of JSON Schema form families: REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL …"""
    if "PROPERTY_ADDED_TO_OPEN" in kind or "ADDED_NOT_COVERED" in kind:
        return _REMEDIES["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]
    if "PROPERTY_REMOVED" in kind:
        return _REMEDIES["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]
    if kind.startswith("REQUIRED"):
        return _REMEDIES["REQUIRED_PROPERTY_ADDED"]
    return _GENERAL
