"""Logical types, and whether a default is valid for the type of its field.

A logical type counts if Avro knows its name and allows it on that type; readers ignore any other,
as the specification says. Defaults are checked as Avro 1.12 does: a union's default may be valid
for any branch, the symbol of an enum and the length of a fixed are not checked, and a record's
default may leave out fields with defaults.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from penstock.schemas.avro.tree import (
    NESTING_MAX,
    Absent,
    Array,
    AvroType,
    Fixed,
    JsonValue,
    Map,
    Node,
    Pending,
    Primitive,
    Record,
    Union,
)

LOGICAL_TYPE: Final = "logicalType"
_ALLOWED_TYPES: Final[Mapping[str, frozenset[AvroType]]] = {
    "decimal": frozenset((AvroType.BYTES, AvroType.FIXED)),
    "big-decimal": frozenset((AvroType.BYTES,)),
    "uuid": frozenset((AvroType.STRING, AvroType.FIXED)),
    "duration": frozenset((AvroType.FIXED,)),
    "date": frozenset((AvroType.INT,)),
    "time-millis": frozenset((AvroType.INT,)),
    "time-micros": frozenset((AvroType.LONG,)),
    "timestamp-millis": frozenset((AvroType.LONG,)),
    "timestamp-micros": frozenset((AvroType.LONG,)),
    "timestamp-nanos": frozenset((AvroType.LONG,)),
    "local-timestamp-millis": frozenset((AvroType.LONG,)),
    "local-timestamp-micros": frozenset((AvroType.LONG,)),
    "local-timestamp-nanos": frozenset((AvroType.LONG,)),
}
_FIXED_BYTES: Final = {"uuid": 16, "duration": 12}
# With one of these, Java uses the named class and ignores the logical type.
_JAVA_PROPERTIES: Final = (
    "avro.java.string",
    "java-class",
    "java-key-class",
    "java-element-class",
)
_STRING_DEFAULTS: Final = frozenset(
    (AvroType.STRING, AvroType.BYTES, AvroType.ENUM, AvroType.FIXED)
)
_INTEGER_ENDS: Final = {AvroType.INT: 1 << 31, AvroType.LONG: 1 << 63}
_FLOATS: Final = frozenset((AvroType.FLOAT, AvroType.DOUBLE))


class LogicalType(NamedTuple):
    """The meaning of a value beyond its type."""

    name: str
    precision: int = 0
    scale: int = 0


def logical_type(node: Node) -> LogicalType | None:
    """The logical type of a node; None if it has none, or one that is not allowed on it."""
    name = node.properties.get(LOGICAL_TYPE)
    if not isinstance(name, str) or node.kind not in _ALLOWED_TYPES.get(name, ()):
        return None
    if any(isinstance(node.properties.get(key), str) for key in _JAVA_PROPERTIES):
        return None
    if isinstance(node, Fixed) and node.size != _FIXED_BYTES.get(name, node.size):
        return None
    return _decimal(node) if name == "decimal" else LogicalType(name)


def _decimal(node: Node) -> LogicalType | None:
    precision = node.properties.get("precision")
    scale = node.properties.get("scale", 0)
    if not _is_int(precision) or not _is_int(scale):
        return None
    if precision <= 0 or not 0 <= scale <= precision:
        return None
    if isinstance(node, Fixed) and precision > digits_max(node.size):
        return None
    return LogicalType("decimal", precision, scale)


def _is_int(value: object) -> TypeGuard[int]:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -(1 << 31) <= value < 1 << 31


def digits_max(size_bytes: int) -> int:
    """The number of decimal digits that a fixed of this size can hold."""
    if size_bytes == 0:
        return 0
    return math.floor(math.log10(2) * (8 * size_bytes - 1))


def is_valid_default(node: Node, value: JsonValue, depth: int = 0) -> bool:
    """Whether `value` is a valid default for a field of this type."""
    if isinstance(node, Primitive):
        return _is_valid_scalar(node.kind, value)
    if depth > NESTING_MAX:  # a record whose default contains itself
        return False
    if isinstance(node, Union):
        return any(is_valid_default(branch, value, depth + 1) for branch in node.branches)
    if isinstance(node, Array):
        items = node.items
        return isinstance(value, list) and all(
            is_valid_default(items, item, depth + 1) for item in value
        )
    if isinstance(node, Map):
        values = node.values
        return isinstance(value, dict) and all(
            is_valid_default(values, member, depth + 1) for member in value.values()
        )
    if isinstance(node, Pending):
        return isinstance(value, dict)
    if isinstance(node, Record):
        return isinstance(value, dict) and _is_valid_record(node, value, depth + 1)
    return _is_valid_scalar(node.kind, value)


def _is_valid_record(record: Record, value: dict[str, JsonValue], depth: int) -> bool:
    for field in record.fields:
        default = value.get(field.name, field.default)
        if isinstance(default, Absent) or not is_valid_default(field.type, default, depth):
            return False
    return True


def _is_valid_scalar(kind: AvroType, value: JsonValue) -> bool:
    if kind in _STRING_DEFAULTS:
        return isinstance(value, str)
    if kind is AvroType.NULL:
        return value is None
    if kind is AvroType.BOOLEAN:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _FLOATS:
        return isinstance(value, int | float)
    end = _INTEGER_ENDS[kind]
    return isinstance(value, int) and -end <= value < end
