"""Streams by the source without a JVM: the tests call what Spark calls."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.errors import Refused
from penstock.link.blocking import BlockingCluster
from penstock.link.offsets import committed_offsets
from penstock.link.settings import LinkSettings
from penstock.spark import read_task
from penstock.spark.source import batch_reader, read_schema
from tests.support.source_topic import V1, V2, SourceTopic, moved, rows, stream


def test_a_stream_advances_by_offsets_and_commits_its_progress(topic: SourceTopic) -> None:
    reader, schema = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.put(b"a", b"b", b"c")
    first = moved(reader, start, ReadMaxRows(2))
    assert first["offsets"] == {topic.name: {"0": 2}}
    tasks = reader.partitions(start, first)
    assert rows(reader, tasks, schema).column("value").to_pylist() == [b"a", b"b"]
    again = reader.partitions(start, first)
    assert [task.value for task in tasks] == [task.value for task in again]
    last = moved(reader, first)
    assert reader.partitions(last, last) == []
    assert moved(reader, last) == last
    with BlockingCluster(topic.bootstrap) as cluster:
        committed = cluster.run(committed_offsets(f"penstock.spark.{topic.name}"))
    assert [row.offset for row in committed.values()] == [3]


def test_the_read_limit_comes_from_the_options(topic: SourceTopic) -> None:
    assert stream(topic.options)[0].getDefaultReadLimit() == ReadAllAvailable()
    rows_max = stream(topic.options, maxOffsetsPerTrigger="5")[0]
    assert rows_max.getDefaultReadLimit() == ReadMaxRows(5)
    bytes_max = stream(topic.options, maxBytesPerTrigger="5")[0]
    assert bytes_max.getDefaultReadLimit() == ReadMaxBytes(5)


def test_a_limit_of_bytes_is_approximate(topic: SourceTopic) -> None:
    topic.put(*[b"x" * 1000] * 100)
    reader, _ = stream(topic.options, startingOffsets="earliest")
    end = moved(reader, reader.initialOffset(), ReadMaxBytes(20_000))
    assert 10 <= end["offsets"][topic.name]["0"] <= 20


def test_available_now_ends_where_the_topic_ended_at_its_start(topic: SourceTopic) -> None:
    reader, _ = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.put(b"a")
    reader.prepareForTriggerAvailableNow()
    topic.put(b"b")
    end = moved(reader, start)
    assert end["offsets"] == {topic.name: {"0": 1}}
    assert moved(reader, end) == end


def test_partitions_that_are_added_are_read_from_their_start(topic: SourceTopic) -> None:
    reader, schema = stream(topic.options)
    topic.put(b"before")
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(20)
    topic.put(b"new", partition=1)
    end = moved(reader, start)
    result = rows(reader, reader.partitions(start, end), schema)
    assert result.column("value").to_pylist() == [b"new"]


def test_a_version_registered_while_a_stream_runs_needs_no_restart(topic: SourceTopic) -> None:
    topic.put(*topic.orders(V1, 1))
    reader, schema = stream(topic.decoded, startingOffsets="earliest")
    start = reader.initialOffset()
    end = moved(reader, start)
    rows(reader, reader.partitions(start, end), schema)
    topic.put(*topic.orders(V2, 2))
    later = moved(reader, end)
    result = rows(reader, reader.partitions(end, later), schema)
    assert result.column("id").to_pylist() == [2]
    assert "note" not in result.column_names


def test_a_topic_deleted_and_created_again_is_refused_or_read_from_its_start(
    topic: SourceTopic,
) -> None:
    topic.put(b"a", b"b")
    reader, schema = stream(topic.options, startingOffsets="earliest")
    start = reader.initialOffset()
    end = moved(reader, start)
    planned = reader.partitions(start, end)
    topic.create_again()
    topic.put(b"c", b"d", b"e")
    with pytest.raises(Refused, match=f"{topic.name} was deleted and created again"):
        moved(reader, end)
    with pytest.raises(Refused, match=f"{topic.name} was deleted and created again"):
        rows(reader, planned, schema)
    lenient, schema = stream(topic.options, failOnDataLoss="false")
    result = rows(lenient, lenient.partitions(end, moved(lenient, end)), schema)
    assert result.column("value").to_pylist() == [b"c", b"d", b"e"]
    assert rows(lenient, planned, schema).num_rows == 0  # a batch that was planned before


def test_a_worker_that_knows_the_deleted_topic_reads_the_one_created_again(
    topic: SourceTopic,
) -> None:
    with ThreadPoolExecutor(1) as worker:  # a thread has its own metadata, like a process

        def read() -> list[Any]:
            schema = read_schema(topic.options)
            reader = batch_reader(topic.options, schema)
            planned = reader.partitions()
            result = worker.submit(rows, reader, planned, schema).result()
            return result.column("value").to_pylist()

        topic.put(b"a", b"b")
        assert read() == [b"a", b"b"]
        topic.create_again()
        topic.put(b"c")
        assert read() == [b"c"]


def test_a_deleted_topic_fails_a_task_or_is_left_out(
    topic: SourceTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.put(b"a")
    reader, schema = stream(topic.options, startingOffsets="earliest")
    lenient, _ = stream(topic.options, startingOffsets="earliest", failOnDataLoss="false")
    start = reader.initialOffset()
    planned = reader.partitions(start, moved(reader, start))
    topic.delete()
    with BlockingCluster(topic.bootstrap, LinkSettings(unknown_retry_ms=100)) as short:
        monkeypatch.setattr(read_task, "cluster_for", lambda _: short)
        with pytest.raises(Refused, match="with failOnDataLoss=false the query continues"):
            rows(reader, planned, schema)
        assert rows(lenient, planned, schema).num_rows == 0
