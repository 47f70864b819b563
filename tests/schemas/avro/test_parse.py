import json
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.avro import parse
from penstock.schemas.model import InvalidSchemaError, Reference

ADDRESS = '{"type":"record","name":"Address","namespace":"com.shop","fields":[]}'


def record(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **more})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"type":"string"}', '"string"'),
        ('{"type": "int", "x": 1e2}', '{"type":"int","x":100.0}'),
        ('"long" // a comment', '"long"'),
        ('/* no */ ["null", "int"]', '["null","int"]'),
        (
            '{"fields":[],"aliases":["Old","x.Y"],"doc":"d","k":1,"name":"a.b.R","type":"record"}',
            '{"type":"record","name":"R","namespace":"a.b","doc":"d","fields":[],"k":1,'
            '"aliases":["Old","x.Y"]}',
        ),
        (
            '{"type":"enum","name":"E","default":"A","symbols":["A","B"],"p":[true,null]}',
            '{"type":"enum","name":"E","symbols":["A","B"],"default":"A","p":[true,null]}',
        ),
        (
            '{"type":"fixed","name":"F","size":12,"logicalType":"duration","namespace":"n"}',
            '{"type":"fixed","name":"F","namespace":"n","size":12,"logicalType":"duration"}',
        ),
        (
            '{"type":"record","name":"n.R","fields":[{"type":{"type":"record","name":"S",'
            '"namespace":"n","fields":[{"name":"r","type":["null","R"],"default":null}]},'
            '"name":"s","order":"IGNORE","aliases":["t"],"extra":{"b":1,"a":2}},'
            '{"name":"d","type":"double","default":"1","order":"ascending"}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"s","type":{"type":'
            '"record","name":"S","fields":[{"name":"r","type":["null","R"],"default":null}]},'
            '"order":"ignore","aliases":["t"],"extra":{"b":1,"a":2}},'
            '{"name":"d","type":"double","default":1.0}]}',
        ),
        (
            '{"type":"record","name":"n.R","fields":[{"name":"s","type":{"type":"fixed",'
            '"name":"S","namespace":"","size":1}}]}',
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"s","type":{"type":'
            '"fixed","name":"S","namespace":"","size":1}}]}',
        ),
        (
            '{"type":"record","name":"R","doc":"a\\u0001\\u001f\\"\\u00e9/","fields":[]}',
            '{"type":"record","name":"R","doc":"a\\u0001\\u001F\\"é/","fields":[]}',
        ),
    ],
)
def test_the_canonical_text_is_that_of_avros_java_library(text: str, canonical: str) -> None:
    assert parse(text).canonical == canonical
    assert parse(canonical).canonical == canonical


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        ("1e10", "1.0E10"),
        ("1e6", "1000000.0"),
        ("12345678.9", "1.23456789E7"),
        ("0.001", "0.001"),
        ("0.0001", "1.0E-4"),
        ("-0.0", "-0.0"),
        ("1e-300", "1.0E-300"),
        ("1e400", '"Infinity"'),
        ("123456.789", "123456.789"),
        ("9007199254740993", "9007199254740993"),
        ("-2.5e0", "-2.5"),
    ],
)
def test_numbers_are_printed_as_in_java(number: str, printed: str) -> None:
    assert parse(f'{{"type":"int","x":{number}}}').canonical == f'{{"type":"int","x":{printed}}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("{", "not valid JSON"),
        ("null", "a schema is a name"),
        ("5", "a schema is a name"),
        ('"string" x', "not valid JSON"),
        ("NaN", "NaN"),
        ('"nothing"', 'Undefined schema: "nothing"'),
        ("{}", "No type"),
        ('{"type":{"type":"string"}}', "No type"),
        ('{"type":"array"}', "Array has no items"),
        ('{"type":"map"}', "Map has no values"),
        ('{"type":"record","name":"R"}', "Record has no fields"),
        ('{"type":"record","fields":[]}', "No name"),
        (record({"type": "int"}), "No field name"),
        (record({"name": "a"}), "No field type: .* at /fields/0"),
        (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "Duplicate field a"),
        (record({"name": "a-b", "type": "int"}), "Illegal name .*a-b"),
        (record({"name": "é", "type": "int"}), "Illegal name"),
        (record(name="1R"), "Illegal name"),
        (record(name="int"), "named after primitives"),
        (record(namespace="a..b"), "Illegal namespace part"),
        (record(namespace="a."), "Illegal namespace part"),
        (record(aliases="x"), "aliases not an array"),
        (record(aliases=[1]), "alias not a string"),
        (record({"name": "a", "type": "int", "order": "up"}), "order"),
        (record({"name": "a", "type": "int", "default": "x"}), "Invalid default for field a"),
        (record({"name": "a", "type": "int", "default": 1.0}), "Invalid default"),
        (record({"name": "a", "type": "int", "default": 2**31}), "Invalid default"),
        (record({"name": "a", "type": "double", "default": "x"}), "not a number"),
        (record({"name": "a", "type": ["null", "int"], "default": "x"}), "Invalid default"),
        (record({"name": "a", "type": "R", "default": {}}), "Invalid default"),
        (record({"name": "a", "type": ["int", "Nope"]}), 'Undefined schema: "Nope" at'),
        ('["int","int"]', "Duplicate in union: int"),
        ('["null",["int"]]', "Nested union"),
        ('{"type":"enum","name":"E"}', "Enum has no symbols"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "Duplicate enum symbol"),
        ('{"type":"enum","name":"E","symbols":["A-B"]}', "Illegal name"),
        ('{"type":"enum","name":"E","symbols":[1]}', "symbol is text"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "default is not one"),
        ('{"type":"fixed","name":"F"}', "Invalid or no size"),
        ('{"type":"fixed","name":"F","size":"4"}', "Invalid or no size"),
        ('{"type":"fixed","name":"F","size":-1}', "0 to"),
        ('{"type":"record","name":"R","doc":"\\ud800","fields":[]}', "surrogate"),
        ('{"type":"int","x":' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5000 + "]" * 5000,
        '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000,
        '{"type":"array","items":' * 300 + '"int"' + "}" * 300,
        '{"type":"int","x":' + "[" * 300 + "]" * 300 + "}",
        record({"name": "a", "type": {"type": "map", "values": "int"}, "default": [[]]}).replace(
            "[[]]", "[" * 300 + "]" * 300
        ),
        # A chain of names: the text is flat, the types are 5 000 levels deep.
        json.dumps(
            [
                {
                    "type": "record",
                    "name": f"R{index}",
                    "fields": [{"name": "f", "type": f"R{index + 1}"}],
                }
                for index in range(5000)
            ]
            + [{"type": "record", "name": "R5000", "fields": []}]
        ),
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchemaError, match="deep"):
        parse(text)


def test_a_hundred_levels_are_parsed_printed_and_compared() -> None:
    text = '{"type":"array","items":' * 99 + '"int"' + "}" * 99
    schema = parse(text)
    assert schema.canonical == text
    assert schema.normalized().equivalent(schema)
    longer = parse(text.replace('"int"', '"long"'))
    assert longer.incompatibilities(schema) == ()
    assert [one.path for one in schema.incompatibilities(longer)] == ["/items" * 99]


def test_a_name_may_be_used_before_its_definition_and_repeated_identically() -> None:
    used = parse('["null",{"type":"array","items":"E"},{"type":"enum","name":"E","symbols":["A"]}]')
    assert used.canonical == (
        '["null",{"type":"array","items":{"type":"enum","name":"E","symbols":["A"]}},"E"]'
    )
    same = {"type": "fixed", "name": "F", "size": 2}
    twice = record({"name": "a", "type": same}, {"name": "b", "type": {**same, "doc": "again"}})
    assert parse(twice).canonical.count('"size"') == 1
    with pytest.raises(InvalidSchemaError, match="Can't redefine: F"):
        parse(record({"name": "a", "type": same}, {"name": "b", "type": {**same, "size": 3}}))


def test_references_are_printed_by_name_and_resolved_on_request() -> None:
    text = record({"name": "a", "type": "com.shop.Address"})
    reference = Reference("com.shop.Address", "address", 1)
    schema = parse(text, (reference,), {"com.shop.Address": ADDRESS})
    assert schema.canonical == text.replace(": ", ":").replace(", ", ",")
    resolved = schema.formatted("resolved")
    assert json.loads(resolved)["fields"][0]["type"]["type"] == "record"
    assert schema.equivalent(parse(resolved))
    assert schema.formatted("no such form") == schema.canonical
    assert schema.references == (reference,)
    with pytest.raises(InvalidSchemaError, match=r"com\.shop\.Address"):
        parse(text)
    with pytest.raises(InvalidSchemaError, match='in the reference "x": the schema is empty'):
        parse(text, (reference,), {"x": ""})


def test_stored_schemas_are_parsed_leniently() -> None:
    text = record({"name": "naïve", "type": "int", "default": "x"}, namespace="a-b")
    with pytest.raises(InvalidSchemaError):
        parse(text)
    assert parse(text, strict=False).name == "a-b.R"


def test_the_normal_form_sorts_what_has_no_meaning() -> None:
    field = {"name": "p", "type": {"type": "bytes", "scale": 2, "a": 1, "precision": 9}}
    field["type"]["logicalType"] = "decimal"  # type: ignore[index]  # a nested dict
    doubled = {"name": "d", "type": "double", "default": 1, "z": {"y": 1, "x": 2}, "b": 0}
    floated = {"name": "f", "type": "float", "default": 0.1}
    second = {"name": "u", "type": ["null", "int"], "default": 5}
    text = record(field, doubled, floated, second, aliases=["Z", "A"], doc="")
    assert parse(text).normalized().canonical == (
        '{"type":"record","name":"R","fields":['
        '{"name":"p","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"a":1}},'
        '{"name":"d","type":"double","default":1.0,"b":0,"z":{"x":2,"y":1}},'
        '{"name":"f","type":"float","default":0.1},'
        '{"name":"u","type":["null","int"],"default":5}],"aliases":["A","Z"]}'
    )


def test_equivalence_includes_documentation_and_aliases_but_not_the_order_of_properties() -> None:
    plain = parse(record({"name": "a", "type": "int", "x": 1, "y": [1]}))
    assert plain.equivalent(parse(record({"y": [1], "x": 1, "name": "a", "type": "int"})))
    for other in (
        record({"name": "a", "type": "int", "x": 1.0, "y": [1]}),
        record({"name": "a", "type": "int", "x": 1, "y": [1], "doc": "d"}),
        record({"name": "a", "type": "int", "x": 1, "y": [1], "aliases": ["b"]}),
        record({"name": "a", "type": "int", "x": 1, "y": [1], "default": 0}),
        record({"name": "a", "type": "int", "x": 1, "y": [1]}, doc="d"),
        record({"name": "a", "type": "int", "x": 1, "y": [1], "order": "ignore"}),
        record({"name": "a", "type": "long", "x": 1, "y": [1]}),
    ):
        assert not plain.equivalent(parse(other))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_a_canonical_text_parses_to_the_same_schema(make_schemas: Any, seed: int) -> None:
    maker = make_schemas(seed)
    for _ in range(5):
        try:
            schema = parse(json.dumps(maker.schema()))
        except InvalidSchemaError:
            continue
        again = parse(schema.canonical)
        assert again.canonical == schema.canonical
        assert schema.incompatibilities(again) == again.incompatibilities(schema) == ()
        normal = schema.normalized()
        assert normal.normalized().canonical == normal.canonical


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_fastavro_accepts_every_accepted_schema(make_schemas: Any, seed: int) -> None:
    maker = make_schemas(seed)
    for _ in range(5):
        schema = maker.schema()
        text = json.dumps(schema)
        if '"scale": 12' in text:  # fastavro refuses an invalid decimal instead of ignoring it
            continue
        try:
            canonical = parse(text).canonical
        except InvalidSchemaError:
            continue
        # As in Java, and unlike in fastavro, a name is also looked up outside of its namespace.
        with suppress(fastavro.schema.UnknownType):
            fastavro.parse_schema(json.loads(canonical))
