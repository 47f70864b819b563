"""Connections from this broker to others, made when they are needed and kept.

Responses of a connection come in order, so requests that may wait at the other side (fetches) have
connections of their own: a connection belongs to an address and a purpose.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Final

from penstock.link.aio import AsyncLink
from penstock.link.settings import LinkSettings

if TYPE_CHECKING:
    from penstock.link.settings import Address

SETTINGS: Final = LinkSettings(
    client_id="broker", connect_timeout_ms=1_000, request_timeout_ms=5_000
)


class Purpose(Enum):
    """What a connection is for."""

    QUORUM = "quorum"
    QUORUM_FETCH = "quorum fetch"
    CONTROLLER = "controller"
    HEARTBEAT = "heartbeat"
    COORDINATION = "coordination"
    REPLICA_FETCH = "replica fetch"


class BrokerLinks:
    """All connections of this broker to others."""

    def __init__(self, settings: LinkSettings = SETTINGS) -> None:
        self._settings = settings
        self._links: dict[tuple[Address, Purpose], asyncio.Task[AsyncLink]] = {}
        self._is_closed = False

    async def connect(self, address: Address, purpose: Purpose) -> AsyncLink:
        """The open connection; requests that come while it is being made wait for the same one."""
        if self._is_closed:
            raise ConnectionError("this broker is stopping")
        key = address, purpose
        task = self._links.get(key)
        if task is None or (task.done() and not _is_open(task)):
            connecting = AsyncLink.connect(address, self._settings)
            task = asyncio.get_running_loop().create_task(connecting)
            task.add_done_callback(_is_open)  # retrieves its exception
            self._links[key] = task
        return await asyncio.shield(task)

    def close(self) -> None:
        """End all connections; requests in flight fail."""
        self._is_closed = True
        links, self._links = self._links, {}
        for task in links.values():
            if _is_open(task):
                task.result().abort()
            else:
                task.cancel()


def _is_open(task: asyncio.Task[AsyncLink]) -> bool:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().is_open
