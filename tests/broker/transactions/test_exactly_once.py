"""Read-process-write under kill -9 of the application and of the broker: no loss, no duplicate."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARTITIONS = 4
MOVER = Path(__file__).parent / "move_records.py"


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that may be killed and started again."""
    with EmbeddedBroker(tmp_path) as broker:
        yield broker


def fill(bootstrap: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("source", "target")])
    for future in created.values():
        future.result(20)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(total):
        producer.produce("source", str(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def read_target(bootstrap: str) -> dict[int, list[int]]:
    """Every committed value of the target, by partition, in order."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign(
        [confluent_kafka.TopicPartition("target", index, 0) for index in range(PARTITIONS)]
    )
    values: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            error, value, partition = message.error(), message.value(), message.partition()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error  # noqa: SLF001 - the library's public constant has that name
                ended.add(partition)
            else:
                assert value is not None
                assert partition is not None
                values[partition].append(int(value))
    consumer.close()
    return values


class Mover:
    """The application: started again whenever it dies, until it has moved everything."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.starts = 0

    def __enter__(self) -> Mover:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.end()

    def start(self) -> None:
        assert self.starts < 100, "it dies again and again"
        self.starts += 1
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)

    def end(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(30)

    def commits(self) -> Iterator[None]:
        """One for each transaction that it reports as committed, to the end."""
        while True:
            assert self.process.stdout is not None
            if self.process.stdout.readline():
                yield
            elif self.end() == 0:
                return
            else:
                self.start()


def move_all(
    broker: EmbeddedBroker,
    command: list[str],
    kills: list[str],
    *,
    commits_between: Callable[[], int],
    rng: Random,
) -> None:
    """Run the mover to its end, through all the kills."""
    kills = list(kills)
    until_kill = commits_between()
    with Mover(command) as mover:
        for _ in mover.commits():
            until_kill -= 1
            if until_kill > 0 or not kills:
                continue
            time.sleep(rng.random() * 0.03)  # somewhere inside the next transaction
            if kills.pop() == "broker":
                broker.kill()
                broker.start()
            else:
                mover.process.kill()
            until_kill = commits_between()
    assert not kills, "all was moved before all kills were done"


def check_moved(bootstrap: str, total: int) -> None:
    values = read_target(bootstrap)
    for partition, result in values.items():
        assert result == list(range(partition, total, PARTITIONS))


def run(broker: EmbeddedBroker, total: int, batch: int, kills: list[str], seed: int) -> None:
    rng = Random(seed)
    fill(broker.bootstrap, total)
    kills = rng.sample(kills, len(kills))
    share = total // batch // (len(kills) + 2)
    arguments = [broker.bootstrap, "source", "target", str(total), str(batch)]
    move_all(
        broker,
        [sys.executable, str(MOVER), *arguments],
        kills,
        commits_between=lambda: rng.randint(1, share),
        rng=rng,
    )
    check_moved(broker.bootstrap, total)


def test_every_record_is_moved_exactly_once_through_a_few_kills(embedded: EmbeddedBroker) -> None:
    run(embedded, 6_000, 100, ["app", "broker", "app"], seed=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_thousand_records_through_a_dozen_kills(
    embedded: EmbeddedBroker, seed: int
) -> None:
    run(embedded, 100_000, 500, ["app"] * 7 + ["broker"] * 5, seed)
