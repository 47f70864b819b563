"""The same JSON bytes have one meaning, read one by one or as a batch."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.json import parse
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.json.columns import JsonRowsEncoder
from penstock.serde.json.event import JsonEventEncoder
from penstock.serde.json.value_types import JsonColumns, ListOf, MapOf, ObjectOf, columns_of

NAMES = ("a", "b", "c")
INTEGERS = st.one_of(
    st.integers(-9, 9),
    st.sampled_from((2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1)),
)
NUMBERS = INTEGERS | st.sampled_from((0.5, 1.0, 1e17, 1e19, 0.30000000000000004))
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(("", "x", "y", "é", '"', "12e5"))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=5,
)
PLAIN_SCHEMAS = st.sampled_from(
    (
        *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null")),
        *({"type": ["null", kind]} for kind in ("string", "integer", "number")),
        *({"enum": ["x", "y"]}, {"enum": ["x", None]}, {"const": "x"}, {"enum": [1, 0.5]}),
        {"oneOf": [{"const": "x"}, {"const": "y"}]},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
        {"anyOf": [{"type": "integer"}, {"type": "number"}]},
        {"type": ["string", "integer"]},
        *({}, True),
        {"$ref": "#/definitions/named"},
        {"$ref": "#"},
    )
)


def objects(inner: Any) -> Any:
    properties = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3)
    return properties.map(lambda given: {"type": "object", "properties": given})


SCHEMAS = st.recursive(
    PLAIN_SCHEMAS,
    lambda inner: st.one_of(
        objects(inner),
        inner.map(lambda one: {"type": "array", "items": one}),
        inner.map(lambda one: {"type": "object", "additionalProperties": one}),
        objects(inner).map(lambda one: {"allOf": [one, {"required": ["a"]}]}),
        objects(inner).map(lambda one: {"oneOf": [{"type": "null"}, one]}),
    ),
    max_leaves=5,
)


@st.composite
def allowed(draw: Any, schema: Any) -> Any:
    """A value that the schema allows, mostly."""
    if not isinstance(schema, dict) or draw(st.integers(0, 15)) == 0:
        return draw(VALUES)
    if "allOf" in schema:
        return draw(allowed(schema["allOf"][0]))
    for keyword in ("oneOf", "anyOf"):
        if keyword in schema:
            return draw(allowed(draw(st.sampled_from(schema[keyword]))))
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum", [schema.get("const")])))
    kind = schema.get("type")
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == "array":
        return draw(st.lists(allowed(schema["items"]), max_size=2))
    if kind == "object" and "properties" in schema:
        return {
            name: draw(allowed(one))
            for name, one in schema["properties"].items()
            if name == "a" or draw(st.booleans())
        }
    if kind == "object":
        names = st.sampled_from(NAMES)
        return draw(st.dictionaries(names, allowed(schema["additionalProperties"]), max_size=2))
    scalars: dict[Any, Any] = {
        "string": st.sampled_from(("x", "y", "1e19", "9" * 20)),
        "integer": INTEGERS,
        "number": NUMBERS,
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return draw(scalars.get(kind, VALUES))


def rooted(schema: Any) -> Any:
    if not isinstance(schema, dict) or "$ref" in schema:
        schema = {"type": "object", "properties": {"a": schema}}
    return {**schema, "definitions": {"named": {"enum": ["x"]}}}


@given(data=st.data(), writer=SCHEMAS, other=SCHEMAS, is_same=st.booleans())
@settings(max_examples=200, deadline=None)
def test_generated_events_and_readers_mean_the_same(
    data: Any, writer: Any, other: Any, is_same: bool, reading: Any
) -> None:
    reader = writer if is_same else other
    values = data.draw(st.lists(allowed(writer) | allowed(reader), min_size=1, max_size=5))
    payloads = [json.dumps(value).encode() for value in values]
    read = reading.readings(reading.json(rooted(writer)), reading.json(rooted(reader)), payloads)
    assert read.reasons == read.reasons_alone
    known = columns_of(parse(json.dumps(rooted(reader))))
    for value, row, reason in zip(read.alone, read.rows(), read.reasons, strict=True):
        if reason is None:
            assert row == as_columns(value, known)


def as_columns(value: Any, known: JsonColumns) -> Any:
    """What the columns should show of a value."""
    if not known.is_object:
        return {"value": cell(value, known.columns[0].type)}
    return {one.name: cell((value or {}).get(one.name), one.type) for one in known.columns}


def cell(value: Any, kind: Any) -> Any:
    """Properties that a type has not are left out, and what is absent is null."""
    if value is None:
        return None
    if kind is None:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    match kind:
        case ObjectOf(properties):
            return {name: cell(value.get(name), of) for name, of in properties}
        case ListOf(item):
            return [cell(one, item) for one in value]
        case MapOf(entry):
            return {name: cell(one, entry) for name, one in value.items()}
    return value


ODD: dict[str, tuple[str, bytes, str | None]] = {
    "an integer of 64 bits": ("integer", b"9223372036854775807", None),
    "an integer of 65 bits": ("integer", b"9223372036854775808", "undecodable"),
    "an integer beyond, with an exponent": ("integer", b"1e19", "undecodable"),
    "an integer beyond, in other letters": ("integer", b"-1.0E+00019", "undecodable"),
    "a small integer with an exponent": ("integer", b"1e3", None),
    "a number within 2^53": ("number", b"9007199254740992", None),
    "a number beyond 2^53": ("number", b"-9007199254740993", "undecodable"),
    "a double beyond 2^53": ("number", b"9007199254740993.0", None),
    "a number beyond the doubles": ("number", b"1e400", "undecodable"),
    "half of a surrogate pair": ("string", b'"\\ud800"', "undecodable"),
    "a surrogate pair": ("string", b'"\\ud83d\\ude00"', None),
    "not a number": ("number", b"NaN", "undecodable"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_are_read_or_refused_in_both_ways(name: str, reading: Any) -> None:
    kind, text, reason = ODD[name]
    schema = reading.json({"type": "object", "properties": {"x": {"type": kind}}})
    read = reading.readings(schema, schema, [b'{"x": %s}' % text])
    assert read.reasons == read.reasons_alone == [reason]
    if reason is None:
        assert read.rows() == read.alone


@pytest.mark.parametrize(
    ("kind", "value"), [("integer", 2**63), ("integer", 1e19), ("number", 2**53 + 1)]
)
def test_a_number_that_is_not_read_is_not_written(kind: str, value: Any) -> None:
    schema = parse(json.dumps({"type": "object", "properties": {"x": {"type": kind}}}))
    with pytest.raises(InvalidValueError, match=re.escape(str(value))):
        JsonEventEncoder(schema).encode({"x": value})
    with pytest.raises(InvalidValueError, match="row 1: "):
        JsonRowsEncoder(schema).encode([{"x": 1}, {"x": value}], b"")
    untyped = parse("true")
    assert JsonEventEncoder(untyped).encode({"x": value})[0]


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"enum": ["a", None]},
        {"oneOf": [{"const": "a"}, {"const": "b"}]},
        {"allOf": [{"type": "string"}, {"minLength": 1}]},
    ],
)
def test_a_text_by_any_keyword_has_no_quotes(schema: Any, reading: Any) -> None:
    for root, payload in (
        ({"type": "object", "properties": {"value": schema}}, b'{"value": "a"}'),
        (schema, b'"a"'),
    ):
        read = reading.readings(reading.json(root), reading.json(root), [payload])
        assert read.rows() == [{"value": "a"}]
