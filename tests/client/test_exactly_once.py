"""Exactly once across rebalances: members come, are killed with a transaction open, and come back.

A reader of committed events sees each event once, in its partition's order.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer

MakeTopic = Callable[..., str]
Start = Callable[[str], "Member"]
WORKER = Path(__file__).with_name("exactly_once_worker.py")
PARTITIONS = 4
EVENTS = 2_000


class Member:
    """A process that copies."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read_until(self, start: str) -> str:
        """Read its output until a line starts so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        raise AssertionError(f"it ended without a line {start!r}")

    def copies(self, count: int) -> None:
        while int(self.read_until("copied").split()[1]) < count:
            """Fewer than that."""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def topics(make_topic: MakeTopic) -> tuple[str, str]:
    return make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)


@pytest.fixture
def start(bootstrap: str, topics: tuple[str, str]) -> Iterator[Start]:
    members: list[Member] = []

    def start_one(name: str) -> Member:
        members.append(Member(bootstrap, *topics, f"{topics[0]}-{name}"))
        return members[-1]

    yield start_one
    for member in members:
        member.end()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_member_loses_nothing_and_repeats_nothing(
    bootstrap: str, topics: tuple[str, str], start: Start
) -> None:
    source, target = topics
    with Producer(bootstrap, source) as producer:
        for partition in range(PARTITIONS):
            for number in range(partition, EVENTS, PARTITIONS):
                producer.send(str(number), partition=partition)
    first = start("a")
    first.read_until("ready")
    first.copies(50)
    second = start("b")  # the first loses half of its partitions
    second.read_until("ready")
    second.copies(50)
    first.kill()  # most likely within a transaction, with offsets not committed
    second.copies(200)
    third = start("a")  # the same name: it fences what the killed one left open
    third.read_until("ready")
    third.copies(50)
    copied: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with Consumer(bootstrap, target, f"{target}-look") as look:
        for event in look.events(idle_s=60):
            copied[event.partition].append(int(event.value))
            if sum(map(len, copied.values())) == EVENTS:
                break
        more = [event.value for event in look.events(idle_s=3)]
    assert copied == {one: list(range(one, EVENTS, PARTITIONS)) for one in range(PARTITIONS)}
    assert more == []
