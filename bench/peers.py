"""The two servers every broker bench compares, each as a `with` block, and what a process cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from penstock.testing.apache_kafka import ApacheKafka, PeerUnavailable

__all__ = ["ApacheKafka", "Cost", "PeerUnavailable", "cost_of"]


@dataclass(slots=True)
class Cost:
    """What a server's processes used while something was measured."""

    cpu_seconds: float = 0.0
    resident_bytes: int = 0


@contextmanager
def cost_of(pid: int) -> Iterator[Cost]:
    """Fills in the CPU time used, and the memory held at the end, by a process and its children."""
    cost = Cost()
    before = _cpu_seconds(pid)
    yield cost
    cost.cpu_seconds = _cpu_seconds(pid) - before
    cost.resident_bytes = sum(process.memory_info().rss for process in _family(pid))


def _cpu_seconds(pid: int) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family(pid))


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]
