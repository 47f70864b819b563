"""Retention and compaction work on every replica of a cluster, and through a failover."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # undeclared

from penstock.protocol.batch import iterate_headers
from penstock.protocol.records import iterate_records
from penstock.testing.embedded_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAIT_S = 120.0  # the first compaction compiles its kernels
OFTEN = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "0",
}
SEGMENT = {"segment.bytes": str(1 << 20)}
PADDING = "-" * 50_000
KEYS = 7


class Sent(NamedTuple):
    """An acknowledged record."""

    key: bytes
    value: bytes


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings=OFTEN) as cluster:
        yield cluster


def create(cluster: EmbeddedCluster, topic: str, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=1, config={**SEGMENT, **settings})
    cluster.admin.create_topics([new])[topic].result(WAIT_S)


def write(cluster: EmbeddedCluster, topic: str, numbers: range) -> dict[int, Sent]:
    """What was acknowledged, by offset."""
    sent: dict[int, Sent] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        sent[message.offset()] = Sent(message.key(), message.value())

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    for number in numbers:
        key = f"key-{number % KEYS}"
        producer.produce(topic, f"{number} {PADDING}", key, on_delivery=delivered)
        producer.flush(WAIT_S)  # a batch of its own, so that segments end often
    assert len(sent) == len(numbers)
    return sent


def stored(cluster: EmbeddedCluster, broker: int, topic: str) -> dict[int, Sent]:
    """The records in one replica's files, by offset."""
    records = {}
    folder = cluster.brokers[broker].folder / f"{topic}-0"
    for path in sorted(folder.glob("*.log")):
        try:
            content = memoryview(path.read_bytes())
        except FileNotFoundError:  # removed meanwhile
            continue
        for position, _ in iterate_headers(content):
            for record in iterate_records(content, position):
                records[record.offset] = Sent(bytes(record.key or b""), bytes(record.value or b""))
    return records


def until(is_true: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < give_up_at, f"could not {what}"
        time.sleep(0.1)


def read(cluster: EmbeddedCluster, topic: str) -> dict[int, Sent]:
    """All that a consumer reads from the beginning, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "log_level": 0,
            "enable.partition.eof": True, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    partition = TopicPartition(topic, 0)
    low, _ = consumer.get_watermark_offsets(partition, WAIT_S)
    consumer.assign([TopicPartition(topic, 0, low)])
    records = {}
    while True:
        message: Any = consumer.poll(WAIT_S)
        assert message is not None, "the topic cannot be read to its end"
        if message.error() is not None:
            break
        records[message.offset()] = Sent(message.key(), message.value())
    consumer.close()
    return records


def fail_over(cluster: EmbeddedCluster, topic: str) -> int:
    """Kill the leader; the broker that was killed. Returns when another one leads."""
    victim = cluster.leader(topic)
    cluster.kill(victim)
    until(lambda: cluster.leader(topic) != victim, "elect another leader")
    return victim


def test_followers_delete_what_the_leader_deletes(cluster: EmbeddedCluster) -> None:
    topic = "short"
    create(cluster, topic, retention_bytes=str(2 << 20))
    sent = write(cluster, topic, range(100))

    def starts() -> list[int]:
        return [min(stored(cluster, broker, topic), default=0) for broker in cluster.brokers]

    until(lambda: min(starts()) > 0 and len(set(starts())) == 1, "delete old segments everywhere")
    (start,) = set(starts())
    left = {offset: record for offset, record in sent.items() if offset >= start}
    for broker in cluster.brokers:
        assert stored(cluster, broker, topic) == left
    assert read(cluster, topic) == left

    victim = fail_over(cluster, topic)
    assert read(cluster, topic) == left
    sent |= write(cluster, topic, range(100, 140))
    until(lambda: min(read(cluster, topic)) > start, "delete under the next leader")
    cluster.restart(victim)
    cluster.wait_in_sync(topic)
    until(lambda: len(set(starts())) == 1, "follow the start of the log after a restart")
    (start,) = set(starts())
    assert stored(cluster, victim, topic) == {
        offset: record for offset, record in sent.items() if offset >= start
    }


def last_of_each_key(records: dict[int, Sent]) -> dict[bytes, bytes]:
    return {record.key: record.value for _, record in sorted(records.items())}


def test_every_replica_is_compacted(cluster: EmbeddedCluster) -> None:
    topic = "table"
    create(cluster, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    sent = write(cluster, topic, range(100))

    def is_compacted(broker: int) -> bool:
        """Whether there is about a segment with all records, and the last ones of each key."""
        return len(stored(cluster, broker, topic)) < 21 + 2 * KEYS

    def check_replicas() -> None:
        for broker in cluster.brokers:
            until(lambda broker=broker: is_compacted(broker), f"compact on broker {broker}")  # type: ignore[misc]  # bound now
            records = stored(cluster, broker, topic)
            assert records.items() <= sent.items()
            assert last_of_each_key(records) == last_of_each_key(sent)

    check_replicas()
    victim = fail_over(cluster, topic)
    assert last_of_each_key(read(cluster, topic)) == last_of_each_key(sent)
    sent |= write(cluster, topic, range(100, 160))
    cluster.restart(victim)
    cluster.wait_in_sync(topic)
    check_replicas()
    records = read(cluster, topic)
    assert records.items() <= sent.items()
    assert last_of_each_key(records) == last_of_each_key(sent)
