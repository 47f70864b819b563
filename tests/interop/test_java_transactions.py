"""Transactions of the Java client, which lets the broker add partitions and raise epochs (v2)."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import java_command

if TYPE_CHECKING:
    from collections.abc import Iterator

JAVA = Path(__file__).parent / "java"
PARTITIONS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that may be killed and started again."""
    with EmbeddedBroker(tmp_path) as running:
        yield running


def create(broker: EmbeddedBroker, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics]).values():
        made.result(20)


def read_committed(broker: EmbeddedBroker, topic: str) -> dict[int, list[int]]:
    """Every committed value, by partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            error, value, partition = message.error(), message.value(), message.partition()
            if error is None:
                assert value is not None
                assert partition is not None
                values[partition].append(int(value))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 - the library's public constant has that name
                ended.add(partition)
    consumer.close()
    return values


@pytest.mark.interop
def test_the_java_client_commits_aborts_fences_and_asks(
    broker: EmbeddedBroker, kafka_libs: Path
) -> None:
    create(broker, "a")
    done = subprocess.run(
        java_command(kafka_libs, str(JAVA / "Transactions.java"), broker.bootstrap),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "committed 40",
        "fenced",
        "plain is CompleteAbort",
        "listed 2",
        "plain is Empty",
        "aborted by hand",
    ], done.stderr
    kept = [number for number in range(50) if number % 5 != 4]
    assert read_committed(broker, "a") == {0: [*kept, 1002], 1: kept, 2: kept}


def run_mover(
    broker: EmbeddedBroker,
    libraries: Path,
    *,
    total: int,
    batch: int,
    kills: list[str],
    protocol: str,
) -> None:
    chance = Random(7)
    command = java_command(
        libraries,
        str(JAVA / "MoveRecords.java"),
        *(broker.bootstrap, "source", "target", str(total), str(batch), protocol),
    )
    until_kill = share = total // batch // (len(kills) + 2)
    is_moving = True
    while is_moving:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as mover:
            assert mover.stdout is not None
            for _ in mover.stdout:
                until_kill -= 1
                if until_kill > 0 or not kills:
                    continue
                time.sleep(chance.random() * 0.03)  # somewhere inside the next transaction
                until_kill = chance.randint(1, share)
                if kills.pop() == "app":
                    mover.kill()
                else:
                    broker.kill()
                    broker.start()
        is_moving = mover.returncode != 0
    assert not kills, "all was moved before all kills were done"


def fill(broker: EmbeddedBroker, total: int) -> None:
    create(broker, "source", "target")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(total):
        producer.produce("source", str(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.interop
def test_the_java_client_moves_records_exactly_once_through_kills(
    broker: EmbeddedBroker, kafka_libs: Path
) -> None:
    fill(broker, 6_000)
    kills = ["broker", "app"]
    run_mover(broker, kafka_libs, total=6_000, batch=100, kills=kills, protocol="classic")
    moved = read_committed(broker, "target")
    assert moved == {index: list(range(index, 6_000, PARTITIONS)) for index in range(PARTITIONS)}


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("protocol", "kills"),
    # under the consumer protocol a dead static member is missed only after its session time-out
    [("classic", ["app", "broker"] * 6), ("consumer", [*["broker"] * 5, "app"] * 2)],
)
def test_the_java_client_moves_a_hundred_thousand_records_through_a_dozen_kills(
    broker: EmbeddedBroker, kafka_libs: Path, protocol: str, kills: list[str]
) -> None:
    fill(broker, 100_000)
    run_mover(broker, kafka_libs, total=100_000, batch=500, kills=[*kills], protocol=protocol)
    moved = read_committed(broker, "target")
    assert moved == {index: list(range(index, 100_000, PARTITIONS)) for index in range(PARTITIONS)}
