"""The sink on Spark: micro-batches and jobs, each written once and as a whole."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.registry import Registry
from penstock.errors import ErrorCode, Refused
from penstock.serde.serializers import Deserializer
from penstock.spark import WriteError, WriteRequest, exactly_once, record_batches
from tests.support.spark_connect import ConnectServer

MakeTopic: TypeAlias = Callable[..., str]
CLIENT = Path(__file__).with_name("connect_client.py")
CLIENT_S = 300
ROWS = 40
ORDER = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"}, {"name": "store", "type": "string"}]}"""


def committed(bootstrap: str, topic: str) -> list[Any]:
    """Every message that a read_committed reader sees now, in order within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        count = len(consumer.list_topics(topic).topics[topic].partitions)
        messages: list[Any] = []
        for index in range(count):
            start = TopicPartition(topic, index, 0)
            end = consumer.get_watermark_offsets(start, timeout=20)[1]
            consumer.assign([start])
            while max(0, consumer.position([start])[0].offset) < end:  # negative: nothing read yet
                messages += consumer.consume(1000, timeout=0.2)
        return messages
    finally:
        consumer.close()


def stream(spark: SparkSession, folder: Path, rows: int = 200) -> DataFrame:
    """A stream over files, of two batches."""
    for number in range(2):
        frame = spark.range(number * rows, (number + 1) * rows, numPartitions=3)
        frame.selectExpr("id", "concat('store-', id % 7) AS store").write.mode("append").json(
            str(folder / "input")
        )
    return (
        spark.readStream.schema("id long, store string")
        .option("maxFilesPerTrigger", 3)
        .json(str(folder / "input"))
    )


def run(frame: DataFrame, sink: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_is_written_once_if_its_last_batch_is_repeated(
    spark: SparkSession, bootstrap: str, registry_url: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(3)
    frame = stream(spark, tmp_path)
    checkpoint = tmp_path / "checkpoint"
    batch_ids: list[int] = []
    request = WriteRequest(
        topic, bootstrap=bootstrap, registry=registry_url, key="store", schema=ORDER
    )

    def sink() -> Callable[[DataFrame, int], None]:
        write = exactly_once(request)

        def write_and_note(batch: DataFrame, batch_id: int) -> None:
            write(batch, batch_id)
            batch_ids.append(batch_id)

        return write_and_note

    run(frame, sink(), checkpoint)
    (checkpoint / "commits" / "1").unlink()  # as if the driver had died before Spark's own log
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run(frame, sink(), checkpoint)
    messages = committed(bootstrap, topic)
    with Registry(registry_url) as registry:
        reader = Deserializer(registry, topic)
        orders = [(message, reader.deserialize(message.value())) for message in messages]
    assert batch_ids == [0, 1, 1]
    assert sorted(order["id"] for _, order in orders) == list(range(400))
    assert all(message.key().decode() == order["store"] for message, order in orders)
    partitions = {message.key(): message.partition() for message in messages}
    assert all(partitions[message.key()] == message.partition() for message in messages)


def test_a_new_checkpoint_is_written_although_its_batches_have_the_same_numbers(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)
    frame = stream(spark, tmp_path, rows=20).selectExpr("store AS key", "string(id) AS value")
    for name in ("first", "second"):
        sink = exactly_once(WriteRequest(topic, bootstrap=bootstrap), query=topic)
        run(frame, sink, tmp_path / name)
    values = [int(message.value()) for message in committed(bootstrap, topic)]
    assert sorted(values) == sorted([*range(40), *range(40)])


def test_five_queries_of_one_driver_write_concurrently(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    frame = stream(spark, tmp_path, rows=30).selectExpr("store AS key", "string(id) AS value")
    topics = [make_topic(2) for _ in range(5)]
    requests = [WriteRequest(topic, bootstrap=bootstrap) for topic in topics]
    queries = [
        frame.writeStream.foreachBatch(exactly_once(request))
        .option("checkpointLocation", str(tmp_path / str(request.topic)))
        .trigger(availableNow=True)
        .start()
        for request in requests
    ]
    while any(query.isActive for query in queries):
        exactly_once(requests[0])  # a sixth thread with the same brokers
    for query in queries:
        query.awaitTermination()  # raises what the query failed with
    for topic in topics:
        values = [int(message.value()) for message in committed(bootstrap, topic)]
        assert sorted(values) == list(range(60))


def test_a_query_that_runs_twice_continues_as_its_younger_instance(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(2)

    def start(name: str) -> StreamingQuery:
        frame = spark.readStream.schema("value string").text(str(tmp_path / name))
        sink = exactly_once(WriteRequest(topic, bootstrap=bootstrap), query=topic)
        writer = frame.writeStream.foreachBatch(sink)
        return writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}")).start()

    def put(name: str, value: str) -> None:
        spark.createDataFrame([(value,)], "value string").write.mode("append").text(
            str(tmp_path / name)
        )

    put("older", "a")
    put("younger", "b")
    older = start("older")
    older.processAllAvailable()
    younger = start("younger")
    try:
        younger.processAllAvailable()
        put("older", "lost")
        with pytest.raises(StreamingQueryException, match="another instance of this query"):
            older.awaitTermination(120)
        put("younger", "c")
        younger.processAllAvailable()
    finally:
        older.stop()
        younger.stop()
    assert sorted(message.value() for message in committed(bootstrap, topic)) == [b"a", b"b", b"c"]


def test_a_failure_of_a_task_reaches_the_driver_with_its_code(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(1, **{"max.message.bytes": "1000"})
    sink = exactly_once(WriteRequest(topic, bootstrap=bootstrap))
    failures: list[WriteError] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        try:
            sink(batch.selectExpr("repeat('x', 5000) AS value"), batch_id)
        except WriteError as failure:
            failures.append(failure)

    run(stream(spark, tmp_path, rows=1), write, tmp_path / "checkpoint")
    assert {failure.code for failure in failures} == {ErrorCode.message_too_large}
    assert committed(bootstrap, topic) == []


def test_a_batch_job_is_one_transaction_and_a_layout_with_two_writers_is_refused(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    frame = spark.range(0, 1000, numPartitions=4).selectExpr(
        "string(id % 10) AS key", "string(id) AS value"
    )
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    with pytest.raises(Exception, match="record_batches"):
        frame.write.format("penstock").options(**options).mode("append").save()
    assert committed(bootstrap, topic) == []
    packed = record_batches(frame, WriteRequest(topic, bootstrap=bootstrap))
    packed.write.format("penstock").options(**options).mode("append").save()
    frame.coalesce(1).write.format("penstock").options(**options).mode("append").save()
    values = [int(message.value()) for message in committed(bootstrap, topic)]
    assert sorted(values) == sorted([*range(1000), *range(1000)])


def test_a_stream_by_format_is_written_once_if_its_last_batch_is_repeated(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(3)
    frame = stream(spark, tmp_path, rows=50).selectExpr("store AS key", "string(id) AS value")
    packed = record_batches(frame, WriteRequest(topic, bootstrap=bootstrap))
    checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        query = (
            packed.writeStream.format("penstock")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    values = [int(message.value()) for message in committed(bootstrap, topic)]
    assert sorted(values) == list(range(100))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_streams_by_format_under_one_name_fail_and_are_written_once_when_they_run_again(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, batches = make_topic(2), 5
    names = ("first", "second")
    for name in names:
        for number in range(batches):
            path = tmp_path / name / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{name}-{number}-a\n{name}-{number}-b\n")

    def start(name: str) -> StreamingQuery:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / name))
        packed = record_batches(lines, WriteRequest(topic, bootstrap=bootstrap))
        writer = packed.writeStream.format("penstock").option("query", topic)
        writer = writer.option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        return writer.trigger(availableNow=True).start()

    running = {name: start(name) for name in names}
    failures = 0
    while running:
        for name, query in list(running.items()):
            try:
                if query.awaitTermination(1):
                    del running[name]
            except StreamingQueryException:
                failures += 1
                running[name] = start(name)
    assert failures > 0, "they did not meet"
    expected = [f"{name}-{n}-{row}" for name in names for n in range(batches) for row in "ab"]
    assert sorted(each.value().decode() for each in committed(bootstrap, topic)) == sorted(expected)


def test_a_frame_that_is_not_a_micro_batch_is_refused(
    spark: SparkSession, bootstrap: str, make_topic: MakeTopic
) -> None:
    sink = exactly_once(WriteRequest(make_topic(1), bootstrap=bootstrap, value="value"))
    with pytest.raises(Refused, match="not a micro-batch"):
        sink(spark.sql("SELECT 'a' AS value"), 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer (make java)")
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


class Client:
    """Runs steps of the client program."""

    def __init__(self, server: ConnectServer, bootstrap: str, folder: Path) -> None:
        self._server = server
        self._bootstrap = bootstrap
        self._folder = folder
        files = folder / "input"
        files.mkdir()
        for file in range(2):
            numbers = range(file * ROWS // 2, (file + 1) * ROWS // 2)
            rows = [{"id": number, "store": f"store-{number % 7}"} for number in numbers]
            (files / f"{file}.json").write_text("\n".join(json.dumps(row) for row in rows))

    def run(self, step: str, *topics: str) -> str:
        arguments = {
            "step": step,
            "url": self._server.url,
            "bootstrap": self._bootstrap,
            "folder": str(self._folder),
            "topics": topics,
        }
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        ended = subprocess.run(
            [sys.executable, str(CLIENT), json.dumps(arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-4000:] + self._server.said()[-4000:]
        return ended.stdout


@pytest.fixture
def client(server: ConnectServer, bootstrap: str, tmp_path: Path) -> Client:
    return Client(server, bootstrap, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(CLIENT_S + 200)
def test_streams_over_connect_are_written_once_if_their_last_batches_are_repeated(
    client: Client, bootstrap: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic(2), make_topic(3)]
    client.run("exactly_once", *topics)
    for topic in topics:
        values = [int(message.value()) for message in committed(bootstrap, topic)]
        assert sorted(values) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.timeout(CLIENT_S + 200)
def test_a_stream_over_connect_without_a_checkpoint_is_refused_before_it_writes(
    client: Client, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    assert "give exactly_once(..., checkpoint=...)" in client.run("no_checkpoint", topic)
    assert committed(bootstrap, topic) == []


@pytest.mark.slow
@pytest.mark.timeout(CLIENT_S + 200)
def test_frames_over_connect_are_packed_for_the_format(
    client: Client, bootstrap: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic(3), make_topic(3)]
    client.run("record_batches", *topics)
    for topic in topics:
        values = [int(message.value()) for message in committed(bootstrap, topic)]
        assert sorted(values) == list(range(ROWS))
