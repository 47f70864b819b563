"""Which Arrow type an Avro type becomes, both ways: read into and written from.

[null, X] is a nullable X. Any other union is a struct with a nullable member per branch, named
after the branch, of which one is set; the struct itself is null if the union's null was. A struct
and not one of Arrow's unions, because Spark, Parquet and pandas know no unions. An enum is its
symbol as text: symbols outlive the positions they have in one version of a schema. A uuid and a
duration stay what they are written as. A decimal beyond 76 digits is left as bytes.

A record that contains itself has no Arrow type: NotExpressibleError.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.logical_types import decimal_of

ArrowField: TypeAlias = "pa.Field[Any]"  # quoted: only the stubs know that it is generic
_map: Any = pa.map_  # the stubs do not know that it takes a field

TYPES_MAX: Final = 10_000  # in one schema, names written out
DECIMAL128_DIGITS_MAX: Final = 38

_PLAIN: Final[Mapping[AvroType, pa.DataType]] = {
    AvroType.NULL: pa.null(),
    AvroType.BOOLEAN: pa.bool_(),
    AvroType.INT: pa.int32(),
    AvroType.LONG: pa.int64(),
    AvroType.FLOAT: pa.float32(),
    AvroType.DOUBLE: pa.float64(),
    AvroType.BYTES: pa.binary(),
    AvroType.STRING: pa.string(),
    AvroType.ENUM: pa.string(),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}


class NotExpressibleError(Exception):
    """A type that Arrow, and so a program, cannot have: a record within itself, or far too wide."""


def arrow_type(node: Node) -> pa.DataType:
    """The type of a column of `node`; whether it may be null is the field's."""
    return _Typing().type(node)


def is_nullable(node: Node) -> bool:
    """Whether null is among its values."""
    if isinstance(node, Union):
        return any(branch.kind is AvroType.NULL for branch in node.branches)
    return node.kind is AvroType.NULL


def values_of(union: Union) -> list[Node]:
    """The branches that are not null."""
    return [branch for branch in union.branches if branch.kind is not AvroType.NULL]


def decimal_bytes(precision: int) -> int:
    """How wide Arrow's decimal of that precision is."""
    return 16 if precision <= DECIMAL128_DIGITS_MAX else 32


class _Typing:
    def __init__(self) -> None:
        self._open: set[int] = set()
        self._count = 0

    def type(self, node: Node) -> pa.DataType:
        self._count += 1
        if self._count > TYPES_MAX:
            raise NotExpressibleError(
                f"the schema has more than {TYPES_MAX} types, names written out"
            )
        if isinstance(node, Record):
            return self._record(node)
        if isinstance(node, Array):
            return pa.list_(self._field("item", node.items))
        if isinstance(node, Map):
            map_type: pa.DataType = _map(pa.string(), self._field("value", node.values))
            return map_type
        if isinstance(node, Union):
            return self._union(node)
        return _scalar(node)

    def _field(self, name: str, node: Node) -> ArrowField:
        return pa.field(name, self.type(node), nullable=is_nullable(node))

    def _record(self, record: Record) -> pa.DataType:
        if id(record) in self._open:
            raise NotExpressibleError(f"the record {record.full_name} contains itself")
        self._open.add(id(record))
        fields = [self._field(field.name, field.type) for field in record.fields]
        self._open.remove(id(record))
        return pa.struct(fields)

    def _union(self, union: Union) -> pa.DataType:
        values = values_of(union)
        if not values:
            return pa.null()
        if len(values) == 1:
            return self.type(values[0])
        return pa.struct([pa.field(branch.full_name, self.type(branch)) for branch in values])


def _scalar(node: Node) -> pa.DataType:
    decimal = decimal_of(node)
    if decimal is not None:
        if decimal.precision <= DECIMAL128_DIGITS_MAX:
            return pa.decimal128(decimal.precision, decimal.scale)
        return pa.decimal256(decimal.precision, decimal.scale)
    if isinstance(node, Fixed):
        return pa.binary(node.size)
    logical = None if isinstance(node, Enum) else logical_type(node)
    if logical is not None and logical.name in _LOGICAL:
        return _LOGICAL[logical.name]
    return _PLAIN[node.kind]
