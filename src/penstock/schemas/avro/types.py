"""Which logical types are meant: a name Avro knows, on a type it may stand on.

Any other is ignored by readers, as the specification asks, and kept as a plain property.

Whether a default fits the type of its field.

As Avro 1.12 decides: a union's default may fit any of its branches, an enum's symbol and the
length of a fixed are not looked at, and a record's default may leave out fields with defaults.
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

_KINDS: Final[Mapping[str, frozenset[AvroType]]] = {
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
# With one of these a Java class is asked for instead, and the logical type is not looked at.
_JAVA_PROPERTIES: Final = (
    "avro.java.string",
    "java-class",
    "java-key-class",
    "java-element-class",
)
LOGICAL_TYPE: Final = "logicalType"


class LogicalType(NamedTuple):
    """What the bytes mean beyond their type."""

    name: str
    precision: int = 0
    scale: int = 0


def logical_type(node: Node) -> LogicalType | None:
    """The logical type of a node; None if it has none, or one that does not fit it."""
    name = node.properties.get(LOGICAL_TYPE)
    if not isinstance(name, str) or node.kind not in _KINDS.get(name, ()):
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
    """How many decimal digits fit a fixed of this size."""
    if size_bytes == 0:
        return 0
    return math.floor(math.log10(2) * (8 * size_bytes - 1))


_TEXTUAL: Final = frozenset((AvroType.STRING, AvroType.BYTES, AvroType.ENUM, AvroType.FIXED))
_INTEGRAL: Final = {AvroType.INT: 1 << 31, AvroType.LONG: 1 << 63}
_FLOATING: Final = frozenset((AvroType.FLOAT, AvroType.DOUBLE))


def is_valid_default(node: Node, value: JsonValue, depth: int = 0) -> bool:
    """Whether `value` is a default for a field of type `node`."""
    if isinstance(node, Primitive):
        return _fits_scalar(node.kind, value)
    if depth > NESTING_MAX:  # a record whose default holds itself
        return False
    if isinstance(node, Union):
        return any(is_valid_default(branch, value, depth + 1) for branch in node.branches)
    if isinstance(node, Array):
        items = node.items
        return isinstance(value, list) and all(
            is_valid_default(items, one, depth + 1) for one in value
        )
    if isinstance(node, Map):
        values = node.values
        return isinstance(value, dict) and all(
            is_valid_default(values, one, depth + 1) for one in value.values()
        )
    if isinstance(node, Pending):
        return isinstance(value, dict)
    if isinstance(node, Record):
        return isinstance(value, dict) and _fits_record(node, value, depth + 1)
    return _fits_scalar(node.kind, value)


def _fits_record(record: Record, value: dict[str, JsonValue], depth: int) -> bool:
    for field in record.fields:
        given = value.get(field.name, field.default)
        if isinstance(given, Absent) or not is_valid_default(field.type, given, depth):
            return False
    return True


def _fits_scalar(kind: AvroType, value: JsonValue) -> bool:
    if kind in _TEXTUAL:
        return isinstance(value, str)
    if kind is AvroType.NULL:
        return value is None
    if kind is AvroType.BOOLEAN:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _FLOATING:
        return isinstance(value, int | float)
    bound = _INTEGRAL[kind]
    return isinstance(value, int) and -bound <= value < bound
