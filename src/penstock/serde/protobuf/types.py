"""Which Arrow type a Protobuf field becomes, both ways: read into and written from.

A field that can be absent (a message, a oneof's member, `optional`, all of proto2's) is nullable;
one that cannot has its default. An enum is the name of its value, as in single events, and a number
without a name its digits. Numbers without sign stay so. Timestamp and Duration are Arrow's own, in
microseconds unless set otherwise: digits below the unit are dropped, and in nanoseconds years
beyond 2262 are not readable. google.protobuf's wrappers are the nullable value that they wrap. All
other messages are structs, Any among them.

A message that contains itself has no Arrow type (google.protobuf.Struct is such a message).
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from penstock.serde.avro.types import NotExpressibleError

TimeUnit: TypeAlias = Literal["us", "ns"]
Descriptor: TypeAlias = Any  # of upb, which has no types: a message's, or a field's
ArrowField: TypeAlias = "pa.Field[Any]"  # quoted: only the stubs know that it is generic
_map: Any = pa.map_  # the stubs do not know that it takes a field

TYPES_MAX: Final = 10_000  # in one message, names written out
PER_SECOND: Final[Mapping[TimeUnit, int]] = {"us": 10**6, "ns": 10**9}
TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in (
        "Double",
        "Float",
        "Int64",
        "UInt64",
        "Int32",
        "UInt32",
        "Bool",
        "String",
        "Bytes",
    )
)
SCALARS: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.uint64(),
    FieldDescriptor.TYPE_FIXED64: pa.uint64(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_UINT32: pa.uint32(),
    FieldDescriptor.TYPE_FIXED32: pa.uint32(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_ENUM: pa.string(),
}


def is_map(field: Descriptor) -> bool:
    """Whether it is declared as map<…>."""
    entry = field.message_type
    return bool(field.is_repeated and entry is not None and entry.GetOptions().map_entry)


def entry_fields(field: Descriptor) -> tuple[Descriptor, Descriptor]:
    """A map's key and value."""
    by_name = field.message_type.fields_by_name
    return by_name["key"], by_name["value"]


def arrow_type(field: Descriptor, unit: TimeUnit = "us") -> pa.DataType:
    """The type of a column of `field`."""
    return _Typing(unit).field_type(field)


def time_type(full_name: str, unit: TimeUnit) -> pa.DataType:
    """Of a Timestamp or a Duration."""
    return pa.timestamp(unit, tz="UTC") if full_name == TIMESTAMP else pa.duration(unit)


class _Typing:
    def __init__(self, unit: TimeUnit) -> None:
        self._unit = unit
        self._open: set[str] = set()
        self._count = 0

    def field_type(self, field: Descriptor) -> pa.DataType:
        if is_map(field):
            key, value = entry_fields(field)
            item = pa.field("value", self._one(value), nullable=False)
            map_type: pa.DataType = _map(self._one(key), item)
            return map_type
        if field.is_repeated:
            return pa.list_(pa.field("item", self._one(field), nullable=False))
        return self._one(field)

    def _one(self, field: Descriptor) -> pa.DataType:
        self._count += 1
        if self._count > TYPES_MAX:
            raise NotExpressibleError(
                f"the message has more than {TYPES_MAX} types, names written out"
            )
        message = field.message_type
        if message is None:
            return SCALARS[field.type]
        if message.full_name in WRAPPERS:
            return SCALARS[message.fields_by_name["value"].type]
        if message.full_name in (TIMESTAMP, DURATION):
            return time_type(message.full_name, self._unit)
        return self._struct(message)

    def _struct(self, message: Descriptor) -> pa.DataType:
        if message.full_name in self._open:
            raise NotExpressibleError(f"the message {message.full_name} contains itself")
        self._open.add(message.full_name)
        fields: list[ArrowField] = [
            pa.field(field.name, self.field_type(field), nullable=bool(field.has_presence))
            for field in message.fields
        ]
        self._open.remove(message.full_name)
        return pa.struct(fields)
