"""Fields shared between schemas: what is read from memory means what it would mean read anew."""

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


def test_a_field_is_read_anew_in_another_namespace() -> None:
    here = parse(record(PART, namespace="here"))
    there = parse(record(PART, namespace="there"))
    assert first_field(here).type.full_name == "here.Part"
    assert first_field(there).type.full_name == "there.Part"


def test_a_field_that_uses_a_name_is_read_anew() -> None:
    use = {"name": "again", "type": ["null", "Part"]}
    one, other = parse(record(PART, use)), parse(record(PART, use))
    assert isinstance(one.root, Record)
    assert isinstance(other.root, Record)
    assert one.root.fields[1] is not other.root.fields[1]


def test_a_field_that_refers_back_to_its_record_is_read_anew() -> None:
    back = {"name": "next", "type": ["null", "Order"]}
    one, other = parse(record(back)), parse(record(back))
    assert first_field(one) is not first_field(other)
    assert one.incompatibilities(other) == ()


def test_names_that_a_shared_field_defines_can_be_used() -> None:
    parse(record(PART))
    use = {"name": "again", "type": "Part"}
    schema = parse(record(PART, use))
    assert isinstance(schema.root, Record)
    assert schema.root.fields[1].type is schema.root.fields[0].type


def test_a_shared_field_cannot_define_a_name_a_second_time_in_another_way() -> None:
    parse(record(PART))
    other = {"name": "other", "type": inner("Part", fields=[{"name": "b", "type": "string"}])}
    with pytest.raises(InvalidSchemaError, match="Can't redefine: Part at /fields/1/type"):
        parse(record(other, PART))


def test_what_was_read_with_patience_is_not_taken_for_strict() -> None:
    wrong = {"name": "a", "type": "int", "default": "text"}
    parse(record(wrong), strict=False)
    with pytest.raises(InvalidSchemaError, match="Invalid default"):
        parse(record(wrong))


def test_what_was_read_strictly_serves_the_patient() -> None:
    strict = parse(record(PART))
    assert first_field(parse(record(PART), strict=False)) is first_field(strict)


def test_a_shared_field_is_defined_by_a_reference_too() -> None:
    parse(record(PART))
    use = {"name": "again", "type": "Part"}
    schema = parse(record(use, name="Other"), imports={"orders": record(PART)})
    assert first_field(schema).type.full_name == "Part"


def test_wrong_texts_are_refused_as_if_nothing_were_shared() -> None:
    with pytest.raises(InvalidSchemaError, match="not valid JSON: NaN"):
        parse('{"type": "record", "name": "R", "fields": [{"name": "a", "default": NaN}]}')
    with pytest.raises(InvalidSchemaError, match="Record has no fields"):
        parse('{"type": "record", "name": "R", "fields": 3}')
    with pytest.raises(InvalidSchemaError, match="No field name"):
        parse('{"type": "record", "name": "R", "fields": [3]}')
    with pytest.raises(InvalidSchemaError, match="Duplicate field part"):
        parse(record(PART, PART))
