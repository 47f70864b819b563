"""Schemas with rules in pipelines: refused by the same check as in the client."""

import json
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.errors import UnsupportedRuleError
from penstock.serde.frame import Side
from penstock.spark import from_registry, to_registry
from penstock.spark.encode_rows import check_columns
from penstock.spark.read_options import PayloadFormat
from penstock.spark.reader_schemas import find_readers
from penstock.spark.write_options import WriteRequest
from penstock.testing.platform import Platform

NUMBER = {"type": "record", "name": "Number", "fields": [{"name": "id", "type": "long"}]}
RULE = {"name": "positive", "kind": "CONDITION", "type": "CEL", "expr": "message.id > 0"}


@pytest.fixture
def topic(penstock: Platform) -> str:
    return penstock.name("rules")


def register(registry: Registry, topic: str, **rule: Any) -> None:
    body = {"schema": json.dumps(NUMBER), "ruleSet": {"domainRules": [{**RULE, **rule}]}}
    registry.api.register(f"{topic}-value", body)


@pytest.mark.parametrize("schema", [Contract(), Contract(json.dumps(NUMBER))])
def test_a_sink_refuses_a_schema_with_a_write_rule(
    registry: Registry, registry_url: str, topic: str, schema: Contract
) -> None:
    register(registry, topic, mode="WRITE")
    request = WriteRequest(topic, bootstrap="127.0.0.1:1", registry=registry_url, schema=schema)
    with pytest.raises(UnsupportedRuleError, match="positive"):
        request.prepared()
    with pytest.raises(UnsupportedRuleError, match="positive"):
        check_columns(request.plan(["id"]), pa.schema({"id": pa.int64()}))
    with pytest.raises(UnsupportedRuleError, match="positive"):
        to_registry("number", registry_url, topic, schema=schema)


@pytest.mark.parametrize("reader_schema", ["latest", "1"])
def test_a_source_refuses_to_read_as_a_version_with_a_read_rule(
    registry: Registry, registry_url: str, topic: str, reader_schema: str
) -> None:
    register(registry, topic, mode="READ")
    with pytest.raises(Refused, match=r"version 1 of .*'positive'"):
        find_readers(registry, [topic], Side.VALUE, PayloadFormat.AVRO, reader_schema)
    with pytest.raises(Refused, match=r"version 1 of .*'positive'"):
        from_registry("value", registry_url, topic, schema=reader_schema)


def test_a_source_reads_as_a_version_whose_rule_may_fail(registry: Registry, topic: str) -> None:
    register(registry, topic, mode="READ", onFailure="NONE")
    readers = find_readers(registry, [topic], Side.VALUE, PayloadFormat.AVRO, "latest")
    deserializer = BatchDeserializer(registry, topic, reader=readers[topic])
    assert deserializer.arrow_schema().names == ["id"]


def test_rows_of_a_schema_with_a_read_rule_are_quarantined(
    spark: SparkSession, penstock: Platform, registry: Registry, bootstrap: str, registry_url: str
) -> None:
    topic = penstock.make_topic()
    register(registry, topic, mode="READ")
    schema_id = registry.latest(f"{topic}-value").id
    assert schema_id is not None
    with Producer(bootstrap, topic) as producer:
        producer.send(b"\0" + schema_id.to_bytes(4, "big") + b"\x02").result(30)
    (row,) = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("registry", registry_url)
        .option("subscribe", topic)
        .option("value", "avro")
        .option("readerSchema", json.dumps(NUMBER))
        .option("onError", "quarantine")
        .load()
        .collect()
    )
    assert row["id"] is None
    assert "'positive'" in row["_error"]["detail"]
