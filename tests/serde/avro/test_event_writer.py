"""Values that are exactly what a schema asks for are written as fastavro would, without it."""

from collections import OrderedDict
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serde.avro.event import AvroEventEncoder
from penstock.serde.avro.event_writer import EventWriter, NotExactError
from penstock.serde.avro.fastavro_writer import FastavroWriter, RefusedValueError
from penstock.serde.event_codec import InvalidValueError

SEEDS = st.integers(0, 2**32)
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC)
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIXED_DECIMAL = {**DECIMAL, "type": "fixed", "name": "D", "size": 8}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


WIDE = [
    "string",
    "null",
    "boolean",
    "long",
    "bytes",
    {"type": "array", "items": "int"},
    {"type": "record", "name": "G", "fields": [{"name": "g", "type": "int"}]},
]
EXACT: list[tuple[Any, Any]] = [
    ("null", None),
    ("boolean", True),
    ("int", -(2**31)),
    ("long", 2**63 - 1),
    ("float", 1.5),
    ("float", 2**24),
    ("double", float("inf")),
    ("double", -(2**53)),
    ("bytes", b"\x00" * 70),
    ("bytes", bytearray(b"ab")),
    ("string", "ä" * 40),
    (ENUM, "B"),
    ({"type": "fixed", "name": "F", "size": 2}, b"ab"),
    ({"type": "array", "items": "int"}, list(range(100))),
    ({"type": "map", "values": "string"}, {"k": "v"}),
    (["null", "string"], None),
    (["string", "null"], "text"),
    (["null"], None),
    (["long"], 5),
    *((WIDE, value) for value in (None, "text", 2**40, True, 1, [1, 2], {"g": 1})),
    (["float", "string"], 0.5),
    (DECIMAL, Decimal("-1234.5")),
    (FIXED_DECIMAL, Decimal("0.01")),
    (logical("string", "uuid"), UUID(int=7)),
    (logical("string", "uuid"), str(UUID(int=7))),
    (logical("int", "date"), date(2024, 2, 29)),
    (logical("int", "date"), 19782),
    (logical("int", "time-millis"), time(1, 2, 3, 4000)),
    (logical("long", "time-micros"), time(23, 59, 59, 999999)),
    (logical("long", "timestamp-millis"), MOMENT),
    (logical("long", "timestamp-micros"), MOMENT),
    (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None)),
]


@pytest.mark.parametrize(("kind", "value"), EXACT)
def test_exact_values_are_written_as_fastavro_writes_them(
    kind: Any, value: Any, oracle: Any
) -> None:
    for schema, given_value in (
        (oracle.parse(record_of(kind)), value),
        (oracle.parse(record_of({"type": "array", "items": kind})), [value, value]),
    ):
        written = EventWriter(schema.root).write({"f": given_value})
        assert written == FastavroWriter(schema).write({"f": given_value})


OTHERS: list[tuple[Any, Any]] = [
    ("int", True),
    ("int", 2**31),
    ("int", 1.0),
    ("long", 2**63),
    ("boolean", 1),
    ("string", b"text"),
    ("string", "\ud800"),
    ("bytes", "text"),
    ("float", "1.5"),
    ("float", 2**24 + 1),
    ("double", True),
    (ENUM, "C"),
    (ENUM, []),
    ({"type": "fixed", "name": "F", "size": 2}, b"abc"),
    ({"type": "array", "items": "int"}, (1, 2)),
    ({"type": "array", "items": "string"}, "text"),
    ({"type": "map", "values": "int"}, {1: 1}),
    (["null", "string"], 5),
    (["string"], None),
    (["int", "double"], 5),
    ([ENUM, "string"], "A"),
    (["string", {"type": "map", "values": "int"}], {"k": 1}),
    (["string", logical("int", "date")], "which branch"),
    (["string", "int"], True),
    (WIDE, b"ab"),
    ([{"type": "array", "items": ["null", "int"]}, "bytes"], b"\x01"),
    (DECIMAL, Decimal("0.001")),
    (DECIMAL, Decimal("12345.00")),
    (DECIMAL, b"\x01"),
    (logical("int", "date"), "2024-02-29"),
    (logical("int", "date"), 2**31 - 1),
    (logical("string", "uuid"), "no uuid"),
    (logical("long", "timestamp-millis"), datetime(2024, 1, 1)),  # noqa: DTZ001 - a value without a zone
]


@pytest.mark.parametrize(("kind", "value"), OTHERS)
def test_other_values_are_left_to_fastavro(kind: Any, value: Any, oracle: Any) -> None:
    schema = oracle.parse(record_of(kind))
    with pytest.raises(NotExactError):
        EventWriter(schema.root).write({"f": value})
    assert outcome(AvroEventEncoder(schema), value) == outcome(FastavroWriter(schema), value)


def outcome(writer: AvroEventEncoder | FastavroWriter, value: Any) -> Any:
    """The payload, or why there is none."""
    try:
        if isinstance(writer, FastavroWriter):
            return writer.write({"f": value})
        return writer.encode({"f": value})[0]
    except (InvalidValueError, RefusedValueError) as error:
        return str(error)


@pytest.mark.parametrize(
    "value", [OrderedDict(f=1), {"f": 1, "g": 2, "x": 3}, {"g": 2}, {"f": 1, "-type": "R"}, [1], 5]
)
def test_records_are_dicts_with_the_fields_of_the_schema(value: Any, oracle: Any) -> None:
    fields = [{"name": "f", "type": "int"}, {"name": "g", "type": "int", "default": 7}]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    with pytest.raises(NotExactError):
        EventWriter(schema.root).write(value)
    assert EventWriter(schema.root).write({"f": 1}) == b"\x02\x0e"
    assert EventWriter(schema.root).write({"g": 2, "f": 1}) == b"\x02\x04"


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_random_values_are_written_as_fastavro_does_or_left_to_it(seed: int, oracle: Any) -> None:
    maker = oracle.maker(seed)
    schema = oracle.parse(maker.record())
    exact, fastavro = EventWriter(schema.root), FastavroWriter(schema)
    for _ in range(5):
        row = maker.value(schema.root)
        try:
            written = exact.write(row)
        except NotExactError:
            continue
        assert written == fastavro.write(row)


def test_defaults_are_written_for_fields_that_are_left_out(oracle: Any) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int", "default": 3}]}
    fields = [
        {"name": "text", "type": "string", "default": "ä"},
        {"name": "none", "type": ["null", "int"], "default": None},
        {"name": "many", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "inner", "type": inner, "default": {}},
        {"name": "day", "type": logical("int", "date"), "default": 5},
    ]
    schema = oracle.parse({"type": "record", "name": "R", "fields": fields})
    assert EventWriter(schema.root).write({}) == FastavroWriter(schema).write({})
    deep = {"inner": {}, "text": "t"}
    assert EventWriter(schema.root).write(deep) == FastavroWriter(schema).write(deep)
