"""JSON payloads to Arrow: never another value than one event's reader would see."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.compiled import Int64s, read_only
from penstock.schemas.json import JsonSchema, parse
from penstock.serde.errors import DecodeError, Reason
from penstock.serde.event_codec import ReadAs
from penstock.serde.frame import Frame, SchemaId
from penstock.serde.json.batch import JsonBatchDecoder
from penstock.serde.json.event import JsonEventDecoder as OneDecoder
from penstock.serde.json.types import arrow_type
from penstock.serde.json.value_types import columns_of

NUMBERS = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
ROW = {
    "type": "object",
    "properties": {
        "integer": {"type": "integer"},
        "number": {"type": ["number", "null"]},
        "text": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "struct": {"type": "object", "properties": {"a": {"type": "string"}}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "any": True,
    },
}
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "integer": st.integers(-(2**65), 2**65) | st.floats(-5, 5).map(float),
        "number": NUMBERS | st.none(),
        "text": st.text(max_size=5) | st.none() | st.integers(),
        "flag": st.booleans(),
        "list": st.lists(NUMBERS, max_size=3),
        "struct": st.dictionaries(st.sampled_from("ab"), st.text(max_size=3)),
        "map": st.dictionaries(st.text(max_size=3), NUMBERS, max_size=3),
        "any": VALUES,
    },
)


def joined(payloads: list[bytes]) -> tuple[Any, Int64s, Int64s]:
    sizes = np.array([len(one) for one in payloads], dtype=np.int64)
    ends = np.cumsum(sizes)
    return read_only(b"".join(payloads)), ends - sizes, ends


def one_by_one(schema: JsonSchema, payload: bytes) -> Any:
    frame = Frame(SchemaId(1), payload, 0, payload)
    try:
        return OneDecoder(schema, ReadAs()).decode(frame)
    except DecodeError as refused:
        return refused.reason


def as_one_has_it(name: str, kind: Any, cell: Any) -> Any:
    if cell is None:
        return None
    if name == "any":
        return json.loads(cell)
    return dict(cell) if pa.types.is_map(kind) else cell


@given(rows=st.lists(ROWS, min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_columns_are_what_one_event_says_or_the_row_is_wrong(rows: list[Any]) -> None:
    schema = parse(json.dumps(ROW))
    payloads = [json.dumps(row).encode() for row in rows]
    batch, wrongs = JsonBatchDecoder(schema).decode(*joined(payloads))
    batch.validate(full=True)
    for index, (payload, cells) in enumerate(zip(payloads, batch.to_pylist(), strict=True)):
        wanted = one_by_one(schema, payload)
        if index in wrongs or isinstance(wanted, Reason):
            assert wrongs[index][0] is wanted
            assert set(cells.values()) == {None}
            continue
        for name, cell in cells.items():
            found = as_one_has_it(name, batch.schema.field(name).type, cell)
            expected = wanted.get(name)
            if name == "struct" and expected is not None:
                expected = {"a": expected.get("a")}
            assert found == expected


@given(st.lists(st.binary(max_size=12) | VALUES.map(lambda one: json.dumps(one).encode())))
@settings(max_examples=200, deadline=None)
def test_what_is_no_json_is_refused_as_it_is_one_by_one(payloads: list[bytes]) -> None:
    schema = parse("true")
    batch, wrongs = JsonBatchDecoder(schema).decode(*joined(payloads))
    for index, (payload, cell) in enumerate(zip(payloads, batch["value"].to_pylist(), strict=True)):
        wanted = one_by_one(schema, payload)
        if index in wrongs or isinstance(wanted, Reason):
            assert wrongs[index][0] is wanted
        elif wanted is None:
            assert cell is None
        else:
            assert json.loads(str(cell)) == wanted


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string", "format": "date-time"}, pa.string()),
        ({"type": ["string", "integer"]}, None),
        ({"enum": ["a", "b"]}, pa.string()),
        ({"enum": ["a", None]}, pa.string()),
        ({"enum": ["a", 1]}, None),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"const": 1}, pa.int64()),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, pa.string()),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, pa.string()),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, pa.int64()),
        (
            {"allOf": [{"properties": {"a": {"const": "b"}}}, {"type": "object"}]},
            pa.struct([("a", pa.string())]),
        ),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, pa.int64()),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, None),
        ({"type": "array"}, None),
        ({"type": "array", "items": [{"type": "string"}]}, None),
        ({"$ref": "#/definitions/n"}, pa.list_(pa.float64())),
        ({"$ref": "#"}, None),
        ({"type": "object"}, None),
        ({"type": "object", "additionalProperties": False}, None),
        ({"type": "object", "patternProperties": {"a": {}}, "additionalProperties": {}}, None),
    ],
)
def test_only_what_a_schema_asserts_is_a_type(schema: Any, kind: Any) -> None:
    document = {
        "type": "object",
        "properties": {"x": schema},
        "definitions": {"n": {"type": "array", "items": {"type": "number"}}},
    }
    [column] = columns_of(parse(json.dumps(document))).columns
    assert (None if column.type is None else arrow_type(column.type)) == kind


def test_a_schema_that_is_within_itself_many_times_is_text_at_once() -> None:
    document = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(20)}}
    assert {column.type for column in columns_of(parse(json.dumps(document))).columns} == {None}


def test_columns_must_be_there_and_once() -> None:
    schema = parse(json.dumps(ROW))
    with pytest.raises(ValueError, match="no column 'colour'"):
        JsonBatchDecoder(schema, ["colour"])
    with pytest.raises(ValueError, match="twice"):
        JsonBatchDecoder(schema, ["any", "any"])
    assert JsonBatchDecoder(schema, []).decode(*joined([b"{}", b"!"]))[0].num_rows == 2
