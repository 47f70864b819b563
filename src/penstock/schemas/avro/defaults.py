"""Whether a default fits the type of its field.

As Avro 1.12 decides: a union's default may fit any of its branches, an enum's symbol and the
length of a fixed are not looked at, and a record's default may leave out fields with defaults.
"""

from typing import Final

from penstock.schemas.avro.tree import (
    NESTING_MAX,
    Absent,
    Array,
    JsonValue,
    Kind,
    Map,
    Node,
    Pending,
    Primitive,
    Record,
    Union,
)

_TEXTUAL: Final = frozenset((Kind.STRING, Kind.BYTES, Kind.ENUM, Kind.FIXED))
_INTEGRAL: Final = {Kind.INT: 1 << 31, Kind.LONG: 1 << 63}
_FLOATING: Final = frozenset((Kind.FLOAT, Kind.DOUBLE))


def fits(node: Node, value: JsonValue, depth: int = 0) -> bool:
    """Whether `value` is a default for a field of type `node`."""
    if isinstance(node, Primitive):
        return _fits_scalar(node.kind, value)
    if depth > NESTING_MAX:  # a record whose default holds itself
        return False
    if isinstance(node, Union):
        return any(fits(branch, value, depth + 1) for branch in node.branches)
    if isinstance(node, Array):
        items = node.items
        return isinstance(value, list) and all(fits(items, one, depth + 1) for one in value)
    if isinstance(node, Map):
        values = node.values
        return isinstance(value, dict) and all(
            fits(values, one, depth + 1) for one in value.values()
        )
    if isinstance(node, Pending):
        return isinstance(value, dict)
    if isinstance(node, Record):
        return isinstance(value, dict) and _fits_record(node, value, depth + 1)
    return _fits_scalar(node.kind, value)


def _fits_record(record: Record, value: dict[str, JsonValue], depth: int) -> bool:
    for field in record.fields:
        given = value.get(field.name, field.default)
        if isinstance(given, Absent) or not fits(field.type, given, depth):
            return False
    return True


def _fits_scalar(kind: Kind, value: JsonValue) -> bool:
    if kind in _TEXTUAL:
        return isinstance(value, str)
    if kind is Kind.NULL:
        return value is None
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _FLOATING:
        return isinstance(value, int | float)
    bound = _INTEGRAL[kind]
    return isinstance(value, int) and -bound <= value < bound
