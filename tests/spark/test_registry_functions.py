"""Framed values in any column, on Spark."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract
from penstock.serde.serializers import Deserializer, Serializer
from penstock.spark import from_registry, to_registry
from penstock.testing.platform import Platform

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
AT = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)


@pytest.fixture
def topic(penstock: Platform) -> str:
    """A name for subjects; the topic need not exist."""
    return penstock.name("functions")


def order(number: int) -> dict[str, Any]:
    return {"id": number, "at": AT, "tags": {"t": [number]}, "note": None}


def test_values_are_decoded_and_encoded_again_unchanged(
    spark: SparkSession, registry: Registry, registry_url: str, topic: str
) -> None:
    write = Serializer(registry, topic, Contract(json.dumps(ORDER)))
    values = [write.serialize(order(number)).content for number in range(5)]
    frame = spark.createDataFrame([(value,) for value in [*values, None]], "payload binary")
    decoded = frame.select(from_registry("payload", registry_url, topic).alias("order"))
    assert decoded.schema["order"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,tags:map<string,array<int>>,note:string>"
    )
    rows = [row.order for row in decoded.collect()]
    assert [row and (row.id, row.tags, row.note) for row in rows] == [
        *((number, {"t": [number]}, None) for number in range(5)),
        None,
    ]
    millis = decoded.select(sf.unix_millis("order.at")).collect()
    assert millis[0][0] == round(AT.timestamp() * 1000)
    again = decoded.select(to_registry("order", registry_url, topic))
    assert [row[0] and bytes(row[0]) for row in again.collect()] == [*values, None]
    few = frame.select(
        from_registry(sf.col("payload"), registry_url, topic, columns=["note", "id"])
    )
    assert few.schema[0].dataType.simpleString() == "struct<note:string,id:bigint>"
    assert [row[0] and row[0].id for row in few.collect()] == [*range(5), None]


def test_a_value_that_cannot_be_decoded_fails_the_query_or_is_null(
    spark: SparkSession, registry: Registry, registry_url: str, topic: str
) -> None:
    good = Serializer(registry, topic, Contract(json.dumps(ORDER))).serialize(order(1)).content
    frame = spark.createDataFrame([(good,), (b"garbage",)], "payload binary")
    with pytest.raises(PySparkException, match=rf"{topic}: cannot decode a value \(not_framed"):
        frame.select(from_registry("payload", registry_url, topic)).collect()
    lenient = frame.select(from_registry("payload", registry_url, topic, on_error="null"))
    assert [row[0] is None for row in lenient.collect()] == [False, True]
    with pytest.raises(PySparkException, match="reads a binary column, not string"):
        spark.sql("SELECT 'x' AS payload").select(
            from_registry("payload", registry_url, topic)
        ).collect()


def test_what_the_registry_refuses_or_lacks_fails_on_the_driver(
    registry: Registry, registry_url: str, topic: str
) -> None:
    with pytest.raises(Refused, match=f"Register a schema under {topic}-key"):
        from_registry("payload", registry_url, topic, key=True)
    unknown: Any = "skip"
    with pytest.raises(Refused, match="on_error is 'skip', not fail or null"):
        from_registry("payload", registry_url, topic, on_error=unknown)


def test_a_row_that_does_not_fit_its_schema_fails_the_query(
    spark: SparkSession, registry_url: str, topic: str
) -> None:
    framed = to_registry("order", registry_url, topic, schema=json.dumps(ORDER))
    frame = spark.sql("SELECT named_struct('id', 'seven') AS order")
    with pytest.raises(PySparkException, match=f"to_registry: .*{topic}-value"):
        frame.select(framed).collect()


def test_keys_that_are_no_records_and_protobuf_messages_by_name(
    spark: SparkSession, registry: Registry, registry_url: str, topic: str
) -> None:
    keys = to_registry("id", registry_url, topic, schema='"long"', key=True)
    framed = spark.range(3).select(keys.alias("key"))
    read = framed.select(from_registry("key", registry_url, topic, key=True))
    assert [row[0] for row in read.collect()] == [0, 1, 2]
    text = 'syntax = "proto3"; message Item { string name = 1; } message Order { int64 id = 1; }'
    contract = Contract(text, type=SchemaType.PROTOBUF, message="Order")
    row = sf.struct(sf.col("id"))
    values = spark.range(2).select(
        to_registry(row, registry_url, topic, schema=contract).alias("v")
    )
    first = Deserializer(registry, topic).deserialize(bytes(values.collect()[1].v))
    assert (first.DESCRIPTOR.name, first.id) == ("Order", 1)
    decoded = values.select(from_registry("v", registry_url, topic, message="Order"))
    assert [row[0].id for row in decoded.collect()] == [0, 1]
