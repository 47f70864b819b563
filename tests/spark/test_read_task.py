"""How a task asks for its ranges, and what it hands to Spark first."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer

from penstock.link.fetch_range import fetch_range
from penstock.spark import read_task, source
from penstock.spark.planning import OffsetRange
from penstock.spark.source import batch_reader, read_schema

MakeTopic: TypeAlias = Callable[..., str]
RECORDS = 600
VALUE = b"x" * 1000


@pytest.fixture
def topic(make_topic: MakeTopic, bootstrap: str) -> str:
    """In batches of a few records."""
    name = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10, "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(name, VALUE + str(number).encode(), partition=0)
    assert producer.flush(20) == 0
    return name


def values(reader: Any, partition: Any) -> list[bytes]:
    return [
        value for batch in reader.read(partition) for value in batch.column("value").to_pylist()
    ]


def test_a_short_range_is_asked_for_by_its_size_once_that_is_known(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def noted(*args: Any, settings: Any, **more: Any) -> Any:
        asked.append(settings.chunk_bytes)
        return fetch_range(*args, settings=settings, **more)

    monkeypatch.setattr(read_task, "fetch_range", noted)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = batch_reader(options, read_schema(options))
    (whole,) = reader.partitions()
    found = values(reader, whole)
    assert found == [VALUE + str(number).encode() for number in range(RECORDS)]
    (told,) = whole.value
    one = OffsetRange.from_spark(told)
    for start, end in ((100, 103), (0, 60), (595, 600)):
        some = one._replace(start=start, end=end)  # type: ignore[arg-type]  # plain numbers here
        whole.value = (some.to_spark(),)
        assert values(reader, whole) == found[start:end]
    assert asked[0] == read_task.CHUNK_BYTES
    assert all(size < 200_000 for size in asked[1:])


def test_what_spark_holds_while_a_long_task_runs_is_a_batch_without_rows(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = batch_reader(options, read_schema(options))
    (whole,) = reader.partitions()
    usual: list[Any] = list(reader.read(whole))
    monkeypatch.setattr(source, "LONG_OFFSETS", RECORDS - 1)
    first: Any
    first, *others = reader.read(whole)
    assert first.num_rows == 0
    assert first.schema.equals(usual[0].schema)
    assert others == usual
