"""JSON Schema's `format` in pipelines: asserted only by an option or a contract."""

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.schemas.model import SchemaType
from penstock.serde.contract import Contract
from penstock.serde.errors import EncodeError
from penstock.spark.encode_rows import RowEncoder
from penstock.spark.write_options import WriteRequest
from penstock.testing.platform import Platform

SCHEMA = json.dumps(
    {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
)
NAIVE = "2026-01-01T12:00:00"


def test_a_source_asserts_formats_with_the_option(
    spark: SparkSession, penstock: Platform, registry: Registry, bootstrap: str, registry_url: str
) -> None:
    topic = penstock.make_topic()
    contract = Contract(SCHEMA, SchemaType.JSON)
    with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
        producer.send({"at": NAIVE}).result(30)
    reader = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("registry", registry_url)
        .option("subscribe", topic)
    )
    (row,) = reader.load().collect()
    assert (row["at"], row["_error"]) == (NAIVE, None)
    (row,) = reader.option("assertFormats", "true").load().collect()
    assert row["at"] is None
    assert row["_error"]["reason"] == "rule_violated"


@pytest.mark.parametrize("assert_formats", [False, True])
def test_a_sink_asserts_formats_if_its_contract_does(
    penstock: Platform, registry_url: str, assert_formats: bool
) -> None:
    contract = Contract(SCHEMA, SchemaType.JSON, assert_formats=assert_formats)
    request = WriteRequest(
        penstock.name("formats"),
        bootstrap=penstock.bootstrap,
        registry=registry_url,
        schema=contract,
    ).prepared()
    encoder = RowEncoder(request.plan(["at"]))
    rows = pa.RecordBatch.from_pydict({"at": [NAIVE]})
    if not assert_formats:
        assert len(list(encoder.encode(rows))) == 1
        return
    with pytest.raises(EncodeError, match="date-time"):
        list(encoder.encode(rows))
