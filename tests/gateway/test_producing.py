"""Producing over HTTP: forms of keys and values, schemas, placement, limits, errors per record."""

import base64
import json
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.client.registry import Registry
from penstock.gateway.produce.key_placement import murmur2
from penstock.schemas.model import SchemaText, SchemaType
from penstock.serde.frame import SchemaId, write_prefix
from penstock.testing.platform import Platform

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "cents", "type": "long"}]}


def produce(http: httpx.Client, topic: str, body: Any, **options: Any) -> list[dict[str, Any]]:
    answer = http.post(f"/topics/{topic}/produce", json=body, params=options)
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


def events(http: httpx.Client, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get(f"/topics/{topic}/partitions/{partition}/events").json()[
        "events"
    ]
    return found


def raw_records(penstock: Platform, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": penstock.bootstrap, "group.id": "raw"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, timeout=20)
    consumer.close()
    return records


def test_one_record_is_written_and_read_again(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    body = {
        "key": "berlin",
        "value": {"cents": 1250},
        "headers": [["source", "shop"], ["raw", {"base64": "/w=="}], ["none", None]],
        "timestamp": 1_700_000_000_000,
    }
    assert produce(http, topic, body) == [{"partition": 0, "offset": 0}]
    (event,) = events(http, topic)
    assert {name: event[name] for name in body} == body
    (record,) = raw_records(penstock, topic, 1)
    assert (record.key(), json.loads(record.value())) == (b"berlin", {"cents": 1250})
    assert record.headers() == [("source", b"shop"), ("raw", b"\xff"), ("none", None)]


def test_every_form_of_key_and_value(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    rows = [
        {"value": None, "key": "k"},
        {"value": "text"},
        {"value": 12345678901234567890123},
        {"value_base64": "AAEC", "key_base64": "/w=="},
        {"value": [1, {"a": None}], "key": {"id": 1}},
        {"value": "", "key": ""},
    ]
    results = produce(http, topic, {"records": rows})
    assert [row["offset"] for row in results] == list(range(6))
    pairs = [(record.key(), record.value()) for record in raw_records(penstock, topic, 6)]
    assert pairs == [
        (b"k", None),
        (None, b'"text"'),
        (None, b"12345678901234567890123"),
        (b"\xff", b"\0\1\2"),
        (b'{"id":1}', b'[1,{"a":null}]'),
        (b"", b'""'),
    ]


def test_a_bad_record_has_an_error_and_the_others_are_written(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic(partitions=2)
    rows = [
        {"value": 1, "partition": 1},
        {"key": "no value"},
        {"value_base64": "?"},
        {"value": 1, "partition": 9},
        {"value": 1, "value_base64": "AA=="},
        {"value": 1, "headers": [["h", {"hex": "00"}]]},
        {"value": 1, "value_schema_id": 999_999},
        {"value": 2, "partition": 1},
    ]
    results = produce(http, topic, {"records": rows})
    codes = [row.get("error", {}).get("code") for row in results]
    assert codes == [
        None, "invalid_record", "invalid_record", "unknown_topic_or_partition", "invalid_record",
        "invalid_record", "unknown_schema", None,
    ]  # fmt: skip
    assert [event["value"] for event in events(http, topic, 1)] == [1, 2]


@pytest.mark.parametrize("at", ["body", "record"])
def test_a_schema_text_is_registered_and_values_are_written_with_it(
    http: httpx.Client, penstock: Platform, registry: Registry, at: str
) -> None:
    topic = penstock.make_topic()
    schema = {"value_schema": ORDER}
    row: dict[str, Any] = {"value": {"cents": 5}}
    body = {**schema, "records": [row]} if at == "body" else {"records": [{**row, **schema}]}
    produce(http, topic, body)
    latest = registry.latest(f"{topic}-value")
    (event,) = events(http, topic)
    assert event["value"] == {"cents": 5}
    assert event["value_schema_id"] == latest.id
    by_id = {"value": {"cents": 6}, "value_schema_id": latest.id}
    by_version = {"value": {"cents": 7}, "value_schema_version": 1}
    wrong = {"value": {"cents": "x"}, "value_schema_version": 1}
    results = produce(http, topic, {"records": [by_id, by_version, wrong]})
    assert results[2]["error"]["code"] == "invalid_value"
    assert [event["value"]["cents"] for event in events(http, topic)] == [5, 6, 7]


RULE = {"name": "enc", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD"}


def register_with_rule(registry: Registry, topic: str, on_failure: str) -> int:
    rules = {"domainRules": [{**RULE, "tags": ["PII"], "onFailure": on_failure}]}
    body = {"schema": json.dumps(ORDER), "ruleSet": rules}
    return int(registry.api.register(f"{topic}-value", body)["id"])


@pytest.mark.parametrize("form", ["id", "version", "text"])
def test_a_schema_with_a_write_rule_is_refused_by_the_name_of_the_rule(
    http: httpx.Client, penstock: Platform, registry: Registry, form: str
) -> None:
    topic = penstock.make_topic()
    schema_id = register_with_rule(registry, topic, "NONE,NONE")
    forms: dict[str, dict[str, Any]] = {
        "id": {"value_schema_id": schema_id},
        "version": {"value_schema_version": 1},
        "text": {"value_schema": ORDER},
    }
    refused, written = produce(
        http, topic, {"records": [{"value": {"cents": 5}, **forms[form]}, {"value": {"cents": 6}}]}
    )
    assert refused["error"]["code"] == "invalid_schema"
    assert "nothing was written" in refused["error"]["message"]
    assert "'enc'" in refused["error"]["message"]
    assert written == {"partition": 0, "offset": 0}
    assert [event["value"] for event in events(http, topic)] == [{"cents": 6}]


@pytest.mark.parametrize("on_failure", ["ERROR,NONE", "NONE,ERROR"])
def test_a_value_whose_schema_has_a_read_rule_is_decoded_only_if_the_rule_may_fail(
    http: httpx.Client, penstock: Platform, registry: Registry, on_failure: str
) -> None:
    topic = penstock.make_topic()
    schema_id = register_with_rule(registry, topic, on_failure)
    framed = base64.b64encode(write_prefix(SchemaId(schema_id)) + b"\x0a").decode()
    produce(http, topic, {"value_base64": framed})
    (event,) = events(http, topic)
    if on_failure == "ERROR,NONE":
        assert event["value"] == {"cents": 5}
    else:
        assert event["value_base64"] == framed
        assert "the rule 'enc'" in str(event["error"])


def test_avro_values_come_back_as_they_were_given(http: httpx.Client, penstock: Platform) -> None:
    topic = penstock.make_topic()
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    fields = [
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": price},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": ["null", "bytes"]}},
    ]  # fmt: skip
    value = {
        "raw": base64.b64encode(b"\xff\0").decode(),
        "price": "12.50",
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00Z",
        "note": "x",
        "tags": {"a": base64.b64encode(b"1").decode(), "b": None},
    }
    schema = {"type": "record", "name": "Mixed", "fields": fields}
    named = {**value, "note": {"string": "named"}}
    results = produce(
        http, topic, {"value_schema": schema, "records": [{"value": value}, {"value": named}]}
    )
    assert [row.get("offset") for row in results] == [0, 1], results
    first, second = events(http, topic)
    assert first["value"] == value
    assert second["value"]["note"] == "named"


def test_json_schema_and_protobuf_and_keys_under_a_schema(
    http: httpx.Client, penstock: Platform, registry: Registry
) -> None:
    topic = penstock.make_topic()
    fields = "int64 cents = 1; bytes raw = 2; map<int32, string> m = 3;"
    text = f'syntax = "proto3"; message Order {{ {fields} }}'
    protobuf = {"value_schema": text, "value_schema_type": "PROTOBUF"}
    value = {"cents": 3, "raw": "AAE=", "m": {"1": "one"}}
    row = {"value": value, "key": 7, "key_schema": '"long"'}
    result = produce(http, topic, {**protobuf, **row})
    assert result == [{"partition": 0, "offset": 0}]
    other = penstock.make_topic()
    schema = '{"type": "object", "properties": {"cents": {"type": "integer"}}}'
    registry.register(f"{other}-value", SchemaText(SchemaType.JSON, schema))
    rows = [{"value": {"cents": 1}}, {"value": {"cents": "x"}}]
    results = produce(http, other, {"value_schema_version": 1, "records": rows})
    assert results[1]["error"]["code"] == "invalid_value"
    (event,) = events(http, topic)
    assert event["value"] == value
    assert event["key"] == 7
    (event,) = events(http, other)
    assert event["value"] == {"cents": 1}


def test_keys_are_placed_as_javas_client_places_them(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic(partitions=7)
    keys = [f"key-{n}" for n in range(50)]
    results = produce(http, topic, {"records": [{"key": key, "value": 1} for key in keys]})
    placed: dict[bytes | None, int | None] = {}

    def note(error: Any, record: Any) -> None:
        placed[record.key()] = record.partition()

    settings = {"bootstrap.servers": penstock.bootstrap, "partitioner": "murmur2_random"}
    producer = Producer(settings)
    for key in keys:
        producer.produce(topic, b"1", key.encode(), on_delivery=note)
    producer.flush(30)
    assert {
        key.encode(): row["partition"] for key, row in zip(keys, results, strict=True)
    } == placed


def test_the_hash_is_javas() -> None:
    assert murmur2(b"21") == (-973932308) & 0xFFFFFFFF
    assert murmur2(b"foobar") == (-790332482) & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == (-985981536) & 0xFFFFFFFF
    assert murmur2(b"") == 275646681


@pytest.mark.parametrize("acks", ["all", "1", "0", "-1"])
def test_acks_are_as_asked_for(http: httpx.Client, penstock: Platform, acks: str) -> None:
    topic = penstock.make_topic()
    (result,) = produce(http, topic, {"value": 1}, acks=acks)
    assert result == {"partition": 0, "offset": None if acks == "0" else 0}


def test_a_topic_is_never_created(http: httpx.Client, penstock: Platform) -> None:
    name = penstock.name("unborn")
    missing = http.post(f"/topics/{name}/produce", json={"value": 1})
    assert missing.status_code == 404
    assert name not in {row["name"] for row in http.get("/topics").json()["topics"]}


@pytest.mark.parametrize(
    ("body", "options", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b'{"records": []}', {}, 400),
        (b'{"value": 1, "typo": 2}', {}, 400),
        (b'{"value": 1}', {"acks": "2"}, 400),
        (b'{"value": "\xff"}', {}, 400),
        (b'{"records": [' + b",".join([b'{"value": 1}'] * 10_001) + b"]}", {}, 413),
        (b'{"value": "' + b"x" * (16 << 20) + b'"}', {}, 413),
    ],
)
def test_what_cannot_be_a_request_is_refused_as_a_whole(
    http: httpx.Client, penstock: Platform, body: bytes, options: dict[str, str], status: int
) -> None:
    topic = penstock.make_topic()
    headers = {"Content-Type": "application/json"}
    refused = http.post(f"/topics/{topic}/produce", content=body, params=options, headers=headers)
    assert refused.status_code == status
    assert refused.json()["error"]["message"]
    assert events(http, topic) == []


def test_a_record_larger_than_the_topic_allows_fails_alone(
    http: httpx.Client, penstock: Platform
) -> None:
    topic = penstock.make_topic(settings={"max.message.bytes": "20000"})
    rows = [{"value": 1}, {"value": "x" * 2_000_000}, {"value": 3}]
    results = produce(http, topic, {"records": rows})
    assert results[1]["error"]["code"] == "message_too_large"
    assert [event["value"] for event in events(http, topic)] == [1, 3]
