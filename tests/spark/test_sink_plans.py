"""From a write request to records: plans, encoding and packing, without Spark."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from penstock.client.registry import Registry
from penstock.columns.arrow_records import bytes_to_arrow
from penstock.columns.open_batches import open_batches
from penstock.errors import Refused
from penstock.protocol.batch import seal
from penstock.protocol.compression import Codec
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, RegistryRefusedError, UnknownSchemaError
from penstock.serde.frame import Side
from penstock.serde.serializers import Deserializer, Serializer
from penstock.spark.encode_rows import RowEncoder, check_columns
from penstock.spark.exactly_once_sink import exactly_once
from penstock.spark.option_rows import SINK_OPTIONS
from penstock.spark.pack_rows import Packer, gathered
from penstock.spark.write_options import (
    WriteRequest,
    contract_of,
    framing_of,
    request_from_options,
)

MakeTopic: TypeAlias = Callable[..., str]
NOWHERE = "127.0.0.1:1"
ORDER = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"}, {"name": "store", "type": "string"}]}"""
NARROW = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "string"}, {"name": "store", "type": "string"}]}"""
JSON = """{"type": "object", "title": "Order", "properties": {
  "id": {"type": "integer"}, "store": {"type": "string"}}}"""
PROTOBUF = 'syntax = "proto3"; message Order { int64 id = 1; string store = 2; }'


def request_of(**fields: Any) -> WriteRequest:
    return WriteRequest(bootstrap=NOWHERE, **fields)


def test_columns_are_found_by_the_names_of_kafka() -> None:
    plan = request_of().plan(["key", "value", "topic", "headers", "partition", "timestamp"])
    assert plan.topic_column == "topic"
    assert plan.key is not None
    assert plan.key.columns == ("key",)
    assert plan.value.columns == ("value",)
    assert (plan.headers, plan.partition, plan.timestamp) == ("headers", "partition", None)


def test_rows_of_our_source_can_be_written_unchanged() -> None:
    names = ["_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers"]
    plan = request_of(topic="copy").plan(names)
    assert plan.columns == ["_key", "_value", "_headers"]


def test_with_a_schema_the_value_is_the_whole_row() -> None:
    names = ["id", "store", "_key", "_offset", "_headers", "where"]
    plan = request_of(topic="orders", schema=Contract(ORDER), partition="where").plan(names)
    assert plan.value.columns == ("id", "store")
    assert plan.key is not None
    assert plan.key.columns == ("_key",)
    assert plan.headers == "_headers"


@pytest.mark.parametrize(
    ("arguments", "names", "reason"),
    [
        ({}, ["value"], "no topic"),
        ({"topic": "t"}, ["key"], "no column `value`"),
        ({"topic": "t", "value": "amount"}, ["value"], "no column 'amount'"),
        ({"topic": "t", "value": ["a", "b"]}, ["a", "b"], "needs a schema"),
        ({"topic": "t", "headers": "h"}, ["value"], "no column 'h'"),
    ],
)
def test_a_request_that_does_not_fit_the_frame_is_refused_with_the_reason(
    arguments: dict[str, Any], names: list[str], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        request_of(**arguments).plan(names)


def test_options_make_the_same_request_as_arguments() -> None:
    request = request_from_options(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.compression.type": "zstd",
            "kafka.batch.size": "65536",
            "topic": "orders",
            "key": "store",
            "value": "id, store",
            "schema": ORDER,
            "registry": "http://127.0.0.1:1",
        }
    )
    assert (request.topic, request.key, request.value) == ("orders", "store", ("id", "store"))
    plan = request.plan(["id", "store"])
    assert plan.value.contract == Contract(ORDER)
    assert (plan.framing.codec, plan.framing.batch_bytes_max) == (Codec.ZSTD, 65536)


def test_every_field_of_a_request_is_an_option() -> None:
    arguments = {option.argument for option in SINK_OPTIONS}
    of_a_batch = {"trace"}  # known when a micro-batch begins
    assert {field.name for field in fields(WriteRequest)} - of_a_batch <= arguments


@pytest.mark.parametrize(
    ("name", "hint"), [("topics", "did you mean topic?"), ("acks", "is not known")]
)
def test_an_unknown_option_of_the_sink_is_refused(name: str, hint: str) -> None:
    with pytest.raises(Refused, match=re.escape(hint)):
        request_from_options({"kafka.bootstrap.servers": NOWHERE, name: "x"})


@pytest.mark.parametrize("properties", [{"compression.type": "brotli"}, {"batch.size": "huge"}])
def test_invalid_producer_settings_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(Refused):
        framing_of(properties)


def test_a_schema_is_a_text_a_file_or_the_latest() -> None:
    assert contract_of(ORDER) == Contract(ORDER)
    assert contract_of("order.avsc") == Contract(Path("order.avsc"))
    assert contract_of("latest") == Contract()
    assert contract_of(None) is None


def test_a_schema_without_a_registry_is_refused_immediately() -> None:
    with pytest.raises(Refused, match="registry"):
        request_of(topic="t", schema=ORDER).prepared()


def test_an_incompatible_schema_stops_the_job_before_it_starts(
    bootstrap: str, registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    Serializer(registry, topic, Contract(ORDER)).prepare()
    with pytest.raises(RegistryRefusedError):
        exactly_once(WriteRequest(topic, bootstrap=bootstrap, registry=registry_url, schema=NARROW))
    unregistered = Contract(ORDER, auto_register=False)
    with pytest.raises(UnknownSchemaError):
        exactly_once(
            WriteRequest(
                make_topic(1), bootstrap=bootstrap, registry=registry_url, schema=unregistered
            )
        )


def test_a_query_created_again_writes_with_the_latest_version(
    registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    request = request_of(topic=topic, schema="latest", registry=registry_url)
    Serializer(registry, topic, Contract(ORDER)).prepare()
    assert "note" not in str(request.prepared().schema)
    wider = ORDER.replace("]}", ', {"name": "note", "type": "string", "default": ""}]}')
    Serializer(registry, topic, Contract(wider)).prepare()
    assert "note" in str(request.prepared().schema)


def test_a_topic_that_does_not_exist_stops_the_job_before_it_starts(bootstrap: str) -> None:
    with pytest.raises(Refused, match="does not exist"):
        exactly_once(WriteRequest("no-such-topic", bootstrap=bootstrap, value="value"))


def encoded(request: WriteRequest, rows: pa.RecordBatch) -> dict[str, pa.RecordBatch]:
    return dict(RowEncoder(request.plan(rows.schema.names)).encode(rows))


def test_rows_are_encoded_under_their_schema(
    registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    request = request_of(topic=topic, schema=Contract(ORDER), registry=registry_url).prepared()
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "store": ["north", "south"]})
    values = encoded(request, rows)[topic].column("value").to_pylist()
    reader = Deserializer(registry, topic)
    assert [reader.deserialize(value) for value in values] == rows.to_pylist()


def test_a_struct_that_is_null_deletes_its_key(
    registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    request = request_of(
        topic=topic, value="order", schema=Contract(ORDER), registry=registry_url
    ).prepared()
    orders = [{"id": 1, "store": "north"}, None, {"id": 3, "store": "south"}]
    rows = pa.RecordBatch.from_pydict({"order": orders})
    values: list[Any] = encoded(request, rows)[topic].column("value").to_pylist()
    reader = Deserializer(registry, topic)
    assert [reader.deserialize(value) for value in values] == orders


@pytest.mark.parametrize(
    "contract",
    [Contract(JSON, type=SchemaType.JSON), Contract(PROTOBUF, type=SchemaType.PROTOBUF)],
    ids=["json", "protobuf"],
)
def test_other_schema_languages_are_encoded_too(
    registry: Registry, registry_url: str, make_topic: MakeTopic, contract: Contract
) -> None:
    topic = make_topic(1)
    request = request_of(topic=topic, schema=contract, registry=registry_url).prepared()
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "store": ["north", "south"]})
    values = encoded(request, rows)[topic].column("value").to_pylist()
    batch, wrongs = BatchDeserializer(registry, topic).deserialize_many(values)
    assert not wrongs
    assert batch.to_pylist() == rows.to_pylist()
    with pytest.raises(ClientError, match="shop"):
        encoded(request, rows.rename_columns(["id", "shop"]))


def test_a_json_key_is_one_column(
    registry: Registry, registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    contract = Contract('{"type": "string"}', type=SchemaType.JSON)
    request = request_of(
        topic=topic, key="store", key_schema=contract, value="v", registry=registry_url
    ).prepared()
    rows = pa.RecordBatch.from_pydict({"store": ["north", None], "v": ["a", "b"]})
    keys: list[Any] = encoded(request, rows)[topic].column("key").to_pylist()
    reader = Deserializer(registry, topic, side=Side.KEY)
    assert reader.deserialize(keys[0]) == "north"
    assert keys[1] is None


def test_a_frame_that_does_not_fit_its_schema_names_the_column(
    registry_url: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    request = request_of(topic=topic, schema=Contract(ORDER), registry=registry_url).prepared()
    rows = pa.RecordBatch.from_pydict({"id": [1]})
    with pytest.raises(ClientError, match="store"):
        encoded(request, rows)
    with pytest.raises(ClientError, match="store"):
        check_columns(request.plan(["id"]), rows.schema)


def test_a_key_that_is_neither_text_nor_bytes_is_refused_with_a_remedy() -> None:
    rows = pa.RecordBatch.from_pydict({"key": [1], "value": ["a"]})
    with pytest.raises(Refused, match="Cast it"):
        encoded(request_of(topic="t"), rows)


def test_each_row_goes_to_the_topic_in_its_column() -> None:
    rows = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "value": ["1", "2", "3"]})
    by_topic = encoded(request_of(), rows)
    assert {topic: some.column("value").to_pylist() for topic, some in by_topic.items()} == {
        "a": ["1", "3"],
        "b": ["2"],
    }
    empty = pa.RecordBatch.from_pydict({"topic": ["a", None], "value": ["1", "2"]})
    with pytest.raises(Refused, match="is null in a row"):
        encoded(request_of(), empty)


def test_rows_of_a_task_keep_their_order_in_a_partition(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    request = WriteRequest(
        topic, bootstrap=bootstrap, headers="headers", kafka={"batch.size": "1024"}
    )
    numbers = range(1000)
    headers_type = pa.list_(
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    )
    rows = pa.RecordBatch.from_pydict(
        {
            "key": [str(number % 17) for number in numbers],
            "value": [str(number) for number in numbers],
            "headers": pa.array([[{"key": "n", "value": b"1"}]] * 1000, headers_type),
        }
    )
    packed = list(Packer(request.plan(rows.schema.names), 7).pack(iter([rows])))
    by_partition: dict[int, list[int]] = {}
    order: list[tuple[int, int]] = []
    for some in packed:
        for row in some.to_pylist():
            assert row["lane"] == row["partition"]
            batch = bytearray(row["batch"])
            seal(batch)  # as its writer does
            columns = open_batches(memoryview(batch))
            assert columns.values is not None
            values: list[Any] = bytes_to_arrow(columns.values).to_pylist()
            assert len(values) == row["records"]
            by_partition.setdefault(row["partition"], []).extend(map(int, values))
            order.append((row["task"], row["number"]))
    assert order == [(7, number) for number in range(len(order))]
    assert len(order) > 3
    assert all(values == sorted(values) for values in by_partition.values())
    assert sorted(value for values in by_partition.values() for value in values) == list(numbers)


def test_small_batches_are_gathered_and_empty_ones_left_out() -> None:
    batches = [pa.RecordBatch.from_pydict({"a": list(range(size))}) for size in (0, 3, 2, 0, 4)]
    assert [batch.num_rows for batch in gathered(iter(batches), 40)] == [5, 4]
