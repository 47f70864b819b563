"""What is no sound payload is refused: in a single event as in a batch, wherever it is."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.columns.vm.payloads import USUAL_LIMITS
from penstock.schemas.avro import AvroSchema, parse
from penstock.serde.avro import batch as avro_batches
from penstock.serde.avro.columns import AvroRowsEncoder
from penstock.serde.avro.event import AvroEventDecoder, AvroEventEncoder
from penstock.serde.avro.limits import EVENT_BYTES_MAX, ITEMS_MAX, NESTING_MAX
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import InvalidValueError, ReadAs
from penstock.serde.frame import BadFrameError, Frame, SchemaId

BEYOND = b"\x80\x80\x80\x80\x10"  # 2**31
LEAST = b"\xff\xff\xff\xff\x0f"  # -2**31
LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
SHAPES: dict[str, tuple[Any, bytes, bytes]] = {  # a type, and what is around an int of it
    "alone": ("int", b"", b""),
    "optional": (["null", "int"], b"\x02", b""),
    "in an array": ({"type": "array", "items": "int"}, b"\x02", b"\x00"),
    "in a map": ({"type": "map", "values": "int"}, b"\x02\x02k", b"\x00"),
    "in a record": (LINE, b"", b""),
    "in records of an array": ({"type": "array", "items": LINE}, b"\x02", b"\x00"),
    "in a union": (["string", "int"], b"\x02", b""),
    "in a record of a union": (["string", LINE], b"\x02", b""),
}


def schema(kind: Any, *, more: bool = False) -> AvroSchema:
    fields = [{"name": "f", "type": kind}, {"name": "d", "type": "int", "default": 2**31 - 1}]
    document = {"type": "record", "name": "R", "fields": fields[: 2 if more else 1]}
    return parse(json.dumps(document))


def decoded(decoder: AvroEventDecoder, payload: bytes) -> Any:
    content = b"\0\0\0\0\1" + payload
    return decoder.decode(Frame(SchemaId(1), content, 5, content))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("more", [False, True])
def test_an_int_has_32_bits(shape: str, more: bool) -> None:
    kind, before, after = SHAPES[shape]
    decoder = AvroEventDecoder(schema(kind), ReadAs(schema(kind, more=more)))
    assert "-2147483648" in str(decoded(decoder, before + LEAST + after))
    with pytest.raises((DecodeError, BadFrameError)) as refused:
        decoded(decoder, before + BEYOND + after)
    wrong: Any = refused.value
    assert (wrong.kind if isinstance(wrong, BadFrameError) else wrong.reason) is Reason.UNDECODABLE


@pytest.mark.parametrize("wider", ["long", "double", ["null", "long"]])
def test_an_int_that_is_read_as_something_wider_still_has_32_bits(wider: Any) -> None:
    decoder = AvroEventDecoder(schema("int"), ReadAs(schema(wider)))
    assert decoded(decoder, LEAST) == {"f": -(2**31)}
    with pytest.raises(BadFrameError, match="32 bits"):
        decoded(decoder, BEYOND)


def test_longs_have_more() -> None:
    assert decoded(AvroEventDecoder(schema("long"), ReadAs()), BEYOND) == {"f": 2**31}
    assert decoded(AvroEventDecoder(schema(["string", "long"]), ReadAs()), b"\x02" + BEYOND) == {
        "f": 2**31
    }


NOTHINGS = {"type": "array", "items": "null"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
CORRUPT: dict[str, tuple[Any, bytes]] = {
    "a long of 65 bits": ("long", b"\xff" * 9 + b"\x02"),
    "a long that goes on and on": ("long", b"\xff" * 12 + b"\x01"),
    "a length of 65 bits": ("string", b"\x80" * 9 + b"\x02"),
    "a length beyond the end": ("bytes", b"\x04a"),
    "a length below zero": ("string", b"\x01a"),
    "an int of 33 bits": ("int", BEYOND),
    "a boolean of 2": ("boolean", b"\x02"),
    "a symbol too far": (ENUM, b"\x04"),
    "a symbol below zero": (ENUM, b"\x01"),
    "a branch too far": (["null", "int"], b"\x04"),
    "a branch of 65 bits": (["null", "int"], b"\x80" * 9 + b"\x02"),
    "an item missing": ({"type": "array", "items": "double"}, b"\x04" + bytes(8) + b"\x00"),
    "an array of everything": ({"type": "array", "items": "int"}, b"\xfe\xff\xff\x03\x00"),
    "nothings without end": (NOTHINGS, b"\xfe\xff\xff\xff\x0f\x00"),
    "a count of 65 bits": (NOTHINGS, b"\x80" * 9 + b"\x02\x00"),
    "half a double": ("double", bytes(4)),
    "nothing at all": ("long", b""),
    "a decimal of three digits": (DECIMAL, b"\x04\x00\x64"),
}


def tree_of(kind: Any) -> AvroSchema:
    """A record that contains itself, so that no program can express it."""
    fields = [{"name": "f", "type": kind}, {"name": "next", "type": ["null", "T"]}]
    tree = {"type": "record", "name": "T", "fields": fields}
    document = {"type": "record", "name": "R", "fields": [{"name": "t", "type": tree}]}
    return parse(json.dumps(document))


def is_read_in_a_batch(
    writer: AvroSchema, payload: bytes, reader: AvroSchema | None = None
) -> bool:
    ends = np.array([len(payload)], dtype=np.int64)
    _, errors = avro_batches.AvroBatchDecoder(writer, reader).decode(payload, ends - ends, ends)
    return not errors.any()


def is_read_alone(writer: AvroSchema, payload: bytes, reader: AvroSchema | None = None) -> bool:
    try:
        decoded(AvroEventDecoder(writer, ReadAs(reader)), payload)
    except (DecodeError, BadFrameError):
        return False
    return True


@pytest.mark.parametrize("name", CORRUPT)
def test_corrupt_payloads_are_refused_alone_and_in_a_batch(name: str) -> None:
    kind, payload = CORRUPT[name]
    for writer, whole in ((schema(kind), payload), (tree_of(kind), payload + b"\x00")):
        assert not is_read_alone(writer, whole)
        assert not is_read_in_a_batch(writer, whole)


@pytest.mark.parametrize("name", [name for name in CORRUPT if "decimal" not in name])
def test_corrupt_payloads_are_refused_in_fields_that_are_not_requested(name: str) -> None:
    kind, payload = CORRUPT[name]
    reader = parse(json.dumps({"type": "record", "name": "R", "fields": []}))
    assert not is_read_alone(schema(kind), payload, reader)
    assert not is_read_in_a_batch(schema(kind), payload, reader)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("long", b"\xff" * 9 + b"\x01"),
        ("long", b"\xfe" + b"\xff" * 8 + b"\x01"),
        ("boolean", b"\x01"),
        (ENUM, b"\x02"),
        (DECIMAL, b"\x02\x63"),
        (DECIMAL, b"\x02\x9d"),
        (NOTHINGS, b"\x80\x80\x80\x01\x00"),  # as many as the limit
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x00"),  # a block with its size
    ],
)
def test_what_is_just_sound_is_read_alone_and_in_a_batch(kind: Any, payload: bytes) -> None:
    for writer, whole in ((schema(kind), payload), (tree_of(kind), payload + b"\x00")):
        assert is_read_alone(writer, whole)
        assert is_read_in_a_batch(writer, whole)


def test_trees_are_read_as_deep_alone_as_in_a_batch() -> None:
    writer = tree_of("int")
    for levels in (NESTING_MAX, NESTING_MAX + 1):
        payload = b"\x02\x02" * (levels - 1) + b"\x02\x00"
        assert is_read_alone(writer, payload) == (levels <= NESTING_MAX)
        assert is_read_in_a_batch(writer, payload) == (levels <= NESTING_MAX)


def test_single_events_have_the_limits_of_batches() -> None:
    assert USUAL_LIMITS.items_max == ITEMS_MAX
    assert USUAL_LIMITS.nesting_max == NESTING_MAX
    assert USUAL_LIMITS.value_bytes_max == EVENT_BYTES_MAX


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] | None = None
    for _ in range(levels):
        value = {"f": 1, "next": value}
    return {"t": value}


def test_what_is_nested_too_deep_to_be_read_is_not_written() -> None:
    writer = tree_of("int")
    payload = AvroEventEncoder(writer).encode(nested(NESTING_MAX))[0]
    assert decoded(AvroEventDecoder(writer, ReadAs()), payload) == nested(NESTING_MAX)
    assert AvroRowsEncoder(writer).encode([nested(NESTING_MAX)], b"")[0].tobytes() == payload
    for levels in (NESTING_MAX + 1, 5_000):
        with pytest.raises(InvalidValueError, match=f"more than {NESTING_MAX} deep"):
            AvroEventEncoder(writer).encode(nested(levels))
        with pytest.raises(
            InvalidValueError, match="row 1: values are nested deeper than the limit"
        ):
            AvroRowsEncoder(writer).encode([nested(1), nested(levels)], b"")


@pytest.mark.parametrize("item", ["int", "null"])
def test_what_has_too_many_items_to_be_read_is_not_written(item: str) -> None:
    writer = schema({"type": "array", "items": item})
    value = None if item == "null" else 7
    most, beyond = ({"f": [value] * count} for count in (ITEMS_MAX, ITEMS_MAX + 1))
    payload = AvroEventEncoder(writer).encode(most)[0]
    assert is_read_alone(writer, payload)
    assert is_read_in_a_batch(writer, payload)
    with pytest.raises(InvalidValueError, match=f"more than {ITEMS_MAX} items"):
        AvroEventEncoder(writer).encode(beyond)
    for rows in ([beyond], pa.RecordBatch.from_pylist([beyond])):
        with pytest.raises(
            InvalidValueError, match="row 0: an array or map has more items than the limit"
        ):
            AvroRowsEncoder(writer).encode(rows, b"12345")


def test_what_has_too_many_bytes_to_be_read_is_not_written() -> None:
    writer = schema("string")
    with pytest.raises(InvalidValueError, match=f"{EVENT_BYTES_MAX} at most"):
        AvroEventEncoder(writer).encode({"f": "x" * EVENT_BYTES_MAX})
    with pytest.raises(InvalidValueError, match="row 0: the payload is larger than the limit"):
        AvroRowsEncoder(writer).encode([{"f": "x" * EVENT_BYTES_MAX}], b"")


NO_VALUES: dict[str, tuple[Any, Any]] = {
    "a date beyond the year 9999": ({"type": "int", "logicalType": "date"}, 2_932_897),
    "a time below zero": ({"type": "int", "logicalType": "time-millis"}, -1),
    "a year beyond 9999": ({"type": "long", "logicalType": "timestamp-millis"}, 10**15),
    "no UUID": ({"type": "string", "logicalType": "uuid"}, "abc"),
    "a decimal of three digits": (DECIMAL, b"\x00\x64"),
}


@pytest.mark.parametrize("name", NO_VALUES)
@pytest.mark.parametrize("is_optional", [False, True])
def test_what_is_no_value_of_its_logical_type_is_not_written(name: str, is_optional: bool) -> None:
    kind, value = NO_VALUES[name]
    writer = schema(["null", kind] if is_optional else kind)
    with pytest.raises(InvalidValueError):
        AvroEventEncoder(writer).encode({"f": value})
    with pytest.raises(InvalidValueError, match="row 0"):
        AvroRowsEncoder(writer).encode([{"f": value}], b"")
    if name.startswith("a decimal"):
        return  # a column of decimals has none such
    base: Any = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}[kind["type"]]
    column = pa.array([value], base).view(
        avro_batches.AvroBatchDecoder(writer).schema.field("f").type
    )
    with pytest.raises(InvalidValueError, match="row 0"):
        AvroRowsEncoder(writer).encode(pa.RecordBatch.from_arrays([column], names=["f"]), b"")
