"""The source as users call it, on Spark."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.client.quarantine import read_quarantined
from penstock.client.registry import Registry
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets
from penstock.serde.contract import Contract
from penstock.serde.serializers import Serializer
from penstock.spark import split_quarantine, write_quarantine

pytestmark = pytest.mark.timeout(400)  # on a busy machine Spark takes a minute to start
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "total", "type": "double"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        ],
    }
)


@pytest.fixture
def orders(make_topic: Callable[..., str], bootstrap: str, registry: Registry) -> str:
    """A topic of two partitions with ten orders in each, and one record that is not an order."""
    name = make_topic(2)
    write = Serializer(registry, name, Contract(ORDER))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        order = {"id": number, "total": number / 2, "at": number, "tags": {"t": [number]}}
        producer.produce(name, write.serialize(order).content, partition=number % 2)
    producer.produce(name, b"not an order", key=b"k", headers=[("h", b"1")], partition=1)
    assert producer.flush(20) == 0
    return name


@pytest.fixture
def options(orders: str, bootstrap: str, registry_url: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": orders,
        "registry": registry_url,
        "includeHeaders": "true",
    }


def test_a_topic_is_a_table_and_its_bad_rows_go_to_quarantine(
    spark: SparkSession, options: dict[str, str], orders: str, bootstrap: str
) -> None:
    frame = spark.read.format("penstock").options(**options).load()
    good, bad = split_quarantine(frame)
    row = good.where("id = 7").collect()[0]
    assert (row.total, row.at.microsecond, row.tags, row["_partition"]) == (
        3.5,
        7000,
        {"t": [7]},
        1,
    )
    assert good.count() == 20
    assert write_quarantine(bad, bootstrap, client="test") == 1
    record = read_quarantined(*next_record(bootstrap, f"{orders}.quarantine"))
    assert (record.origin.partition, record.origin.offset, record.origin.key) == (1, 10, b"k")
    assert record.origin.value == b"not an order"
    assert list(record.origin.headers) == [("h", b"1")]
    assert (record.failure.reason, record.failure.client) == ("not_framed", "test")
    assert record.failure.subject == f"{orders}-value"


def next_record(bootstrap: str, topic: str) -> tuple[Any, Any, Any]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "t", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    record = consumer.poll(20)
    consumer.close()
    assert record is not None
    return record.key(), record.value(), record.headers()


@pytest.fixture(params=["false", "true"])
def push_down(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """A session may have filter push-down enabled for other sources."""
    name = "spark.sql.python.filterPushdown.enabled"
    before = str(spark.conf.get(name))
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.set(name, before)


@pytest.mark.usefixtures("push_down")
def test_a_frame_used_with_and_without_a_filter_has_the_correct_rows_each_time(
    spark: SparkSession, options: dict[str, str]
) -> None:
    frame = spark.read.format("penstock").options(**options).load()
    assert frame.count() == 21
    condition = (
        "_partition = 1 and _offset >= 3 and _offset < 5 and _timestamp > timestamp'2020-01-01'"
    )
    assert [row.id for row in frame.where(condition).select("id").collect()] == [7, 9]
    assert frame.count() == 21
    assert frame.where("_partition = 0").count() == 10
    assert frame.where("_partition = 1 and _offset < 3").count() == 3
    assert frame.where("_topic = 'another'").count() == 0
    assert frame.count() == 21
    both = frame.where("_offset < 2").union(frame)
    assert both.count() == 4 + 21


@pytest.mark.usefixtures("push_down")
def test_a_temporary_view_and_a_batch_write_have_all_rows_after_a_filtered_use(
    spark: SparkSession,
    options: dict[str, str],
    make_topic: Callable[..., str],
    bootstrap: str,
    tmp_path: Path,
) -> None:
    option_list = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING penstock OPTIONS ({option_list})")
    assert spark.sql("SELECT id FROM seen WHERE _partition = 0 AND _offset < 4").count() == 4
    assert spark.sql("SELECT id FROM seen").count() == 21
    assert spark.sql("SELECT id FROM seen WHERE _offset = 0").count() == 2
    spark.table("seen").select("id").write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).count() == 21
    copy = make_topic(1)
    brokers = {"kafka.bootstrap.servers": bootstrap}
    values = spark.sql("SELECT CAST(_offset AS STRING) AS value FROM seen").coalesce(1)
    values.write.format("penstock").options(**brokers, topic=copy).mode("append").save()
    assert spark.read.format("penstock").options(**brokers, subscribe=copy).load().count() == 21


def test_a_stream_is_read_in_limited_batches_and_continues_where_it_stopped(
    spark: SparkSession, options: dict[str, str], orders: str, bootstrap: str, tmp_path: Path
) -> None:
    seen: list[list[int]] = []

    def note(batch: DataFrame, _: int) -> None:
        seen.append(sorted(row["_offset"] for row in batch.select("_offset").collect()))

    def run() -> None:
        stream = spark.readStream.format("penstock").options(**options)
        stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "12")
        writer = stream.option("group", "shown").load().writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query.start().awaitTermination()

    run()
    assert [len(batch) for batch in seen] == [12, 9]
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(orders, b"late", partition=0)
    producer.flush(20)
    run()
    assert seen[2:] == [[10]]
    with BlockingCluster(bootstrap) as cluster:
        committed = cluster.run(committed_offsets("shown"))
    assert sorted(row.offset for row in committed.values()) == [11, 11]


def test_a_topic_created_again_is_read_by_workers_that_know_the_old_one(
    spark: SparkSession, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(1)
    brokers = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def put(*values: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(20) == 0

    def read() -> list[str]:
        frame = spark.read.format("penstock").options(**brokers).load()
        rows = frame.repartition(2).selectExpr("string(value) AS value").collect()
        return sorted(row.value for row in rows)

    put("a", "b")
    seen: list[str] = []

    def note(batch: DataFrame, _: int) -> None:
        seen.extend(row.value for row in batch.selectExpr("string(value) AS value").collect())

    stream = spark.readStream.format("penstock").options(**brokers, startingOffsets="earliest")
    query = (
        stream.option("failOnDataLoss", "false")
        .load()
        .writeStream.foreachBatch(note)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        for number in range(2):
            query.processAllAvailable()
            assert read() == sorted(seen[-2:])
            admin.delete_topics([topic])[topic].result(20)
            again = NewTopic(topic, num_partitions=1, replication_factor=1)
            admin.create_topics([again])[topic].result(20)
            put(f"c{number}", f"d{number}")
        query.processAllAvailable()
        assert read() == ["c1", "d1"]
    finally:
        query.stop()
    assert seen == ["a", "b", "c0", "d0", "c1", "d1"]


def test_errors_reach_the_user_with_our_messages(
    spark: SparkSession, options: dict[str, str], orders: str
) -> None:
    with pytest.raises(PySparkException, match="did you mean maxOffsetsPerTrigger"):
        spark.read.format("penstock").options(**options, maxOffsetPerTrigger="1").load()
    frame = spark.read.format("penstock").options(**options, columns="id").load()
    with pytest.raises(PySparkException, match=f"{orders}-1 at offset 10: cannot decode the value"):
        frame.collect()
