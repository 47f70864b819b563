"""kill -9 while producers write: nothing acknowledged is lost, nothing comes twice."""

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

PARTITIONS = 4


class Writer(threading.Thread):
    """An idempotent producer that counts up until `stop`, and stores what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self.acknowledged: dict[int, int] = {}  # number -> partition
        self.failed: list[str] = []
        self.sent = 0
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
            }
        )

    def run(self) -> None:
        while not self._stopping.is_set():
            number = self.sent
            try:
                self._producer.produce(
                    self._topic,
                    str(number).encode(),
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.sent += 1
            if number % 200 == 0:
                self._producer.poll(0.005)
        assert self._producer.flush(60) == 0

    def stop(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive()

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        self.acknowledged[int(value)] = partition


def read_all(bootstrap: str, topic: str) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    read: dict[int, list[int]] = {}
    for partition in range(PARTITIONS):
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
        consumer.assign([TopicPartition(topic, partition, 0)])
        numbers = read[partition] = []
        while len(numbers) < end:
            messages = consumer.consume(min(1000, end - len(numbers)), timeout=10)
            assert messages, f"partition {partition}: only {len(numbers)} of {end} came"
            for message in messages:
                value = message.value()
                assert message.error() is None
                assert value is not None
                numbers.append(int(value))
    consumer.close()
    return read


@pytest.mark.parametrize("kills", [pytest.param(3), pytest.param(15, marks=pytest.mark.slow)])
def test_kill_under_load_loses_nothing_and_repeats_nothing(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    with EmbeddedBroker(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("numbers", PARTITIONS, 1)])["numbers"].result(20)
        writer = Writer(broker.bootstrap, "numbers")
        writer.start()
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 0.8))
            broker.kill()
            broker.start()
        time.sleep(0.3)
        writer.stop()
        read = read_all(broker.bootstrap, "numbers")
    assert not writer.failed
    assert len(writer.acknowledged) == writer.sent > 1000
    for partition, numbers in read.items():
        assert numbers == list(range(partition, writer.sent, PARTITIONS)), "in order, once each"
