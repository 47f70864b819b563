"""Compacted topics as tables: the latest value of each key, also in a running stream."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.spark import join_table, table
from penstock.spark.latest_values import latest_by_key
from penstock.spark.tables import TableSource

MakeTopic = Callable[..., str]
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Customer",
        "fields": [{"name": "customer", "type": "string"}, {"name": "city", "type": "string"}],
    }
)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)))))
def test_the_last_row_of_each_key_is_the_latest(rows: list[tuple[str, int | None]]) -> None:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    whole = pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.int64()),
            "offset": pa.array(np.arange(len(rows))),
        }
    )
    latest = latest_by_key(whole).to_pylist()
    assert {row["key"]: row["value"] for row in latest} == dict(rows)
    assert [row["offset"] for row in latest] == sorted(row["offset"] for row in latest)


class Customers:
    """A compacted topic of customers and their cities."""

    def __init__(self, bootstrap: str, registry: Registry, topic: str) -> None:
        self.topic = topic
        self._write = Serializer(registry, topic, Contract(SCHEMA))
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def put(self, customer: str, city: str | None) -> None:
        value = None if city is None else {"customer": customer, "city": city}
        self._producer.produce(self.topic, self._write.serialize(value).content, customer)
        assert self._producer.flush(20) == 0


@pytest.fixture
def customers(bootstrap: str, registry: Registry, make_topic: MakeTopic) -> Customers:
    return Customers(bootstrap, registry, make_topic(2, **{"cleanup.policy": "compact"}))


def cities(frame: DataFrame) -> dict[str, str]:
    return {row["customer"]: row["city"] for row in frame.collect()}


def test_a_table_of_a_topic_created_again_has_the_rows_of_the_new_topic(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    source = TableSource({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    reader = source.reader(source.schema())
    planned = reader.partitions()  # once, as for the micro-batches of a query

    def put(value: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(topic, value, "key", partition=0)
        assert producer.flush(20) == 0

    def values() -> list[Any]:
        batches = [batch for partition in planned for batch in reader.read(partition)]
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    put("old")
    assert values() == [b"old"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(20)
    put("new")
    assert values() == [b"new"]


def test_fields_named_like_record_columns_are_columns_of_the_table(
    registry: Registry, registry_url: str, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    names = ["offset", "topic", "value"]
    fields = [{"name": name, "type": "string"} for name in names]
    schema = json.dumps({"type": "record", "name": "Move", "fields": fields})
    Serializer(registry, topic, Contract(schema)).prepare()
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url, "subscribe": topic}
    assert TableSource(options).schema().names == [*names, "_key"]


def test_a_table_has_the_latest_value_of_each_key(
    spark: SparkSession, customers: Customers, bootstrap: str, registry_url: str
) -> None:
    customers.put("ann", "Oslo")
    customers.put("bob", "Rome")
    customers.put("ann", "Bonn")
    customers.put("bob", None)
    customers.put("cyd", "Kyiv")
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url}
    frame = table(spark, customers.topic, options)
    assert frame.columns == ["customer", "city", "_key"]
    assert cities(frame) == {"ann": "Bonn", "cyd": "Kyiv"}
    customers.put("bob", "Nice")
    assert cities(frame) == {"ann": "Bonn", "cyd": "Kyiv", "bob": "Nice"}
    with pytest.raises(Refused, match="no column city_id"):
        join_table(spark.range(1), frame, on=["city_id"])


@pytest.mark.slow
def test_a_stream_is_joined_with_the_table_as_of_its_batch(
    spark: SparkSession, customers: Customers, bootstrap: str, registry_url: str, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    customers.put("zoe", "Riga")  # the schema is registered, so that the table has columns
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url}
    events = spark.readStream.schema("id long, customer string").json(str(orders))
    joined = join_table(events, table(spark, customers.topic, options), on=["customer"])
    seen: list[Any] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend((row["id"], row["city"]) for row in batch.collect())

    query = (
        joined.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for number, city in enumerate(["Oslo", "Bonn", None]):
            customers.put("ann", city)
            line = json.dumps({"id": number, "customer": "ann"})
            (tmp_path / "next").write_text(line)
            (tmp_path / "next").rename(orders / f"{number}.json")
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [(0, "Oslo"), (1, "Bonn"), (2, None)]
