"""The two servers of the broker benchmarks, each as a `with` block, and the cost of a process."""

import sys
import time
from collections.abc import Iterable, Iterator
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


def make_topic(bootstrap: str, name: str, *, partitions: int, replicas: int = 1) -> None:
    """Create a topic and wait until it has leaders and all replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)
    for _ in range(200):
        known = admin.list_topics(name, timeout=10).topics[name].partitions
        in_sync = [len(each.isrs) for each in known.values() if each.leader >= 0]
        if in_sync == [replicas] * partitions:
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
def cost_of(*pids: int) -> Iterator[Cost]:
    """Set the CPU time used, and the memory at the end, of processes and their children."""
    cost = Cost()
    before = _cpu_seconds(pids)
    yield cost
    cost.cpu_seconds = _cpu_seconds(pids) - before
    cost.resident_bytes = resident_bytes(*pids)


def resident_bytes(*pids: int) -> int:
    """The memory of processes and their children."""
    return sum(process.memory_info().rss for process in _families(pids))


def _cpu_seconds(pids: Iterable[int]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _families(pids))


def _families(pids: Iterable[int]) -> list[psutil.Process]:
    parents = [psutil.Process(pid) for pid in pids]
    return [*parents, *(child for parent in parents for child in parent.children(recursive=True))]
