"""Rows to JSON: all at once as one by one, dicts as `json` has them and columns as dicts."""

import datetime
import decimal
import enum
import json
import math
import struct
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.json import JsonSchema, parse
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.json.arrow_values import NotPlain, values_of
from penstock.serde.json.batch import rows_of
from penstock.serde.json.columns import JsonRowsEncoder
from penstock.serde.json.event import JsonEventEncoder
from penstock.serde.json.value_types import columns_of

PREFIX = b"\x00\n\x00\n\x07"  # with what ends a line in it
ANYTHING = parse("true")
TEXTS = st.text(max_size=6) | st.sampled_from(['"', "\\", "\n\r\t\b\f", "\x00\x1f\x7f", "\u2028🎉"])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


STRANGE = st.sampled_from(
    [
        math.nan,
        math.inf,
        (1, 2),
        {1, 2},
        {1: 2},
        {None: 2},
        {True: [1e16]},
        b"bytes",
        "\ud800",
        decimal.Decimal("1.5"),
        datetime.date(2026, 1, 2),
        Colour.RED,
        Level.LOW,
        object(),
    ]
)
VALUES = PLAIN | STRANGE | st.lists(STRANGE, max_size=2) | st.dictionaries(TEXTS, STRANGE)

OBJECT = {
    "type": "object",
    "required": ["flag", "must"],
    "properties": {
        "flag": {"type": "boolean"},
        "must": {"type": ["null", "integer"]},
        "number": {"type": ["null", "number"]},
        "text": {"type": ["null", "string"], "maxLength": 6},
        'odd " name': {"type": "string"},
        "list": {"type": "array", "items": {"type": ["null", "integer"]}},
        "struct": {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "deep": {"type": "array", "items": {"$ref": "#/definitions/leaf"}},
            },
        },
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": True,
    },
    "definitions": {"leaf": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
INTEGERS = st.integers(-(2**63), 2**63 - 1)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
COLUMNS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "must": (pa.int64(), st.none() | INTEGERS),
    "number": (pa.float64(), st.none() | DOUBLES),
    "text": (pa.string(), st.none() | TEXTS),
    "list": (
        pa.list_(pa.int64()),
        st.none() | st.lists(st.none() | INTEGERS, max_size=3),
    ),
    "struct": (
        pa.struct([("a", pa.string()), ("deep", pa.list_(pa.struct([("n", pa.int64())])))]),
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "a": TEXTS,
                "deep": st.lists(
                    st.none() | st.fixed_dictionaries({}, optional={"n": INTEGERS}), max_size=3
                ),
            },
        ),
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        st.none() | st.dictionaries(TEXTS, DOUBLES, max_size=3).map(lambda one: [*one.items()]),
    ),
    "any": (pa.string(), st.none() | PLAIN.map(json.dumps)),
}


@st.composite
def batches(draw: Any) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, min_size=1))
    count = draw(st.integers(0, 6))
    columns: list[Any] = []
    for name in names:
        kind, cells = COLUMNS[name]
        some = draw(st.lists(cells, min_size=count, max_size=count))
        columns.append(pa.array(some, kind))
    whole = pa.RecordBatch.from_arrays(columns, names=names)
    return whole.slice(draw(st.integers(0, 2)), draw(st.integers(0, 6)))


def payloads(written: tuple[Any, Any]) -> list[bytes]:
    buffer, offsets = written
    whole = buffer.tobytes()
    assert len(whole) == offsets[-1]
    return [whole[start:end] for start, end in pairwise(offsets)]


def one_by_one(schema: JsonSchema, rows: list[Any]) -> Any:
    one = JsonEventEncoder(schema)
    made = []
    for row, value in enumerate(rows):
        try:
            made.append(PREFIX + one.encode(value)[0])
        except InvalidValueError as wrong:
            return f"row {row}: {wrong}"
    return made


def at_once(schema: JsonSchema, rows: Any) -> Any:
    try:
        return payloads(JsonRowsEncoder(schema).encode(rows, PREFIX))
    except InvalidValueError as wrong:
        return str(wrong)


def as_json_has_it(value: Any) -> Any:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError):
        return None
    return canonical(json.loads(text))


def canonical(value: Any) -> str:
    """A value so that 1 is not 1.0, and no zero another."""
    if isinstance(value, float):
        return struct.pack("<d", value).hex()
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name!r}:{canonical(one)}' for name, one in value.items())}}}"
    return repr(value)


@given(rows=st.lists(PLAIN, max_size=6))
@settings(max_examples=150, deadline=None)
def test_lines_are_what_single_events_are(rows: list[Any]) -> None:
    written = at_once(ANYTHING, rows)
    assert written == one_by_one(ANYTHING, rows)
    read = [json.loads(one.removeprefix(PREFIX)) for one in written]
    assert list(map(canonical, read)) == list(map(canonical, rows))


@given(rows=st.lists(VALUES, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_what_json_refuses_is_refused_and_the_rest_says_the_same(rows: list[Any]) -> None:
    written = at_once(ANYTHING, rows)
    assert written == one_by_one(ANYTHING, rows)
    for row in rows:
        only = at_once(ANYTHING, [row])
        wanted = as_json_has_it(row)
        if wanted is None:
            assert isinstance(only, str)
        elif isinstance(only, list):  # the validator refuses keys that are no strings as well
            assert canonical(json.loads(only[0].removeprefix(PREFIX))) == wanted


def test_the_first_row_that_the_schema_does_not_allow_is_named() -> None:
    schema = parse(json.dumps(OBJECT))
    good = {"flag": True, "must": None}
    with pytest.raises(InvalidValueError, match=r"^row 2: .*must.*required"):
        JsonRowsEncoder(schema).encode([good, good, {"flag": True}, {}], PREFIX)
    with pytest.raises(InvalidValueError, match=r"^row 1: Out of range float"):
        JsonRowsEncoder(schema).encode([good, {**good, "number": math.nan}], PREFIX)
    assert payloads(JsonRowsEncoder(schema).encode((good,), b"")) == [b'{"flag":true,"must":null}']


@given(batch=batches())
@settings(max_examples=200, deadline=None)
def test_columns_are_written_as_their_rows_would_be(batch: pa.RecordBatch) -> None:
    schema = parse(json.dumps(OBJECT))
    known = columns_of(schema)
    rows = rows_of(batch, known)
    assert list(map(canonical, values_of(batch, known))) == list(map(canonical, rows))
    assert at_once(schema, batch) == one_by_one(schema, rows)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("number", pa.array([math.nan])),
        ("number", pa.array([1.5, -math.inf])),
        ("text", pa.array([datetime.date(2026, 1, 2)])),
        ("text", pa.array([decimal.Decimal("1.5")])),
        ("text", pa.array([b"bytes"])),
        ("map", pa.array([[("k", None)]], pa.map_(pa.string(), pa.float64()))),
        ("map", pa.array([[(1, 1.0)]], pa.map_(pa.int64(), pa.float64()))),
        ("any", pa.array(["NaN"])),
        ("any", pa.array([r'"\ud800"'])),
    ],
)
def test_what_is_not_plain_is_left_to_the_rows(name: str, cells: Any) -> None:
    schema = parse(json.dumps({**OBJECT, "required": []}))
    known = columns_of(schema)
    batch = pa.RecordBatch.from_arrays([cells], names=[name])
    with pytest.raises(NotPlain):
        values_of(batch, known)
    assert at_once(schema, batch) == one_by_one(schema, rows_of(batch, known))


def test_columns_of_fewer_bits_and_of_dictionaries_are_plain() -> None:
    schema = parse(json.dumps({**OBJECT, "required": []}))
    columns: dict[str, Any] = {
        "number": pa.array([0.1, None], pa.float32()),
        "must": pa.array([None, 2**64 - 1], pa.uint64()),
        "text": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        'odd " name': pa.array(["x", "y"]),
        "any": pa.array([None, '{"a": null}'], pa.large_string()),
        "list": pa.array([[1], None], pa.large_list(pa.int8())),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    assert list(map(canonical, values_of(batch, columns_of(schema)))) == [
        canonical({"number": 0.10000000149011612, "text": "a", 'odd " name': "x", "list": [1]}),
        canonical({"must": 2**64 - 1, 'odd " name': "y", "any": {"a": None}}),
    ]


def test_a_key_that_comes_twice_in_a_map_is_refused_as_before() -> None:
    twice = pa.array([[("k", 1.0), ("k", 2.0)]], pa.map_(pa.string(), pa.float64()))
    batch = pa.RecordBatch.from_arrays([twice], names=["map"])
    with pytest.raises(KeyError):
        JsonRowsEncoder(parse(json.dumps(OBJECT))).encode(batch, PREFIX)


def test_whole_values_are_a_column_of_text() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["[1, 2]", None, '"a\\nb"']})
    assert at_once(ANYTHING, batch) == [PREFIX + one for one in (b"[1,2]", b"null", b'"a\\nb"')]
    nothing: Any = pa.Array.from_buffers(pa.struct([]), 2, [None], children=[])
    empty = pa.RecordBatch.from_struct_array(nothing)
    assert at_once(parse(json.dumps({**OBJECT, "required": []})), empty) == [PREFIX + b"{}"] * 2
    with pytest.raises(ValueError, match="no property 'colour'"):
        JsonRowsEncoder(ANYTHING).encode(pa.RecordBatch.from_pydict({"colour": ["red"]}), b"")


def test_a_single_event_is_written_without_loading_a_kernel() -> None:
    program = "import sys, penstock.serde.json.event; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
