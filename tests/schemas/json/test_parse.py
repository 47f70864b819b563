"""Parsing, stored texts and references of JSON Schemas."""

import json
from contextlib import suppress
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.gate.lint import lint
from penstock.schemas import parse_cache
from penstock.schemas.json import parse, validate
from penstock.schemas.json.jsontext import NESTING_MAX
from penstock.schemas.model import InvalidSchemaError, Policy, Reference, SchemaText, SchemaType

ADDRESS = '{"title":"Address","type":"object","properties":{"city":{"type":"string"}}}'
MODERN = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{ "type" : "object" }', '{"type":"object"}'),
        ('{"b":1,"a":{"d":1,"c":2}}', '{"b":1,"a":{"d":1,"c":2}}'),
        ('{"a":1e2}', '{"a":1E+2}'),
        ('{"a":[1.50,100.0,1E-7,0.0000001]}', '{"a":[1.50,100.0,1E-7,1E-7]}'),
        ('{"a":[-0.0,-0,12345678901234567890123]}', '{"a":[0.0,0,12345678901234567890123]}'),
        ('{"a":"\\u00e9\\/\\u0001\\u2028"}', '{"a":"é/\\u0001\u2028"}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ("true", "true"),
        (" false\n", "false"),
    ],
)
def test_stored_text_keeps_the_order_and_the_digits(text: str, stored: str) -> None:
    assert parse(text).canonical == stored
    assert parse(stored).canonical == stored


def test_normalizing_sorts_keys_and_references_but_not_arrays() -> None:
    references = (Reference("b", "s", 2), Reference("a", "s", 1), Reference("b", "s", 2))
    schema = parse('{"b":[{"d":1,"c":[2,1]}],"a":1e2,"é":0,"Z":0}', references).normalized()
    assert schema.canonical == '{"Z":0,"a":1E+2,"b":[{"c":[2,1],"d":1}],"é":0}'
    assert schema.references == (Reference("a", "s", 1), Reference("b", "s", 2))
    assert schema.normalized().canonical == schema.canonical


def test_normalizing_sorts_as_java_does() -> None:
    assert (
        parse('{"\uff5e":0,"\U0001f600":0}').normalized().canonical == '{"\U0001f600":0,"\uff5e":0}'
    )


def test_schemas_are_equivalent_if_their_stored_texts_are_equal() -> None:
    one = parse('{"type":"object","title":"T"}')
    assert one.equivalent(parse('{ "type": "object", "title": "T" }'))
    assert not one.equivalent(parse('{"title":"T","type":"object"}'))
    assert one.name == "T"
    assert parse("true").name is None
    assert one.formatted("resolved") == one.canonical
    assert one.type is SchemaType.JSON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema is empty"),
        ("{", "line 1 column 2"),
        ("5", "an object or a boolean"),
        ('"string"', "an object or a boolean"),
        ("null", "an object or a boolean"),
        ('{"a":NaN}', "NaN is not a number"),
        ('{"minimum":1e99999}', "out of range"),
        ('{"minimum":1e99999999999999999999}', "out of range"),
        ('{"minimum":' + "9" * 5_000 + "}", "more than 1000 digits"),
        ('{"type":"strin"}', "at #/type"),
        ('{"properties":{"a/b":{"minLength":"x"}}}', "at #/properties/a~1b/minLength"),
        ('{"required":true}', '"array" at #/required'),
        ('{"pattern":"("}', "at #/pattern"),
        ('{"allOf":[]}', "at #/allOf"),
        ('{"title":"\\ud800"}', "half of a surrogate pair"),
        ('{"title":"\ud800"}', "half of a surrogate pair"),
        ('{"$ref":"#/definitions/x"}', 'the target of $ref "#/definitions/x" does not exist'),
        ('{"items":{"$ref":"http://a.b/c"}}', "nothing is fetched at #/items"),
        ('{"items":{"$ref":"other.json"}}', 'the target of $ref "other.json" does not exist'),
        ('{"$ref":"#anchor"}', 'the target of $ref "#anchor" does not exist'),
        ('{"$ref":"file:///etc/passwd"}', "does not exist"),
        ('{"$ref":"http://[::1"}', "at #"),
        ("[" * 5_000, "deeper than 200 levels"),
        ('{"not":' * 5_000 + "{}" + "}" * 5_000, "deeper than 200 levels"),
        ('{"not":' * 210 + "{}" + "}" * 210, "deeper than 200 levels"),
        ('{"title":"' + "x" * (16 << 20) + '"}', "longer than"),
    ],
)
def test_an_invalid_schema_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_schema_at_the_nesting_limit_is_parsed_and_compared() -> None:
    levels = NESTING_MAX - 2
    text = '{"not":' * levels + "{}" + "}" * levels
    schema = parse(text)
    assert schema.incompatibilities(parse(text.replace("{}", '{"type":"string"}'))) is not None
    assert schema.normalized().canonical == text


def chain(length: int, end: str) -> str:
    """A schema that reaches `end` through a chain of references."""
    links = {
        f"d{i}": {"properties": {"a": {"$ref": f"#/definitions/d{i + 1}"}}} for i in range(length)
    }
    return json.dumps({"definitions": {**links, f"d{length}": {"type": end}}, **links["d0"]})


def test_a_chain_of_references_may_be_longer_than_the_recursion_limit() -> None:
    old, new = parse(chain(5_000, "integer")), parse(chain(5_000, "number"))
    assert new.incompatibilities(old) == ()
    (difference,) = old.incompatibilities(new)
    assert difference.kind == "TYPE_NARROWED"
    assert difference.path.count("properties/a") == 5_000


def test_parts_that_are_shared_at_every_level_are_compared_once() -> None:
    def shared(end: str) -> str:
        links = {
            f"d{i}": {"properties": {name: {"$ref": f"#/definitions/d{i + 1}"} for name in "ab"}}
            for i in range(60)
        }
        return json.dumps({"definitions": {**links, "d60": {"type": end}}, **links["d0"]})

    differences = parse(shared("integer")).incompatibilities(parse(shared("number")))
    assert 0 < len(differences) <= 1_000


def test_unions_of_many_branches_that_do_not_match_have_a_result() -> None:
    def union(first: int) -> str:
        branches = [{"type": "string", "maxLength": first + i} for i in range(600)]
        return json.dumps({"oneOf": branches})

    (difference, *_) = parse(union(0)).incompatibilities(parse(union(1_000)))
    assert difference.kind in ("UNCHECKABLE", "COMBINED_TYPE_SUBSCHEMAS_CHANGED")
    assert parse(union(1)).incompatibilities(parse(union(0))) == ()


def test_as_many_branches_as_possible_are_paired() -> None:
    old = parse('{"anyOf":[{"type":"integer"},{"type":"number"}]}')
    new = parse('{"anyOf":[{"type":"number"},{"type":"integer"}]}')
    assert new.incompatibilities(old) == ()
    narrower = '{"anyOf":[{"type":"string","maxLength":%d},{"type":"string","maxLength":%d}]}'
    assert parse(narrower % (5, 3)).incompatibilities(parse(narrower % (2, 4))) == ()
    assert parse(narrower % (3, 2)).incompatibilities(parse(narrower % (2, 4))) != ()


@pytest.mark.parametrize("name", ["address.json", "./address.json", "http://acme.com/address.json"])
def test_references_are_resolved_by_name(name: str) -> None:
    schema = parse(
        f'{{"type":"object","properties":{{"home":{{"$ref":"{name}"}}}}}}',
        (Reference(name, "address", 1),),
        {name: ADDRESS},
    )
    assert validate(schema, {"home": {"city": "Bonn"}}) is None
    assert validate(schema, {"home": {"city": 5}}) == '5 is not of type "string" at #/home/city'


def test_a_relative_name_is_resolved_against_the_id_of_the_schema() -> None:
    text = '{"$id":"http://acme.com/a/person.json","properties":{"home":{"$ref":"address.json"}}}'
    for name in ("address.json", "http://acme.com/a/address.json"):
        schema = parse(text, (), {name: ADDRESS})
        assert validate(schema, {"home": {"city": 5}}) is not None


@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", MODERN])
def test_references_of_references_are_followed_and_compared(draft: str) -> None:
    keyword = "$defs" if draft == MODERN else "definitions"
    root = json.dumps({"$schema": draft, "properties": {"a": {"$ref": f"b.json#/{keyword}/c"}}})
    middle = json.dumps({keyword: {"c": {"$ref": "c.json"}}})
    schemas = [
        parse(root, (), {"c.json": f'{{"type":"{kind}"}}', "b.json": middle})
        for kind in ("integer", "number")
    ]
    assert schemas[1].incompatibilities(schemas[0]) == ()
    (difference,) = schemas[0].incompatibilities(schemas[1])
    assert (difference.kind, difference.path) == ("TYPE_NARROWED", "#/properties/a")
    assert validate(schemas[0], {"a": 0.5}) is not None


def test_the_error_names_an_invalid_reference() -> None:
    with pytest.raises(InvalidSchemaError, match=r'in the reference "b\.json"'):
        parse("{}", (), {"b.json": "{"})
    with pytest.raises(
        InvalidSchemaError, match=r'"b\.json": the target of \$ref "#/nope" does not exist'
    ):
        parse('{"$ref":"b.json"}', (), {"b.json": '{"items":{"$ref":"#/nope"}}'})


def test_a_schema_may_refer_to_a_meta_schema() -> None:
    schema = parse('{"properties":{"s":{"$ref":"http://json-schema.org/draft-07/schema#"}}}')
    assert validate(schema, {"s": {"type": 5}}) is not None
    assert schema.incompatibilities(schema) == ()
    assert parse('{"properties":{"s":{"type":"object"}}}').incompatibilities(schema) != ()


@pytest.mark.parametrize(
    ("draft", "other"),
    [
        ("http://json-schema.org/draft-04/schema#", '{"minimum":1,"exclusiveMinimum":true}'),
        ("https://json-schema.org/draft-06/schema", '{"exclusiveMinimum":1}'),
        ("http://json-schema.org/draft-07/schema", '{"if":{"minimum":2},"else":{"maximum":0}}'),
        (
            "http://json-schema.org/draft/2019-09/schema",
            '{"$defs":{"d":{"maximum":0}},"$ref":"#/$defs/d"}',
        ),
        (MODERN, '{"anyOf":[{"exclusiveMinimum":1}]}'),
        ("http://acme.com/unknown", '{"exclusiveMinimum":1}'),
    ],
)
def test_each_draft_validates_by_its_own_keywords(draft: str, other: str) -> None:
    schema = parse(f'{{"$schema":"{draft}",{other[1:]}')
    assert validate(schema, 1) is not None


def test_a_validation_error_has_the_path_of_the_value() -> None:
    schema = parse('{"type":"object","properties":{"a":{"items":{"type":"integer"}}}}')
    assert validate(schema, {"a": [1, "x"]}) == '"x" is not of type "integer" at #/a/1'
    assert validate(schema, {1: 2}) is not None
    assert validate(schema, {"a": [Decimal("1.5")]}) is not None
    assert validate(schema, {"a": object()}) is not None


def test_a_stored_schema_is_parsed_without_being_checked() -> None:
    text = '{"type":"object","required":["a","a"],"properties":{"a":{"type":"any","examples":1}}}'
    with pytest.raises(InvalidSchemaError):
        parse(text)
    stored = parse(text, strict=False)
    assert stored.canonical == text
    assert stored.normalized().canonical != text
    assert stored.incompatibilities(parse('{"type":"string"}'))[0].kind == "TYPE_CHANGED"
    with pytest.raises(InvalidSchemaError):
        validate(stored, {})


def test_a_stored_schema_with_an_unknown_reference_cannot_be_compared() -> None:
    stored = parse('{"$ref":"http://a.b/c"}', strict=False)
    (difference,) = stored.incompatibilities(parse('{"type":"string"}'))
    assert difference.kind == "UNCHECKABLE"
    assert "nothing is fetched" in difference.description


def test_parse_selects_the_language_by_the_type() -> None:
    schema = parse_cache.parse(SchemaText(SchemaType.JSON, '{"title":"T"}'))
    assert schema.name == "T"


KEYWORDS = [
    *("type", "properties", "items", "$ref", "$id", "id", "allOf", "not", "enum", "required"),
    *("dependencies", "$defs", "$anchor", "patternProperties", "$schema", "definitions", "if"),
    *("prefixItems", "const", "default", "additionalProperties", "$dynamicRef"),
]
TEXTS = ["string", "#", "#/", "#/$defs/type", "http://a.b", "//[", MODERN]
SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYWORDS), inner | st.sampled_from(TEXTS), max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(SMALL, SMALL)
def test_any_json_is_a_schema_or_is_refused(one: Any, other: Any) -> None:
    check_any(json.dumps(one), json.dumps(other))


@settings(max_examples=200)
@given(SMALL)
@example({"$ref": "string", "$id": "string"})
def test_a_schema_reads_what_it_wrote(value: Any) -> None:
    with suppress(InvalidSchemaError):
        schema = parse(json.dumps(value))
        assert schema.incompatibilities(schema) == ()
        assert lint(schema, schema) == lint(schema)


@settings(max_examples=200)
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_schema_or_is_refused(one: str, other: str) -> None:
    check_any(one, '{"title":' + json.dumps(other) + "}")


def check_any(one: str, other: str) -> None:
    schemas = []
    for text, strict in product((one, other), (True, False)):
        with suppress(InvalidSchemaError):
            schemas.append(parse(text, (), {"http://a.b": other}, strict=strict))
    for reader in schemas:
        again = parse(reader.canonical, (), {"http://a.b": other}, strict=False)
        assert again.canonical == reader.canonical
        for writer in schemas:
            for policy in Policy:
                assert isinstance(reader.incompatibilities(writer, policy), tuple)


@pytest.mark.parametrize("modern", [False, True])
def test_changed_schemas_are_compared_without_an_exception(make_schemas: Any, modern: bool) -> None:
    maker = make_schemas(7, modern=modern)
    compatible = 0
    for _ in range(300):
        document = maker.document()
        old, new = (json.dumps(one) for one in (document, maker.changed(document)))
        try:
            writer, reader = parse(old), parse(new)
        except InvalidSchemaError:
            continue
        strict, lenient = (reader.incompatibilities(writer, policy) for policy in Policy)
        compatible += not strict
        assert len(lenient) <= len(strict) or strict
        assert writer.incompatibilities(parse(old)) == ()
    assert 0 < compatible < 300
