"""The two servers of the broker benchmarks, each as a `with` block, and the cost of a process."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

__all__ = [
    "ApacheKafka",
    "Cost",
    "PeerUnavailableError",
    "Server",
    "apache_kafka",
    "both_servers",
    "cost_of",
    "delete_topic",
    "make_topic",
    "penstock",
    "resident_bytes",
]


class Server(Protocol):
    """A Kafka server that a benchmark starts, stops and kills."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def start(self) -> object: ...
    def halt(self) -> None: ...
    def kill(self) -> None: ...


# The files of a deleted topic are removed immediately, with their page cache.
_DELETE_SOON = ("log.segment.delete.delay.ms", "100")


def penstock(folder: Path | None = None) -> Server:
    """A Penstock broker in its own process."""
    return EmbeddedBroker(folder, settings=dict([_DELETE_SOON]))


def apache_kafka(folder: Path | None = None) -> Server:
    """One Apache Kafka node with a gigabyte of heap."""
    return ApacheKafka(folder=folder, settings=["=".join(_DELETE_SOON)])


@contextmanager
def both_servers() -> Iterator[list[Server]]:
    """Both servers, to take turns; without a peer only Penstock, with a message."""
    with ExitStack() as stack:
        servers = [stack.enter_context(penstock())]
        try:
            servers.append(stack.enter_context(apache_kafka()))
        except PeerUnavailableError as reason:
            print(f"no peer to compare with: {reason}", file=sys.stderr)
        yield servers


def make_topic(bootstrap: str, name: str, *, partitions: int) -> None:
    """Create a topic and wait until it has leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    for _ in range(100):
        known = admin.list_topics(name, timeout=10).topics[name]
        if len(known.partitions) == partitions:
            return
        time.sleep(0.05)
    raise TimeoutError(f"topic {name} has no leaders")


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic, and give the server a moment to remove its files."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # its futures end with it
    admin.delete_topics([name])[name].result(30)
    time.sleep(1.5)


@dataclass(slots=True)
class Cost:
    """What the processes of a server used during a measurement."""

    cpu_seconds: float = 0.0
    resident_bytes: int = 0


@contextmanager
def cost_of(pid: int) -> Iterator[Cost]:
    """Set the CPU time used, and the memory at the end, of a process and its children."""
    cost = Cost()
    before = _cpu_seconds(pid)
    yield cost
    cost.cpu_seconds = _cpu_seconds(pid) - before
    cost.resident_bytes = resident_bytes(pid)


def resident_bytes(pid: int) -> int:
    """The memory of a process and its children."""
    return sum(process.memory_info().rss for process in _family(pid))


def _cpu_seconds(pid: int) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family(pid))


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]
