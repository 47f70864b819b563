"""Fields cached between schemas: the result is that of parsing without a cache."""

import json
from typing import Any

import pytest

from penstock.schemas.avro import parse
from penstock.schemas.avro.schema import AvroSchema
from penstock.schemas.avro.tree import Field, Record
from penstock.schemas.model import InvalidSchemaError


def record(*fields: dict[str, Any], name: str = "Order", **members: Any) -> str:
    return json.dumps({"type": "record", "name": name, **members, "fields": fields})


def inner(name: str, **members: Any) -> dict[str, Any]:
    fields = [{"name": "a", "type": "int"}]
    return {"type": "record", "name": name, "fields": fields, **members}


def first_field(schema: AvroSchema) -> Field:
    assert isinstance(schema.root, Record)
    return schema.root.fields[0]


PART = {"name": "part", "type": inner("Part")}


def test_the_same_field_of_two_versions_is_one_node() -> None:
    one = parse(record(PART))
    other = parse(record(PART, {"name": "b", "type": "int"}))
    assert first_field(one) is first_field(other)


def test_a_field_is_parsed_again_in_another_namespace() -> None:
    here = parse(record(PART, namespace="here"))
    there = parse(record(PART, namespace="there"))
    assert first_field(here).type.full_name == "here.Part"
    assert first_field(there).type.full_name == "there.Part"


def test_a_field_that_uses_a_name_is_parsed_again() -> None:
    use = {"name": "again", "type": ["null", "Part"]}
    one, other = parse(record(PART, use)), parse(record(PART, use))
    assert isinstance(one.root, Record)
    assert isinstance(other.root, Record)
    assert one.root.fields[1] is not other.root.fields[1]


def test_a_field_that_refers_to_its_record_is_parsed_again() -> None:
    back = {"name": "next", "type": ["null", "Order"]}
    one, other = parse(record(back)), parse(record(back))
    assert first_field(one) is not first_field(other)
    assert one.incompatibilities(other) == ()


def test_names_that_a_cached_field_defines_can_be_used() -> None:
    parse(record(PART))
    use = {"name": "again", "type": "Part"}
    schema = parse(record(PART, use))
    assert isinstance(schema.root, Record)
    assert schema.root.fields[1].type is schema.root.fields[0].type


def test_a_cached_field_cannot_redefine_a_name() -> None:
    parse(record(PART))
    other = {"name": "other", "type": inner("Part", fields=[{"name": "b", "type": "string"}])}
    with pytest.raises(InvalidSchemaError, match="Can't redefine: Part at /fields/1/type"):
        parse(record(other, PART))


def test_a_field_parsed_leniently_is_checked_again_in_a_strict_schema() -> None:
    invalid = {"name": "a", "type": "int", "default": "text"}
    parse(record(invalid), strict=False)
    with pytest.raises(InvalidSchemaError, match="Invalid default"):
        parse(record(invalid))


def test_a_field_parsed_strictly_is_used_in_a_lenient_schema() -> None:
    strict = parse(record(PART))
    assert first_field(parse(record(PART), strict=False)) is first_field(strict)


def test_a_cached_field_in_a_reference_defines_its_names() -> None:
    parse(record(PART))
    use = {"name": "again", "type": "Part"}
    schema = parse(record(use, name="Other"), imports={"orders": record(PART)})
    assert first_field(schema).type.full_name == "Part"


def test_invalid_fields_are_refused_as_without_a_cache() -> None:
    with pytest.raises(InvalidSchemaError, match="not valid JSON: NaN"):
        parse('{"type": "record", "name": "R", "fields": [{"name": "a", "default": NaN}]}')
    with pytest.raises(InvalidSchemaError, match="Record has no fields"):
        parse('{"type": "record", "name": "R", "fields": 3}')
    with pytest.raises(InvalidSchemaError, match="No field name"):
        parse('{"type": "record", "name": "R", "fields": [3]}')
    with pytest.raises(InvalidSchemaError, match="Duplicate field part"):
        parse(record(PART, PART))
