"""Which logical types are meant: a name Avro knows, on a type it may stand on.

Any other is ignored by readers, as the specification asks, and kept as a plain property.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeGuard

from penstock.schemas.avro.tree import Fixed, Kind, Node

_KINDS: Final[Mapping[str, frozenset[Kind]]] = {
    "decimal": frozenset((Kind.BYTES, Kind.FIXED)),
    "big-decimal": frozenset((Kind.BYTES,)),
    "uuid": frozenset((Kind.STRING, Kind.FIXED)),
    "duration": frozenset((Kind.FIXED,)),
    "date": frozenset((Kind.INT,)),
    "time-millis": frozenset((Kind.INT,)),
    "time-micros": frozenset((Kind.LONG,)),
    "timestamp-millis": frozenset((Kind.LONG,)),
    "timestamp-micros": frozenset((Kind.LONG,)),
    "timestamp-nanos": frozenset((Kind.LONG,)),
    "local-timestamp-millis": frozenset((Kind.LONG,)),
    "local-timestamp-micros": frozenset((Kind.LONG,)),
    "local-timestamp-nanos": frozenset((Kind.LONG,)),
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
