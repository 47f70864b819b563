"""Random Protobuf messages, payloads of them as anybody may write them, and the oracle.

The oracle is upb: what it reads, `expected` puts as Arrow should show it. What it refuses must be
refused; beyond that only what Arrow cannot say is: proto2's strings that are no text, and times
outside the range of their type. These are refused where they are met, even if something later on
the wire would have taken their place: payloads are made so that nothing does.
"""

import datetime
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError

from penstock.columns.compiled import Int64s
from penstock.serde.protobuf.types import DURATION, TIMESTAMP, WRAPPERS

SCALARS = (
    Field.TYPE_DOUBLE,
    Field.TYPE_FLOAT,
    Field.TYPE_INT64,
    Field.TYPE_UINT64,
    Field.TYPE_INT32,
    Field.TYPE_FIXED64,
    Field.TYPE_FIXED32,
    Field.TYPE_BOOL,
    Field.TYPE_STRING,
    Field.TYPE_BYTES,
    Field.TYPE_UINT32,
    Field.TYPE_ENUM,
    Field.TYPE_SFIXED32,
    Field.TYPE_SFIXED64,
    Field.TYPE_SINT32,
    Field.TYPE_SINT64,
)
KEYS = tuple(
    kind
    for kind in SCALARS
    if kind not in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT, Field.TYPE_BYTES, Field.TYPE_ENUM)
)
NUMBERS = (0, 1, 5, 127, 128, 300, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (b"", b"a", b"sku-1", "naïve".encode(), "日本".encode(), "🎉".encode(), b"x" * 200, b"\0")
THIRTY_TWO = (Field.TYPE_FLOAT, Field.TYPE_FIXED32, Field.TYPE_SFIXED32)
SIXTY_FOUR = (Field.TYPE_DOUBLE, Field.TYPE_FIXED64, Field.TYPE_SFIXED64)
SIZED = (Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE)
KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


class NotExpressibleError(Exception):
    """Read by upb, and nothing that Arrow could show."""


def varint(number: int, least: int = 1) -> bytes:
    """A number in as few bytes as do, or in so many."""
    out = bytearray()
    while number > 0x7F or len(out) + 1 < least:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Maker:
    """Messages and payloads from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.syntax = self.random.choice(("proto2", "proto3"))
        self.file = descriptor_pb2.FileDescriptorProto(
            name="random.proto",
            package="r",
            syntax=self.syntax,
            dependency=[one.DESCRIPTOR.name for one in KNOWN],
        )
        numbers = [0, *self.random.sample((1, 2, 3, -1, 7, 2000, 2**31 - 1, -(2**31)), 3)]
        self.file.enum_type.add(
            name="E",
            value=[
                descriptor_pb2.EnumValueDescriptorProto(name=f"E{index}", number=number)
                for index, number in enumerate(numbers)
            ],
        )
        self.numbers = numbers
        self._passing = 0  # what is around it: map entries and oneofs, which others may replace

    def message_type(self) -> Any:
        """A message class; messages refer to later ones only, so none contains itself."""
        count = self.random.randint(1, 4)
        for index in reversed(range(count)):
            self._message(index, count)
        pool = descriptor_pool.DescriptorPool()
        for known in KNOWN:
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(self.file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("r.M0"))

    def _message(self, index: int, count: int) -> None:
        message = self.file.message_type.add(name=f"M{index}")
        fields = self.random.randint(1, 8)
        numbers = self.random.sample([*range(1, 30), 100, 5000, 2**29 - 1], fields)
        oneof = False
        for place, number in enumerate(numbers):
            field = message.field.add(name=f"f{place}", number=number)
            field.label = Field.LABEL_OPTIONAL
            form = self.random.randrange(8)
            if form == 0:
                self._map(message, field, index, count)
                continue
            self._type(field, index, count, message)
            if form in (1, 2):
                field.label = Field.LABEL_REPEATED
                if field.type in SCALARS and field.type not in SIZED:
                    field.options.packed = self.random.random() < 0.5
            elif form in (3, 4):
                field.oneof_index = 0
                oneof = True
            elif form == 5 and self.syntax == "proto2":
                field.label = Field.LABEL_REQUIRED
        if oneof:
            message.oneof_decl.add(name="choice")
        if self.syntax == "proto3":
            self._optional(message)

    def _optional(self, message: Any) -> None:
        for field in message.field:
            is_free = field.label == Field.LABEL_OPTIONAL and not field.HasField("oneof_index")
            if is_free and self.random.random() < 0.3:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _type(self, field: Any, index: int, count: int, message: Any = None) -> None:
        form = self.random.randrange(10)
        if form < 6 or (form < 8 and index + 1 == count):
            field.type = self.random.choice(SCALARS)
            if field.type == Field.TYPE_ENUM:
                field.type_name = ".r.E"
        elif form < 8:
            field.type = Field.TYPE_MESSAGE
            field.type_name = f".r.M{self.random.randrange(index + 1, count)}"
        elif form == 8 and self.syntax == "proto2" and message is not None:
            field.type = Field.TYPE_GROUP
            name = f"G{field.name}"
            group = message.nested_type.add(name=name)
            group.field.add(name="a", number=1, type=Field.TYPE_INT32, label=1)
            group.field.add(name="b", number=16, type=Field.TYPE_STRING, label=3)
            field.type_name = f".r.{message.name}.{name}"
        else:
            field.type = Field.TYPE_MESSAGE
            field.type_name = "." + self.random.choice([TIMESTAMP, DURATION, *sorted(WRAPPERS)])

    def _map(self, message: Any, field: Any, index: int, count: int) -> None:
        name = "".join(part.title() for part in field.name.split("_")) + "Entry"
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=self.random.choice(KEYS), label=1)
        value = entry.field.add(name="value", number=2, label=1)
        self._type(value, index, count)
        field.type = Field.TYPE_MESSAGE
        field.label = Field.LABEL_REPEATED
        field.type_name = f".r.{message.name}.{name}"

    def payload(self, message: Any, depth: int = 0) -> bytes:
        """Fields in any order, any number of times, some as they should not be."""
        out = bytearray()
        for _ in range(self.random.randint(0, 6 if depth < 3 else 2)):
            chance = self.random.random()
            if chance < 0.08:
                out += self._stray()
            elif message.fields:
                out += self._field(self.random.choice(message.fields), depth)
        return bytes(out)

    def _stray(self) -> bytes:
        """An unknown field, or a known number in an unknown way."""
        number = self.random.choice((1, 2, 3, 17, 40, 2**29 - 1))
        wire = self.random.choice((0, 1, 2, 3, 5))
        content = {
            0: varint(self.random.choice(NUMBERS)),
            1: self.random.randbytes(8),
            2: b"\x03abc",
            3: b"\x08\x01\x13\x14" + varint(number << 3 | 4),
            5: self.random.randbytes(4),
        }[wire]
        return varint(number << 3 | wire) + content

    def _field(self, field: Any, depth: int) -> bytes:
        wire = _wire(field)
        least = 1 if self.random.random() < 0.97 else 5
        if field.is_repeated and wire in (0, 1, 5) and self.random.random() < 0.5:
            items = b"".join(self._value(field, depth) for _ in range(self.random.randint(0, 4)))
            return varint(field.number << 3 | 2, least) + varint(len(items)) + items
        value = self._value(field, depth)
        if wire == 2:
            value = varint(len(value)) + value
        elif wire == 3:
            value += varint(field.number << 3 | 4)
        return varint(field.number << 3 | wire, least) + value

    def _value(self, field: Any, depth: int) -> bytes:
        kind = field.type
        if field.message_type is not None:
            if field.message_type.full_name in (TIMESTAMP, DURATION):
                return self._time()
            is_entry = field.message_type.GetOptions().map_entry
            may_go = is_entry or field.containing_oneof is not None
            self._passing += may_go
            inside = self.payload(field.message_type, depth + 1)
            self._passing -= may_go
            return inside
        if kind == Field.TYPE_STRING:
            is_corrupt = self.syntax == "proto3" and self.random.random() < 0.02
            return b"\xed\xa0\x80" if is_corrupt else self.random.choice(TEXTS)
        if kind == Field.TYPE_BYTES:
            return self.random.randbytes(self.random.randint(0, 5))
        if kind in SIXTY_FOUR:
            return struct.pack("<d", self.random.choice((0.0, -0.0, 1.5, math.inf, -2e300)))
        if kind in THIRTY_TWO:
            return self.random.randbytes(4) if self.random.random() < 0.5 else bytes(4)
        if kind == Field.TYPE_ENUM and self.random.random() < 0.8:
            return varint(self.random.choice(self.numbers) % 2**64)
        return varint(self.random.choice(NUMBERS), self.random.choice((1, 1, 1, 10)))

    def _time(self) -> bytes:
        seconds = self.random.choice((0, 1, 1_700_000_000, 253402300799, 5))
        nanos = self.random.choice((0, 1, 999_999_999, 5_000, 7_999))
        if not self._passing and self.random.random() < 0.1:
            seconds, nanos = self.random.choice(((-1, -7_999), (0, -999), (2**62, 0), (1, 10**9)))
        out = b"\x08" + varint(seconds % 2**64) + b"\x10" + varint(nanos % 2**64)
        return out if self.random.random() < 0.8 else out[: len(varint(seconds % 2**64)) + 1]


def _wire(field: Any) -> int:
    if field.type in SIXTY_FOUR:
        return 1
    if field.type in THIRTY_TWO:
        return 5
    if field.type == Field.TYPE_GROUP:
        return 3
    return 2 if field.type in SIZED else 0


def read(message_type: Any, payload: bytes, columns: Sequence[str] | None = None) -> Any:
    """The row as Arrow should show it, None if it is to be refused."""
    try:
        message = message_type.FromString(payload)
    except DecodeError:
        return None
    try:
        whole = shown(message)
    except NotExpressibleError:
        return None
    return whole if columns is None else {name: whole[name] for name in columns}


def shown(message: Any) -> dict[str, Any]:
    """A message as a struct."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        entry = field.message_type
        if field.is_repeated and entry is not None and entry.GetOptions().map_entry:
            of_value = entry.fields_by_name["value"]
            of_key = entry.fields_by_name["key"]
            row[field.name] = {one(of_key, key): one(of_value, value[key]) for key in value}
        elif field.is_repeated:
            row[field.name] = [one(field, item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = one(field, value)
    return row


def one(field: Any, value: Any) -> Any:
    """A single value."""
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if isinstance(value, float):
        return number(value)
    if field.message_type is None:
        if field.type == Field.TYPE_STRING and isinstance(value, bytes):
            raise NotExpressibleError  # proto2 lets any bytes be a string
        return value
    match field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return instant(value.seconds, value.nanos)
        case "google.protobuf.Duration":
            return span(value.seconds, value.nanos)
        case name if name in WRAPPERS:
            return one(field.message_type.fields_by_name["value"], value.value)
    return shown(value)


def instant(seconds: int, nanos: int) -> datetime.datetime:
    if not (-62135596800 <= seconds <= 253402300799 and 0 <= nanos < 10**9):
        raise NotExpressibleError
    return EPOCH + datetime.timedelta(seconds=seconds) + nanos // 1000 * MICROSECOND


def span(seconds: int, nanos: int) -> datetime.timedelta:
    is_legal = abs(seconds) <= 315576000000 and abs(nanos) < 10**9 and seconds * nanos >= 0
    if not is_legal:
        raise NotExpressibleError
    return datetime.timedelta(seconds=seconds) + math.trunc(nanos / 1000) * MICROSECOND


def number(value: float) -> Any:
    """A float that equals itself, and no other zero."""
    return "NaN" if math.isnan(value) else struct.pack("<d", value)


def rows_of(batch: pa.RecordBatch) -> list[Any]:
    """The rows with maps as dicts and floats as above; a map with a key twice is no map."""
    batch.validate(full=True)
    return [
        {name: plain(value, batch.schema.field(name).type) for name, value in row.items()}
        for row in batch.to_pylist()
    ]


def plain(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        entries = {plain(key, kind.key_type): plain(each, kind.item_type) for key, each in value}
        assert len(entries) == len(value), "a key comes twice"
        return entries
    if pa.types.is_list(kind):
        return [plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {name: plain(each, kind.field(name).type) for name, each in value.items()}
    return number(value) if isinstance(value, float) else value


def joined(payloads: Sequence[bytes]) -> tuple[bytes, Int64s, Int64s]:
    """One buffer, and where each payload starts and ends, with rubbish between them."""
    gap = b"\xff"
    sizes = np.array([len(payload) for payload in payloads], dtype=np.int64)
    ends = np.cumsum(sizes + len(gap))
    return gap + gap.join(payloads), ends - sizes, ends


def has_maps(message: Any) -> bool:
    """Whether a map is anywhere in it."""
    inner = [field.message_type for field in message.fields if field.message_type is not None]
    return bool(message.GetOptions().map_entry) or any(map(has_maps, inner))


def loses(message: Any) -> bool:
    """Whether there are times in it that are finer than microseconds."""
    if message.DESCRIPTOR.full_name in (TIMESTAMP, DURATION):
        return bool(message.nanos % 1000)
    return any(
        loses(each)
        for field, value in message.ListFields()
        if field.message_type is not None
        for each in (value if field.is_repeated else [value])
    )


class Oracle:
    """What the tests of this folder share."""

    has_maps = staticmethod(has_maps)
    loses = staticmethod(loses)

    maker = staticmethod(Maker)
    read = staticmethod(read)
    rows_of = staticmethod(rows_of)
    joined = staticmethod(joined)
    varint = staticmethod(varint)
    number = staticmethod(number)
    instant = staticmethod(instant)
    span = staticmethod(span)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle()
