"""Ints of more than 32 bits are no ints, wherever in an event they are."""

import json
from typing import Any

import pytest

from penstock.client.avro_event import AvroDecoder
from penstock.client.codec import ReadAs
from penstock.client.errors import Reason, Undecodable
from penstock.client.frame import BadFrame, Frame, SchemaId
from penstock.schemas.avro import AvroSchema, parse

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


def decoded(decoder: AvroDecoder, payload: bytes) -> Any:
    content = b"\0\0\0\0\1" + payload
    return decoder.decode(Frame(SchemaId(1), content, 5, content))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("more", [False, True])
def test_an_int_has_32_bits(shape: str, more: bool) -> None:
    kind, before, after = SHAPES[shape]
    decoder = AvroDecoder(schema(kind), ReadAs(schema(kind, more=more)))
    assert "-2147483648" in str(decoded(decoder, before + LEAST + after))
    with pytest.raises((Undecodable, BadFrame)) as refused:
        decoded(decoder, before + BEYOND + after)
    wrong: Any = refused.value
    assert (wrong.kind if isinstance(wrong, BadFrame) else wrong.reason) is Reason.UNDECODABLE


@pytest.mark.parametrize("wider", ["long", "double", ["null", "long"]])
def test_an_int_that_is_read_as_something_wider_still_has_32_bits(wider: Any) -> None:
    decoder = AvroDecoder(schema("int"), ReadAs(schema(wider)))
    assert decoded(decoder, LEAST) == {"f": -(2**31)}
    with pytest.raises(Undecodable, match="32 bits"):
        decoded(decoder, BEYOND)


def test_longs_have_more() -> None:
    assert decoded(AvroDecoder(schema("long"), ReadAs()), BEYOND) == {"f": 2**31}
    assert decoded(AvroDecoder(schema(["string", "long"]), ReadAs()), b"\x02" + BEYOND) == {
        "f": 2**31
    }
