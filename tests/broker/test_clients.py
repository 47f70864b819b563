"""Other clients write and read through the broker, each what the others wrote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import kafka
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.conftest import RunningBroker

Written = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]
ROWS: Written = [
    (b"plain", b"value", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"headed", b"value", [("trace", b"\x00\x01"), ("empty", b"")]),
    (b"", b"", []),
    *((b"%d" % number, b"x" * number, []) for number in range(500)),
]


def write_confluent(bootstrap: str, topic: str, codec: str) -> None:
    producer: Any = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
        }
    )
    for key, value, headers in ROWS:
        producer.produce(topic, value, key, partition=0, headers=headers or None)
    assert producer.flush(20) == 0


def read_confluent(bootstrap: str, topic: str) -> Written:
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    rows: Written = []
    while len(rows) < len(ROWS):
        for message in consumer.consume(len(ROWS) - len(rows), 20):
            assert message.error() is None
            rows.append((message.key(), message.value(), message.headers() or []))
    consumer.close()
    return rows


def write_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key, partition=0, headers=headers)
                for key, value, headers in ROWS
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    asyncio.run(write())


def read_aiokafka(bootstrap: str, topic: str) -> Written:
    async def read() -> Written:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            rows: Written = []
            while len(rows) < len(ROWS):
                message = await asyncio.wait_for(consumer.getone(), 20)
                rows.append((message.key, message.value, list(message.headers)))
            return rows
        finally:
            await consumer.stop()

    return asyncio.run(read())


def write_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
    )
    for key, value, headers in ROWS:
        producer.send(topic, value, key, headers=headers, partition=0)
    producer.flush(20)
    producer.close()


def read_kafka_python(bootstrap: str, topic: str) -> Written:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    rows: Written = []
    for message in consumer:
        rows.append((message.key, message.value, list(message.headers)))
        if len(rows) == len(ROWS):
            break
    consumer.close()
    return rows


WRITERS: dict[str, Callable[[str, str, str], None]] = {
    "confluent": write_confluent,
    "aiokafka": write_aiokafka,
    "kafka-python": write_kafka_python,
}
READERS: dict[str, Callable[[str, str], Written]] = {
    "confluent": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients' own making
@pytest.mark.parametrize(
    ("writer", "codec"),
    [
        ("confluent", "none"),
        ("confluent", "zstd"),
        ("confluent", "snappy"),
        ("aiokafka", "none"),
        ("aiokafka", "gzip"),
        ("kafka-python", "none"),
        ("kafka-python", "lz4"),
    ],
)
def test_every_client_reads_what_another_wrote(
    broker: RunningBroker, writer: str, codec: str
) -> None:
    broker.create_topic("t")
    WRITERS[writer](broker.bootstrap, "t", codec)
    for name, read in READERS.items():
        assert read(broker.bootstrap, "t") == ROWS, f"{name} reads {writer}"


def test_ten_thousand_messages_keep_their_order_through_every_partition(
    broker: RunningBroker,
) -> None:
    broker.create_topic("t", 4)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.num.messages": 100, "acks": "all"}
    )
    placed: list[Any] = []
    for number in range(10_000):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % 4,
            on_delivery=lambda error, message: placed.append(error or message.offset()),
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert sorted(placed) == sorted([offset for offset in range(2500) for _ in range(4)])
    consumer: Any = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g"}
    )
    consumer.assign([confluent_kafka.TopicPartition("t", index, 0) for index in range(4)])
    seen: dict[int, list[int]] = {index: [] for index in range(4)}
    while sum(map(len, seen.values())) < 10_000:
        for message in consumer.consume(2500, 1):
            seen[message.partition()].append(int(message.value()))
    consumer.close()
    assert seen == {index: list(range(index, 10_000, 4)) for index in range(4)}
