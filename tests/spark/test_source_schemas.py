"""The columns and reader schemas of a query, without a JVM."""

import json
import logging

import pytest

from penstock.errors import Refused
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.spark.source import read_schema
from tests.support.source_topic import V1, V2, SourceTopic, avro, table


def test_a_query_created_again_has_the_columns_of_the_latest_version(topic: SourceTopic) -> None:
    topic.put(*topic.orders(V1, 1))
    assert "note" not in read_schema(dict(topic.decoded)).names
    topic.put(*topic.orders(V2, 2))
    assert "note" in read_schema(dict(topic.decoded)).names


ITEM_FIRST = """syntax = "proto3"; package shop;
message Item { string name = 1; }
message Order { int64 id = 1; Item item = 2; }"""


def test_a_protobuf_topic_is_read_as_the_latest_message_or_the_named_one(
    topic: SourceTopic, caplog: pytest.LogCaptureFixture
) -> None:
    def write(message: str) -> Serializer:
        contract = Contract(ITEM_FIRST, type=SchemaType.PROTOBUF, message=message)
        return Serializer(topic.registry, topic.name, contract)

    item = write("shop.Item").serialize({"name": "tea"}).content
    assert "name" in read_schema(dict(topic.decoded)).names, (
        "the first message while the topic is empty"
    )
    order = write("shop.Order").serialize({"id": 7, "item": {"name": "tea"}}).content
    topic.put(item, timestamp=1000)
    topic.put(order, b"garbage", timestamp=2000)
    with caplog.at_level(logging.WARNING):
        result = table(topic.decoded, columns="id,_error").to_pylist()
    assert (
        "are of several messages (shop.Order, shop.Item); it is read as shop.Order" in caplog.text
    )
    assert [row["id"] for row in result] == [None, 7, None]
    assert "written as shop.Item, to be read as shop.Order" in result[0]["_error"]["detail"]
    for name in ("shop.Item", "Item"):
        named = table(topic.decoded, message=name, columns="name,_error").to_pylist()
        assert [row["name"] for row in named] == ["tea", None, None]
    with pytest.raises(
        Refused, match=f"not in the schema of {topic.name}; it has shop.Item, shop.Order"
    ):
        read_schema({**topic.decoded, "message": "Basket"})
    text = {"value": "protobuf", "readerSchema": ITEM_FIRST, "columns": "id,_error"}
    assert table(topic.decoded, **text).column("id").to_pylist() == [None, 7, None]


def test_a_read_of_many_fields_without_columns_logs_a_hint_once(
    topic: SourceTopic, caplog: pytest.LogCaptureFixture
) -> None:
    wide = avro(*({"name": f"f{number}", "type": "long"} for number in range(8)))
    topic.serializer(wide).prepare()
    with caplog.at_level(logging.WARNING):
        for columns in ("*", "f1,f2"):
            read_schema({**topic.decoded, "columns": columns})
        assert caplog.messages == []
        names = [read_schema(dict(topic.decoded)).names for _ in range(2)]
    assert names[0] == names[1] == read_schema({**topic.decoded, "columns": "*"}).names
    (line,) = caplog.messages
    assert line.startswith(f"topic {topic.name}: all 8 fields are decoded and sent to Spark")


def test_a_message_can_be_named_for_protobuf_only(topic: SourceTopic) -> None:
    topic.orders(V1, 1)
    with pytest.raises(Refused, match="option message is Order, but no schema is Protobuf"):
        read_schema({**topic.decoded, "message": "Order"})


PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; uint32 pieces = 2; }'
JSON_SCHEMA = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "pieces": {"type": "integer"}},
        "required": ["id"],
    }
)


@pytest.mark.parametrize(
    ("schema_type", "schema"), [(SchemaType.PROTOBUF, PROTOBUF), (SchemaType.JSON, JSON_SCHEMA)]
)
def test_protobuf_and_json_are_decoded_into_columns_too(
    topic: SourceTopic, schema_type: SchemaType, schema: str
) -> None:
    write = Serializer(topic.registry, topic.name, Contract(schema, type=schema_type))
    topic.put(write.serialize({"id": 7, "pieces": 3}).content, b"garbage")
    for value in ("auto", schema_type.lower()):
        result = table(topic.decoded, value=value, columns="pieces,id,_error").to_pylist()
        assert (result[0]["id"], result[0]["pieces"]) == (7, 3)
        assert result[1]["_error"]["reason"] == "not_framed"
