"""Tags in the text of a schema, in each language."""

import json

import pytest

from penstock.schemas.model import (
    Entity,
    InvalidSchemaError,
    ParsedSchema,
    SchemaText,
    SchemaType,
    Tagging,
)
from penstock.schemas.parse_cache import parse

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": [
                        "null",
                        {
                            "type": "record",
                            "name": "Line",
                            "namespace": "shop.parts",
                            "fields": [{"name": "price", "type": "int"}],
                        },
                    ],
                },
            },
        ],
    }
)
PROTOBUF = """syntax = "proto3";
package shop;
message Order {
  message Line { int32 price = 1 [deprecated = true]; }
  oneof key { string id = 1; int64 number = 2; }
}
"""
JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "a.b": {"type": "array", "items": {"type": "object", "properties": {"c": {}}}},
            "d": {"anyOf": [{"type": "object", "properties": {"e": {}}}]},
            "f": {"not": {"type": "object", "properties": {"g": {}}}},
            "h": {"if": {"type": "object", "properties": {"i": {}}}, "then": {}},
        },
        "definitions": {"Part": {"type": "object", "properties": {"j": {}}}},
    }
)


def read(language: SchemaType, text: str) -> ParsedSchema:
    return parse(SchemaText(language, text))


def added(path: str, *tags: str, is_record: bool = False) -> Tagging:
    return Tagging({Entity(is_record, path): tags}, {})


@pytest.mark.parametrize(
    ("language", "text", "path", "is_record"),
    [
        (SchemaType.AVRO, AVRO, "Order", True),
        (SchemaType.AVRO, AVRO, "Order.id", False),
        (SchemaType.AVRO, AVRO, "Line", True),
        (SchemaType.AVRO, AVRO, "shop.parts.Line.price", False),
        (SchemaType.PROTOBUF, PROTOBUF, "Order", True),
        (SchemaType.PROTOBUF, PROTOBUF, "Order.Line", True),
        (SchemaType.PROTOBUF, PROTOBUF, ".Order.Line.price", False),
        (SchemaType.PROTOBUF, PROTOBUF, "Order.number", False),
        (SchemaType.JSON, JSON, "object", True),
        (SchemaType.JSON, JSON, "object.a.b.array.object.c", False),
        (SchemaType.JSON, JSON, "object.d.anyof.0.object", True),
        (SchemaType.JSON, JSON, "object.d.anyof.0.object.e", False),
        (SchemaType.JSON, JSON, "object.f.not.object.g", False),
        (SchemaType.JSON, JSON, "object.h.allof.0.conditional.if.object.i", False),
        (SchemaType.JSON, JSON, "object.definitions.Part.object.j", False),
    ],
)
def test_tags_are_added_and_removed(
    language: SchemaType, text: str, path: str, is_record: bool
) -> None:
    untagged = read(language, text)
    tagged = untagged.tagged(added(path, "PII", "GDPR", is_record=is_record))
    assert (tagged.canonical.count("PII"), tagged.canonical.count("GDPR")) == (1, 1)
    assert read(language, tagged.canonical).canonical == tagged.canonical
    assert tagged.incompatibilities(untagged) == untagged.incompatibilities(tagged) == ()
    entity = Entity(is_record, path)
    fewer = tagged.tagged(Tagging({}, {entity: ("GDPR",)}))
    assert (fewer.canonical.count("PII"), fewer.canonical.count("GDPR")) == (1, 0)
    assert fewer.tagged(Tagging({}, {entity: ("PII", "UNUSED")})).canonical == untagged.canonical


@pytest.mark.parametrize(
    ("language", "text", "path", "is_record"),
    [
        (SchemaType.AVRO, AVRO, "Line.cost", False),
        (SchemaType.AVRO, AVRO, "other.Line.price", False),
        (SchemaType.AVRO, AVRO, "price", False),
        (SchemaType.AVRO, '"string"', "string", True),
        (SchemaType.PROTOBUF, PROTOBUF, "Order.price", False),
        (SchemaType.PROTOBUF, PROTOBUF, "shop.Order", True),
        (SchemaType.JSON, JSON, "object.z", False),
        (SchemaType.JSON, JSON, "object.d.anyof.7.object.e", False),
        (SchemaType.JSON, JSON, "object.d.anyof", False),
        (SchemaType.JSON, JSON, "", True),
        (SchemaType.JSON, "true", "object", True),
    ],
)
def test_an_unknown_path_is_refused(
    language: SchemaType, text: str, path: str, is_record: bool
) -> None:
    with pytest.raises(InvalidSchemaError, match=r"No matching path '.*' found in the schema"):
        read(language, text).tagged(added(path, "PII", is_record=is_record))


def test_confluents_options_need_no_import_and_are_in_the_descriptor() -> None:
    text = 'syntax = "proto3"; message M { string a = 1 [(confluent.field_meta).tags = "PII"]; }'
    schema = read(SchemaType.PROTOBUF, text)
    again = read(SchemaType.PROTOBUF, schema.formatted("serialized"))
    assert '"PII"' in again.canonical
