"""A bounded re-read: everything once, as one schema sees it, also when it was stopped meanwhile."""

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
from penstock.spark.replay import Bounds, OnBad, ParquetTarget, Replay, Source, TopicTarget

ROOT = Path(__file__).parents[2]
MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def shop() -> Iterator[Any]:
    sys.path.insert(0, str(ROOT))
    yield importlib.import_module("examples.orders")
    sys.path.remove(str(ROOT))


@pytest.fixture
def story(shop: Any, bootstrap: str, registry_url: str, make_topic: MakeTopic) -> Any:
    """A topic with 300 orders under three schemas; each test has its own."""
    name = make_topic(2, **{"retention.ms": "-1"})
    topics = shop.Topics(name, f"{name}-payments")
    story = shop.tell(seed=11, orders=300)
    shop.publish(story, bootstrap, registry_url, topics=topics, partitions=2)
    return name, story


def source(story: Any, bootstrap: str, registry_url: str, **more: Any) -> Source:
    options = {"kafka.bootstrap.servers": bootstrap, "registry": registry_url}
    return Source(story[0], options, on_bad=OnBad.SKIP, **more)


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
    found = []
    ended: set[int | None] = set()
    while len(ended) < 2:
        for message in consumer.consume(1000, timeout=5):
            if message.error() is not None:
                ended.add(message.partition())
            else:
                found.append((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    return found


def test_a_topic_is_replayed_as_one_version_with_counts_by_writer(
    spark: SparkSession, story: Any, bootstrap: str, registry: Registry, registry_url: str,
    make_topic: MakeTopic, shop: Any,
) -> None:  # fmt: skip
    target = make_topic(2)
    asked = source(story, bootstrap, registry_url, schema="2")
    replay = Replay(spark, asked, TopicTarget(target), part_offsets=200)
    parts = list(replay.run())
    assert [part.records_done for part in parts] == [200, replay.records_total]
    wanted = shop.expected(story[1])
    assert replay.versions(parts[-1].by_schema) == {
        f"v{version}": count for version, count in sorted(wanted.versions.items())
    }
    assert parts[-1].bad == sum(wanted.quarantined.values())

    found = committed(bootstrap, target)
    read = BatchDeserializer(registry, target).deserialize_many([value for _, value, _ in found])
    assert not read.wrongs
    assert "channel" in read.batch.schema.names
    assert "items" not in read.batch.schema.names
    orders = {row["order_id"]: row for row in read.batch.to_pylist()}
    assert len(orders) == len(found)
    assert {order.order_id: (order.cents, order.channel) for order in story[1].orders} == {
        name: (row["cents"], row["channel"]) for name, row in orders.items()
    }
    times = {(key or b"").decode(): at for key, _, at in found}
    assert times == {order.order_id: order.at for order in story[1].orders}


class Stopped(Exception):
    """As if the process had ended."""


@pytest.mark.slow
def test_a_replay_that_was_stopped_goes_on_to_the_end_it_had(
    spark: SparkSession, story: Any, bootstrap: str, registry_url: str, make_topic: MakeTopic,
    monkeypatch: pytest.MonkeyPatch, shop: Any,
) -> None:  # fmt: skip
    target = make_topic(2)
    asked = source(story, bootstrap, registry_url)
    first = Replay(spark, asked, TopicTarget(target), job=f"stopped-{target}", part_offsets=100)
    running = first.run()
    next(running)
    write = first._write  # noqa: SLF001 - stopped at the worst moment: written, and not told

    def written_and_gone(rows: DataFrame, number: int, after: Any) -> None:
        write(rows, number, after)
        raise Stopped

    monkeypatch.setattr(first, "_write", written_and_gone)
    with pytest.raises(Stopped):
        next(running)
    later = shop.tell(seed=12, orders=50)
    topics = shop.Topics(story[0], f"{story[0]}-payments")
    shop.publish(later, bootstrap, registry_url, topics=topics, partitions=2)

    again = Replay(spark, asked, TopicTarget(target), job=f"stopped-{target}", part_offsets=100)
    assert again.records_done == 200
    assert again.records_total == first.records_total
    list(again.run())
    keys = sorted((key or b"").decode() for key, _, _ in committed(bootstrap, target))
    assert keys == sorted(order.order_id for order in story[1].orders)
    assert list(again.run()) == []


@pytest.mark.slow
def test_events_between_two_times_are_replayed_into_parquet(
    spark: SparkSession, story: Any, bootstrap: str, registry_url: str, tmp_path: Path
) -> None:
    orders = story[1].orders
    start, end = Millis(orders[100].at), Millis(orders[200].at)
    asked = source(story, bootstrap, registry_url, schema="1")
    target = ParquetTarget(str(tmp_path / "orders"))
    replay = Replay(spark, asked, target, bounds=Bounds.at_times(start, end), part_offsets=30)
    parts = list(replay.run())
    rows = spark.read.parquet(str(tmp_path / "orders"))
    found = {row["order_id"] for row in rows.collect()}
    assert rows.count() == len(found) == parts[-1].by_schema.total()
    # Kafka finds the first record at or after a time; around it, events are a little out of order.
    assert {one.order_id for one in orders[130:170]} <= found
    assert not found & {one.order_id for one in [*orders[:70], *orders[230:]]}


@pytest.mark.slow
def test_without_a_registry_bytes_are_copied_as_they_are(
    spark: SparkSession, story: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    target = make_topic(2)
    asked = Source(story[0], {"kafka.bootstrap.servers": bootstrap})
    list(Replay(spark, asked, TopicTarget(target), bounds=Bounds(end=Offset(60))).run())
    copied, original = committed(bootstrap, target), committed(bootstrap, story[0])
    assert len(copied) == 120
    assert set(copied) <= set(original)


def test_a_target_that_is_not_there_is_refused_before_anything_is_read(
    spark: SparkSession, story: Any, bootstrap: str, registry_url: str
) -> None:
    asked = source(story, bootstrap, registry_url)
    with pytest.raises(Refused, match="nowhere"):
        Replay(spark, asked, TopicTarget("nowhere"))


@pytest.mark.slow
def test_the_command_shows_counts_by_version(
    story: Any, bootstrap: str, registry_url: str, tmp_path: Path, shop: Any
) -> None:
    import subprocess

    done = subprocess.run(
        [
            sys.executable, "-m", "penstock.cli.main", "replay", story[0],
            "--to-parquet", str(tmp_path / "out"), "--bootstrap", bootstrap,
            "--registry", registry_url, "--on-bad", "skip", "--master", "local[1]", "--json",
        ],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    versions = shop.expected(story[1]).versions
    assert told["records_by_version"] == {f"v{n}": count for n, count in versions.items()}


def test_a_protobuf_topic_is_written_again_as_the_message_it_has(
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
    for _ in Replay(spark, Source(name, options), TopicTarget(target)).run():
        continue
    ((key, value, _),) = committed(bootstrap, target)
    message = Deserializer(registry, target).deserialize(value)
    assert (key, message.DESCRIPTOR.name, message.id) == (b"k", "Order", "seven")
