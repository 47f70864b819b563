"""The same Avro bytes have one meaning, read one by one or as a batch: the reader's."""

import datetime as dt
import json
import struct
import uuid
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.avro import parse
from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.schemas.avro.types import logical_type
from penstock.serde.avro.sizes import self_containing

SEEDS = st.integers(0, 2**32)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def record(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}


DATE = logical("int", "date")
MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
LOCAL_MILLIS = logical("long", "local-timestamp-millis")
TIME_MILLIS, TIME_MICROS = logical("int", "time-millis"), logical("long", "time-micros")
UUID = logical("string", "uuid")
SEPTEMBER = (2023, 9, 27, 18, 57, 59)
MOMENT = dt.datetime(*SEPTEMBER, 597847, tzinfo=dt.UTC)
CASES: dict[str, tuple[Any, Any, Any, Any]] = {  # writer, reader, written as plain Avro, read
    "date as timestamp": (DATE, MILLIS, 19_627, "unresolvable"),
    "date as local timestamp": (DATE, LOCAL_MILLIS, 19_627, dt.datetime(2023, 9, 27)),  # noqa: DTZ001 - a local time has no zone
    "date as int": (DATE, "int", 19_627, 19_627),
    "int as date": ("int", DATE, 19_627, dt.date(2023, 9, 27)),
    "decimal of more places": (decimal(9, 2), decimal(9, 4), b"\x04\xd2", Decimal("12.3400")),
    "decimal of fewer places": (decimal(9, 4), decimal(9, 2), b"\x04\xb0", Decimal("0.12")),
    "decimal that loses a digit": (decimal(9, 4), decimal(9, 2), b"\x04\xd2", "unresolvable"),
    "decimal of fewer digits": (decimal(9, 2), decimal(3, 2), b"\x04\xd2", "unresolvable"),
    "decimal as bytes": (decimal(9, 2), "bytes", b"\x04\xd2", b"\x04\xd2"),
    "bytes as decimal": ("bytes", decimal(9, 2), b"\x04\xd2", Decimal("12.34")),
    "bytes beyond a decimal": ("bytes", decimal(3, 2), b"\x04\xd2", "undecodable"),
    "micros as millis": (
        *(MICROS, MILLIS, 1_695_841_079_597_847),
        MOMENT.replace(microsecond=597000),
    ),
    "millis as micros": (
        *(MILLIS, MICROS, 1_695_841_079_597),
        MOMENT.replace(microsecond=597000),
    ),
    "timestamp as local timestamp": (MILLIS, LOCAL_MILLIS, 1_695_841_079_597, "unresolvable"),
    "local timestamp as timestamp": (LOCAL_MILLIS, MILLIS, 1_695_841_079_597, "unresolvable"),
    "timestamp as long": (MILLIS, "long", 1_695_841_079_597, 1_695_841_079_597),
    "timestamp as double": (MILLIS, "double", 1_695_841_079_597, 1_695_841_079_597.0),
    "long as timestamp": ("long", MICROS, 1_695_841_079_597_847, MOMENT),
    "time of day in micros": (TIME_MILLIS, TIME_MICROS, 3_600_001, dt.time(1, 0, 0, 1000)),
    "time of day as timestamp": (TIME_MICROS, MICROS, 3_600_001, "unresolvable"),
    "a time below zero": (TIME_MILLIS, TIME_MILLIS, -5, "undecodable"),
    "a year beyond 9999": (MILLIS, MILLIS, 10**15, "undecodable"),
    "a date before the year 1": (DATE, DATE, -719_163, "undecodable"),
    "no uuid": (UUID, UUID, "6f1d7a40", "undecodable"),
    "string as uuid": (
        *("string", UUID, "6F1D7A40-0c1e-4d6f-9a3b-5f1c2d3e4f50"),
        uuid.UUID("6f1d7a40-0c1e-4d6f-9a3b-5f1c2d3e4f50"),
    ),
    "uuid as decimal": (UUID, decimal(9, 2), "a", "unresolvable"),
    "decimal beyond 76 digits": (decimal(99, 2), decimal(99, 2), b"\x04\xd2", b"\x04\xd2"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reader_decides_about_a_logical_type(case: str, oracle: Any, reading: Any) -> None:
    writer, reader, written, expected = CASES[case]
    payloads = oracle.encoded(oracle.parse(record(writer)), [{"f": written}])
    read = reading.readings(reading.avro(record(writer)), reading.avro(record(reader)), payloads)
    assert read.reasons == read.reasons_alone
    if isinstance(expected, str):
        assert read.reasons == [expected]
    else:
        assert read.alone == [{"f": expected}]
        assert values_of(parse(json.dumps(record(reader))).root, read, oracle) == read.alone


def test_an_empty_array_is_read_by_a_reader_of_other_items(oracle: Any, reading: Any) -> None:
    writer = record({"type": "array", "items": {"type": "map", "values": "int"}})
    reader = record({"type": "array", "items": {"type": "map", "values": "string"}})
    values = [{"f": []}, {"f": [{}]}, {"f": [{"a": 1}]}]
    payloads = oracle.encoded(oracle.parse(writer), values)
    read = reading.readings(reading.avro(writer), reading.avro(reader), payloads)
    assert read.alone[:2] == read.rows()[:2] == values[:2]
    assert read.reasons == read.reasons_alone == [None, None, "unresolvable"]


def test_a_null_of_a_recursive_type_is_null(reading: Any) -> None:
    fields = [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "N"]}]
    tree = reading.avro({"type": "record", "name": "N", "fields": fields})
    read = reading.readings(tree, tree, [b"\x02\x00", b"\x02\x02\x04\x00"])
    assert read.alone[0] == {"v": 1, "next": None}
    assert read.rows() == [{"v": 1, "next": None}, {"v": 1, "next": '{"v": 2, "next": null}'}]


def test_bytes_alone_are_written_without_their_length(oracle: Any, reading: Any) -> None:
    plain, text = reading.avro("bytes"), reading.avro("string")
    payloads = [b"", b"abc", b"\xff"]
    read = reading.readings(plain, plain, payloads)
    assert read.alone == read.batch.column("value").to_pylist() == payloads
    read = reading.readings(plain, text, payloads)
    assert read.alone[:2] == read.batch.column("value").to_pylist()[:2] == ["", "abc"]
    assert read.reasons == read.reasons_alone == [None, None, "undecodable"]


@given(seed=SEEDS)
@settings(max_examples=150, deadline=None)
def test_generated_events_and_readers_mean_the_same(seed: int, oracle: Any, reading: Any) -> None:
    maker = oracle.maker(seed, wild=True)
    writer = maker.tree() if seed % 3 == 0 else maker.record() if seed % 8 else maker.schema()
    reader = writer if seed % 4 == 0 else Changer(seed, oracle).reader(writer)
    schema = oracle.parse(writer)
    payloads = oracle.encoded(schema, [maker.value(schema.root) for _ in range(8)])
    if seed % 5 == 0 and reader is writer:
        payloads += [maker.damaged(one) for one in payloads]
    if schema.root.kind is AvroType.BYTES:
        payloads = [b"", b"raw", b"\xff"]
    read = reading.readings(reading.avro(writer), reading.avro(reader), payloads)
    assert read.reasons == read.reasons_alone
    shown = values_of(oracle.parse(reader).root, read, oracle)
    for one, row, reason in zip(read.alone, shown, read.reasons, strict=True):
        if reason is None:
            assert comparable(one) == comparable(row)


class Changer:
    """A reader's schema for what a schema wrote: the usual changes, and others of logical types."""

    def __init__(self, seed: int, oracle: Any) -> None:
        self._evolver = oracle.evolver(seed)
        self._random = self._evolver.random
        self._others = [*oracle.logical, *oracle.primitives]

    def reader(self, schema: Any) -> Any:
        return self._evolver.reader(self._changed(schema))

    def _changed(self, schema: Any) -> Any:
        if isinstance(schema, dict) and schema["type"] == "record":
            fields = [
                {**one, "type": self._changed(one["type"])} if "default" not in one else one
                for one in schema["fields"]
            ]
            return {**schema, "fields": fields}
        if isinstance(schema, dict) and schema["type"] == "array":
            return {**schema, "items": self._changed(schema["items"])}
        is_scalar = schema in self._others
        return self._like(schema) if is_scalar and self._random.random() < 0.5 else schema

    def _like(self, schema: Any) -> Any:
        """Another meaning of the same kind of value, mostly."""
        kind = schema if isinstance(schema, str) else schema["type"]
        kinds = (kind, "long") if kind == "int" else (kind,)
        alike = [
            one for one in self._others if (one if isinstance(one, str) else one["type"]) in kinds
        ]
        return self._random.choice(alike if self._random.random() < 0.9 else self._others)


def values_of(root: Node, read: Any, oracle: Any) -> list[Any]:
    """The rows of a batch as single reading shows them, by the reader's schema."""
    rows = oracle.rows_of(read.batch)
    if not isinstance(root, Record):
        return [_column(root, row["value"], oracle) for row in rows]
    return [
        {field.name: _column(field.type, row[field.name], oracle) for field in root.fields}
        for row in rows
    ]


def _column(node: Node, cell: Any, oracle: Any) -> Any:
    if cell is not None and self_containing(node):
        return _value(node, json.loads(cell), in_json=True)
    return None if cell is None else _value(node, cell, in_json=False)


def _value(node: Node, cell: Any, *, in_json: bool) -> Any:
    if cell is None:
        return None
    if isinstance(node, Union):
        return _member(node, cell, in_json=in_json)
    if isinstance(node, Record | Map):
        assert isinstance(cell, dict)
    if isinstance(node, Array):
        assert isinstance(cell, list)
    if isinstance(node, Record):
        assert cell.keys() == node.by_name.keys()
        return {
            field.name: _value(field.type, cell[field.name], in_json=in_json)
            for field in node.fields
        }
    if isinstance(node, Array):
        return [_value(node.items, one, in_json=in_json) for one in cell]
    if isinstance(node, Map):
        return {key: _value(node.values, one, in_json=in_json) for key, one in cell.items()}
    if in_json and node.kind in (AvroType.BYTES, AvroType.FIXED):
        cell = cell.encode("latin-1")
        assert not isinstance(node, Fixed) or len(cell) == node.size
    return _scalar(node, cell)


def _member(node: Union, cell: Any, *, in_json: bool) -> Any:
    values = [branch for branch in node.branches if branch.kind is not AvroType.NULL]
    if len(values) == 1:
        return _value(values[0], cell, in_json=in_json)
    if not in_json:
        is_set = [branch for branch in values if cell[branch.full_name] is not None]
        return _value(is_set[0], cell[is_set[0].full_name], in_json=False) if is_set else None
    return OneOf(values, cell)


class OneOf:
    """A union's value in JSON, which does not say its branch: equal to what any of them makes."""

    def __init__(self, branches: list[Node], cell: Any) -> None:
        self.candidates = []
        for branch in branches:
            with suppress(TypeError, ValueError, AttributeError, AssertionError):
                self.candidates.append(comparable(_value(branch, cell, in_json=True)))

    def __eq__(self, other: object) -> bool:
        return any(one == other for one in self.candidates)

    def __hash__(self) -> int:
        raise TypeError("only compared")


def _scalar(node: Node, cell: Any) -> Any:
    if node.kind in (AvroType.FLOAT, AvroType.DOUBLE):
        if isinstance(cell, bytes):  # their bits
            cell = struct.unpack("<f" if node.kind is AvroType.FLOAT else "<d", cell)[0]
        return float(cell)
    found = logical_type(node)
    name = "" if found is None else found.name
    if found is not None and name == "decimal" and found.precision <= 76:
        number = int.from_bytes(cell, "big", signed=True) if isinstance(cell, bytes) else cell
        return Decimal(number).scaleb(-found.scale, Context(prec=100))
    if name == "uuid" and node.kind is AvroType.STRING:
        return uuid.UUID(cell)
    if name == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=cell)
    head, _, unit = name.rpartition("-")
    if not head or unit not in ("millis", "micros"):
        _check_kind(node, cell)
        return cell
    moment = EPOCH + dt.timedelta(microseconds=cell * (1000 if unit == "millis" else 1))
    if head == "time":
        return moment.time()
    return moment.replace(tzinfo=None) if head.startswith("local") else moment


def _check_kind(node: Node, cell: Any) -> None:
    """Of the branches of a union in JSON, only the one it is."""
    kinds: dict[AvroType, tuple[type, ...]] = {
        AvroType.BOOLEAN: (bool,),
        AvroType.INT: (int,),
        AvroType.LONG: (int,),
        AvroType.STRING: (str,),
    }
    is_of = type(cell) in kinds.get(node.kind, (type(cell),))
    assert is_of
    assert not isinstance(node, Enum) or cell in node.symbols


def comparable(value: Any) -> Any:
    """NaN equals itself, and -0.0 is not 0.0."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, float):
        return repr(value)
    return value
