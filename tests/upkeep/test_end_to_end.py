"""A real client on a real broker: a compacted topic shrinks without losing a last value."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

UPDATES = 30_000
KEYS = 50
SECONDS_MAX = 60


def written_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/updates-0/*.log"))


@pytest.mark.slow
def test_a_compacted_topic_shrinks_while_clients_see_the_last_value_of_each_key() -> None:
    with EmbeddedBroker(settings={"log.cleaner.backoff.ms": "100"}) as broker:
        compacted = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = NewTopic("updates", 1, 1, config=compacted)
        admin.create_topics([topic])["updates"].result(timeout=SECONDS_MAX)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        for number in range(UPDATES):
            producer.produce("updates", key=b"%d" % (number % KEYS), value=b"%0100d" % number)
            producer.poll(0)
        producer.flush()
        before = written_bytes(broker.folder)
        give_up_at = time.monotonic() + SECONDS_MAX
        while written_bytes(broker.folder) > before / 2:
            assert time.monotonic() < give_up_at, "nothing was compacted"
            time.sleep(0.05)
        values = read_through(broker.bootstrap)
    assert values == {b"%d" % (n % KEYS): b"%0100d" % n for n in range(UPDATES - KEYS, UPDATES)}


def read_through(bootstrap: str) -> dict[bytes, bytes]:
    """The last value of each key as a consumer sees it, from the first offset to the last."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("updates", 0, 0)])
    values: dict[bytes, bytes] = {}
    offset = -1
    give_up_at = time.monotonic() + SECONDS_MAX
    while offset < UPDATES - 1:
        assert time.monotonic() < give_up_at, f"nothing comes after offset {offset}"
        for message in consumer.consume(1000, timeout=0.5):
            key, value, at = message.key(), message.value(), message.offset()
            assert message.error() is None
            assert key is not None
            assert value is not None
            assert at is not None
            assert at > offset
            offset = at
            values[key] = value
    consumer.close()
    return values
