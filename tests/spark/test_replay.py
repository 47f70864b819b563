"""A bounded re-read: every event once, through one schema, also after an interruption."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame, SparkSession

from penstock.client.registry import Registry
from penstock.errors import Refused
from penstock.model import Millis, Offset
from penstock.schemas.model import SchemaType
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.serde.contract import Contract
from penstock.serde.serializers import Deserializer, Serializer
from penstock.spark import ParquetTarget, Replay, ReplayBounds, ReplaySource, TopicTarget
from penstock.spark.read_options import AtTimes, LogEnd
from penstock.spark.replay import OnUnreadable, _default_job

ROOT = Path(__file__).parents[2]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def shop() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module("examples.orders")
    sys.path.remove(str(ROOT))


@pytest.fixture
def published(shop: Any, bootstrap: str, registry_url: str, make_topic: MakeTopic) -> Any:
    """A topic with 300 orders under three schemas, for each test."""
    name = make_topic(2, **{"retention.ms": "-1"})
    topics = shop.Topics(name, f"{name}-payments")
    data = shop.generate(seed=11, orders=300)
    shop.publish(data, bootstrap, registry_url, topics=topics, partitions=2)
    return name, data


def source(published: Any, bootstrap: str, registry_url: str, **more: Any) -> ReplaySource:
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url}
    return ReplaySource(published[0], options, on_unreadable=OnUnreadable.SKIP, **more)


def committed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    records = []
    ended: set[int | None] = set()
    while len(ended) < 2:
        for message in consumer.consume(1000, timeout=5):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                records.append((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    return records


def test_a_topic_is_replayed_as_one_version_with_counts_by_writer(
    spark: SparkSession, published: Any, bootstrap: str, registry: Registry, registry_url: str,
    make_topic: MakeTopic, shop: Any,
) -> None:  # fmt: skip
    target = make_topic(2)
    version_2 = source(published, bootstrap, registry_url, schema="2")
    replay = Replay(spark, version_2, TopicTarget(target), step_offsets=200)
    steps = list(replay.run())
    assert [step.records_done for step in steps] == [200, replay.records_total]
    expected = shop.expected(published[1])
    assert replay.versions(steps[-1].by_schema) == {
        f"v{version}": count for version, count in sorted(expected.versions.items())
    }
    assert steps[-1].unreadable == sum(expected.quarantined.values())

    written = committed(bootstrap, target)
    read = BatchDeserializer(registry, target).deserialize_many([value for _, value, _ in written])
    assert not read.errors
    assert "channel" in read.batch.schema.names
    assert "items" not in read.batch.schema.names
    orders = {row["order_id"]: row for row in read.batch.to_pylist()}
    assert len(orders) == len(written)
    assert {order.order_id: (order.cents, order.channel) for order in published[1].orders} == {
        name: (row["cents"], row["channel"]) for name, row in orders.items()
    }
    times = {(key or b"").decode(): at for key, _, at in written}
    assert times == {order.order_id: order.at for order in published[1].orders}


class StoppedError(Exception):
    """As if the process had ended."""


@pytest.mark.slow
def test_a_replay_that_was_stopped_continues_to_the_same_end(
    spark: SparkSession, published: Any, bootstrap: str, registry_url: str, make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch, shop: Any,
) -> None:  # fmt: skip
    target = make_topic(2)
    latest = source(published, bootstrap, registry_url)
    first = Replay(spark, latest, TopicTarget(target), job=f"stopped-{target}", step_offsets=100)
    running = first.run()
    next(running)
    write = first._write  # noqa: SLF001 - stopped at the worst moment: written, but not reported

    def write_and_stop(rows: DataFrame, step: int, after: Any) -> None:
        write(rows, step, after)
        raise StoppedError

    monkeypatch.setattr(first, "_write", write_and_stop)
    with pytest.raises(StoppedError):
        next(running)
    later = shop.generate(seed=12, orders=50)
    topics = shop.Topics(published[0], f"{published[0]}-payments")
    shop.publish(later, bootstrap, registry_url, topics=topics, partitions=2)

    again = Replay(spark, latest, TopicTarget(target), job=f"stopped-{target}", step_offsets=100)
    assert again.records_done == 200
    assert again.records_total == first.records_total
    list(again.run())
    keys = sorted((key or b"").decode() for key, _, _ in committed(bootstrap, target))
    assert keys == sorted(order.order_id for order in published[1].orders)
    assert list(again.run()) == []


@pytest.mark.slow
def test_events_between_two_times_are_replayed_into_parquet(
    spark: SparkSession, published: Any, bootstrap: str, registry_url: str, tmp_path: Path
) -> None:
    orders = published[1].orders
    start, end = Millis(orders[100].at), Millis(orders[200].at)
    version_1 = source(published, bootstrap, registry_url, schema="1")
    target = ParquetTarget(str(tmp_path / "orders"))
    bounds = ReplayBounds.at_times(start, end)
    replay = Replay(spark, version_1, target, bounds=bounds, step_offsets=30)
    steps = list(replay.run())
    rows = spark.read.parquet(str(tmp_path / "orders"))
    ids = {row["order_id"] for row in rows.collect()}
    assert rows.count() == len(ids) == steps[-1].by_schema.total()
    # Kafka finds the first record at or after a time; around it, events are a little out of order.
    assert {order.order_id for order in orders[130:170]} <= ids
    assert not ids & {order.order_id for order in [*orders[:70], *orders[230:]]}


@pytest.mark.slow
def test_without_a_registry_bytes_are_copied_unchanged(
    spark: SparkSession, published: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    target = make_topic(2)
    raw = ReplaySource(published[0], {"kafka.bootstrap.servers": bootstrap})
    list(Replay(spark, raw, TopicTarget(target), bounds=ReplayBounds(end=Offset(60))).run())
    copied, original = committed(bootstrap, target), committed(bootstrap, published[0])
    assert len(copied) == 120
    assert set(copied) <= set(original)


def test_a_target_that_does_not_exist_is_refused_before_anything_is_read(
    spark: SparkSession, published: Any, bootstrap: str, registry_url: str
) -> None:
    latest = source(published, bootstrap, registry_url)
    with pytest.raises(Refused, match="nowhere"):
        Replay(spark, latest, TopicTarget("nowhere"))


def test_the_name_of_a_replay_never_changes() -> None:
    """Its progress is stored under this name, by earlier versions too."""
    replayed = ReplaySource("orders", {})
    bounds = ReplayBounds(AtTimes(Millis(5), latest_if_none=True), Offset(7))
    names = [
        _default_job(replayed, TopicTarget("copy"), ReplayBounds()),
        _default_job(replayed, ParquetTarget("/data"), bounds),
    ]
    assert names == ["orders.2d548f612c75", "orders.82348411b4d6"]
    assert ReplayBounds() == ReplayBounds(LogEnd.EARLIEST, LogEnd.LATEST)


@pytest.mark.slow
def test_the_command_shows_counts_by_version(
    published: Any, bootstrap: str, registry_url: str, tmp_path: Path, shop: Any
) -> None:
    import subprocess

    done = subprocess.run(
        [
            sys.executable, "-m", "penstock.cli.main", "replay", published[0],
            "--to-parquet", str(tmp_path / "out"), "--bootstrap", bootstrap,
            "--registry", registry_url, "--on-bad", "skip", "--master", "local[1]", "--json",
        ],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    versions = shop.expected(published[1]).versions
    assert report["records_by_version"] == {f"v{n}": count for n, count in versions.items()}


def test_a_protobuf_topic_is_replayed_as_the_message_that_was_written(
    spark: SparkSession, bootstrap: str, registry: Registry, registry_url: str,
    make_topic: MakeTopic,
) -> None:  # fmt: skip
    schema = 'syntax = "proto3"; message Item { int64 id = 1; } message Order { string id = 1; }'
    contract = Contract(schema, type=SchemaType.PROTOBUF, message="Order")
    name, target = make_topic(2), make_topic(2)
    content = Serializer(registry, name, contract).serialize({"id": "seven"}).content
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, content, key=b"k")
    assert producer.flush(20) == 0
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url}
    for _ in Replay(spark, ReplaySource(name, options), TopicTarget(target)).run():
        continue
    ((key, value, _),) = committed(bootstrap, target)
    message = Deserializer(registry, target).deserialize(value)
    assert (key, message.DESCRIPTOR.name, message.id) == (b"k", "Order", "seven")
