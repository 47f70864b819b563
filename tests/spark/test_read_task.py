"""How a task requests its ranges, and what it returns to Spark first."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer

from penstock.link.fetch_range import fetch_range
from penstock.model import Offset
from penstock.spark import read_task, source
from penstock.spark.planning import OffsetRange
from penstock.spark.source import batch_reader, read_schema

MakeTopic: TypeAlias = Callable[..., str]
RECORDS = 600
VALUE = b"x" * 1000


@pytest.fixture
def topic(make_topic: MakeTopic, bootstrap: str) -> str:
    """A topic with batches of a few records."""
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


def test_a_short_range_is_requested_by_its_size_once_that_is_known(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def fetch(*args: Any, settings: Any, **more: Any) -> Any:
        sizes.append(settings.chunk_bytes)
        return fetch_range(*args, settings=settings, **more)

    monkeypatch.setattr(read_task, "fetch_range", fetch)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = batch_reader(options, read_schema(options))
    (whole,) = reader.partitions()
    everything = values(reader, whole)
    assert everything == [VALUE + str(number).encode() for number in range(RECORDS)]
    (sent,) = whole.value
    offsets = OffsetRange.from_spark(sent)
    for start, end in ((100, 103), (0, 60), (595, 600)):
        short = offsets._replace(start=Offset(start), end=Offset(end))
        whole.value = (short.to_spark(),)
        assert values(reader, whole) == everything[start:end]
    assert sizes[0] == read_task.CHUNK_BYTES
    assert all(size < 200_000 for size in sizes[1:])


def test_the_first_batch_of_a_long_task_has_no_rows(
    topic: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    reader = batch_reader(options, read_schema(options))
    (whole,) = reader.partitions()
    usual: list[Any] = list(reader.read(whole))
    monkeypatch.setattr(source, "LONG_TASK_OFFSETS", RECORDS - 1)
    first: Any
    first, *others = reader.read(whole)
    assert first.num_rows == 0
    assert first.schema.equals(usual[0].schema)
    assert others == usual
