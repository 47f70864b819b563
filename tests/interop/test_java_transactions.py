"""Transactions of the Java client, which lets the broker add partitions and raise epochs (v2)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.node.broker_process import BrokerOptions, command_line
from penstock.testing.apache_kafka import java_command

JAVA = Path(__file__).parent / "java"
PARTITIONS = 3


class KillableBroker:
    """A broker process on a port that outlives it."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{port}"
        self.options = BrokerOptions(
            folder=str(folder), kafka_port=port, quick=True, log_level="WARNING"
        )
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            command_line(self.options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert "kafka" in ready, ready

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def create(self, *topics: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for made in admin.create_topics(
            [NewTopic(name, PARTITIONS, 1) for name in topics]
        ).values():
            made.result(20)

    def read_committed(self, topic: str) -> dict[int, list[int]]:
        """Every committed value, by partition, in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    """A broker that may be killed and started again."""
    running = KillableBroker(tmp_path)
    yield running
    running.end(signal.SIGTERM)


@pytest.mark.interop
def test_the_java_client_commits_aborts_fences_and_asks(
    broker: KillableBroker, kafka_libs: Path
) -> None:
    broker.create("a")
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
    assert broker.read_committed("a") == {0: [*kept, 1002], 1: kept, 2: kept}


def run_mover(
    broker: KillableBroker,
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
                    broker.end(signal.SIGKILL)
                    broker.start()
        is_moving = mover.returncode != 0
    assert not kills, "all was moved before all kills were done"


def fill(broker: KillableBroker, total: int) -> None:
    broker.create("source", "target")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(total):
        producer.produce("source", str(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.interop
def test_the_java_client_moves_records_exactly_once_through_kills(
    broker: KillableBroker, kafka_libs: Path
) -> None:
    fill(broker, 6_000)
    kills = ["broker", "app"]
    run_mover(broker, kafka_libs, total=6_000, batch=100, kills=kills, protocol="classic")
    moved = broker.read_committed("target")
    assert moved == {index: list(range(index, 6_000, PARTITIONS)) for index in range(PARTITIONS)}


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_java_client_moves_a_hundred_thousand_records_through_a_dozen_kills(
    broker: KillableBroker, kafka_libs: Path, protocol: str
) -> None:
    fill(broker, 100_000)
    kills = ["app", "broker"] * 6
    run_mover(broker, kafka_libs, total=100_000, batch=500, kills=kills, protocol=protocol)
    moved = broker.read_committed("target")
    assert moved == {index: list(range(index, 100_000, PARTITIONS)) for index in range(PARTITIONS)}
