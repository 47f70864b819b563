"""A listener and its connections: how many there may be, and how long each may idle."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.broker.client_connection import Connection
from penstock.broker.dispatch import Dispatcher
from penstock.broker.receive_buffer import Rooms
from penstock.broker.settings import NetworkSettings

logger = logging.getLogger(__name__)

SHARED_BYTES: Final = 256 << 10  # one read takes at most this much of one client's pipeline
SWEEP_S: Final = 1.0


class NetworkStats:
    """Counters for whoever scrapes."""

    __slots__ = ("accepted", "refused", "requests", "sent_bytes")

    def __init__(self) -> None:
        self.accepted = self.refused = self.requests = self.sent_bytes = 0


class Server:
    """A listener and its connections."""

    def __init__(
        self, dispatcher: Dispatcher, settings: NetworkSettings, *, listener: str = "PLAINTEXT"
    ) -> None:
        self.dispatcher = dispatcher
        self.settings = settings
        self.listener = listener
        self.loop = asyncio.get_running_loop()
        self.rooms = Rooms(SHARED_BYTES)
        self.stats = NetworkStats()
        self.connections: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        self._listening: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int) -> int:
        """Accept clients from now on; the port, also when 0 asked for any."""
        self._listening = await self.loop.create_server(
            partial(Connection, self), host, port, backlog=self.settings.backlog
        )
        self._sweep()
        return int(self._listening.sockets[0].getsockname()[1])

    def admit(self, connection: Connection) -> bool:
        """Count a new connection in, unless that is one too many."""
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
        self.connections.add(connection)
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        host = connection.client.host
        self._by_host[host] -= 1
        if self._by_host[host] == 0:
            del self._by_host[host]

    def stop_accepting(self) -> None:
        """No new connection and no new request; what has started goes on."""
        if self._listening is not None:
            self._listening.close()
        for connection in self.connections:
            connection.stop()

    async def close(self, wait_s: float, answer_waiting: Callable[[], None]) -> None:
        """Answer what is pending, for so long at most; then close every connection."""
        self.stop_accepting()
        answer_waiting()
        give_up_at = self.loop.time() + wait_s
        while self.loop.time() < give_up_at:
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
