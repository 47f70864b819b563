"""Connections for fetches that wait.

A broker answers the requests of a connection in order, so a fetch that waits for events would hold
back everything behind it. Each waiting fetch has connections of its own meanwhile. Their number is
limited; beyond it, callers poll.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from penstock.link.aio import AsyncCluster

IDLE_MAX: Final = 16
BORROWED_MAX: Final = 256


class ClusterPool:
    """Clusters that one caller uses at a time."""

    def __init__(self, connect: Callable[[], AsyncCluster]) -> None:
        self._connect = connect
        self._idle: list[AsyncCluster] = []
        self._borrowed = 0

    @property
    def is_exhausted(self) -> bool:
        return self._borrowed >= BORROWED_MAX

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[AsyncCluster]:
        """A cluster of one's own; closed after a failure, because a response may be outstanding."""
        cluster = self._idle.pop() if self._idle else self._connect()
        self._borrowed += 1
        is_clean = False
        try:
            yield cluster
            is_clean = True
        finally:
            self._borrowed -= 1
            if is_clean and len(self._idle) < IDLE_MAX:
                self._idle.append(cluster)
            else:
                await cluster.close()

    async def close(self) -> None:
        """Close the idle ones."""
        idle, self._idle = self._idle, []
        for cluster in idle:
            await cluster.close()
