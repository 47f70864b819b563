"""A listener and its connections: limits their number, and closes those that are idle or late."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.client_connection import ClientConnection
from penstock.broker.receive_buffer import BufferPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.settings import NetworkSettings

logger: Final = logging.getLogger(__name__)

SHARED_BYTES: Final = 256 << 10  # one read takes at most this much from a client
SWEEP_S: Final = 1.0


class NetworkStats:
    """Counters of one listener."""

    __slots__ = ("accepted", "refused")

    def __init__(self) -> None:
        self.accepted: int = 0
        self.refused: int = 0


class Listener:
    """Accepts connections on one port, from `listen` to `close`."""

    def __init__(
        self, dispatcher: Dispatcher, settings: NetworkSettings, *, name: str = "PLAINTEXT"
    ) -> None:
        self.dispatcher = dispatcher
        self.settings = settings
        self.name = name
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.buffers: BufferPool = BufferPool(SHARED_BYTES)
        self.stats: NetworkStats = NetworkStats()
        self.connections: dict[ClientConnection, None] = {}  # the oldest first
        self._by_host: Counter[str] = Counter()
        self._listening: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; returns the port, which is chosen if 0 was given."""
        self._listening = await self.loop.create_server(
            partial(ClientConnection, self), host, port, backlog=self.settings.backlog
        )
        self._sweep()
        return int(self._listening.sockets[0].getsockname()[1])

    def admit(self, connection: ClientConnection) -> bool:
        """Add a new connection; False if there are too many."""
        host = connection.client.host
        if (
            len(self.connections) >= self.settings.connections_max
            or self._by_host[host] >= self.settings.connections_per_host_max
        ):
            self.stats.refused += 1
            logger.warning("refusing %s: too many connections", connection.client)
            return False
        self.stats.accepted += 1
        self._by_host[host] += 1
        self.connections[connection] = None
        return True

    def remove(self, connection: ClientConnection) -> None:
        """A connection was closed."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        host = connection.client.host
        self._by_host[host] -= 1
        if self._by_host[host] == 0:
            del self._by_host[host]

    def stop_accepting(self) -> None:
        """Accept no connections and start no requests; those that have started continue."""
        if self._listening is not None:
            self._listening.close()
        for connection in self.connections:
            connection.stop()

    async def close(self, wait_s: float, release_waiting: Callable[[], None]) -> None:
        """Wait this long at most for pending responses, then close every connection.

        `release_waiting` ends what waits for more records or replicas.
        """
        self.stop_accepting()
        release_waiting()
        deadline = self.loop.time() + wait_s
        while self.loop.time() < deadline:
            if all(connection.is_quiet for connection in self.connections):
                break
            await asyncio.sleep(0.01)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.close(None)
        await asyncio.sleep(0)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.close_if_overdue(now)
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)
