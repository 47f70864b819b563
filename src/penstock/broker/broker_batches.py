"""Things to send to other brokers, gathered while a request to the same broker is under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.model import NodeId

ItemT = TypeVar("ItemT")


class BrokerBatches(Generic[ItemT]):
    """One request at a time for each broker, with all that came meanwhile."""

    def __init__(self, send: Callable[[NodeId, list[ItemT]], Awaitable[None]]) -> None:
        """`send` makes the outcome of each item known, and raises nothing."""
        self._send = send
        self._queued: dict[NodeId, list[ItemT]] = {}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}

    def add(self, node_id: NodeId, item: ItemT) -> None:
        """Send it with the next request to this broker."""
        self._queued.setdefault(node_id, []).append(item)
        if node_id not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(node_id))
            self._tasks[node_id] = task

    def close(self) -> None:
        """Send nothing more."""
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _run(self, node_id: NodeId) -> None:
        try:
            while items := self._queued.pop(node_id, None):
                await self._send(node_id, items)
        finally:
            del self._tasks[node_id]
