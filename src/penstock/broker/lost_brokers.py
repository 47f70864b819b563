"""Fences a broker early: when the connection of its heartbeats closes and cannot be made again.

A killed process closes its connections at once; without this its partitions would wait for the end
of its session. A machine that is cut off closes nothing, and its session decides.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.coordination.controller.commands import FenceBroker

if TYPE_CHECKING:
    from penstock.broker.active_controller import ActiveController
    from penstock.broker.handler import Client
    from penstock.broker.metadata_image import MetadataImage
    from penstock.model import NodeId

CONNECT_S: Final = 0.5
REFUSED_MIN: Final = 2  # times in a row
TRIES_MAX: Final = 10
PAUSE_S: Final = 0.05


class LostBrokers:
    """Watches the connections that bring heartbeats."""

    def __init__(self, controller: ActiveController, image: MetadataImage) -> None:
        self._controller = controller
        self._image = image
        self._tasks: dict[asyncio.Task[None], None] = {}

    def watch(self, client: Client, node_id: NodeId, epoch: int) -> None:
        """This connection brings the heartbeats of a broker."""
        client.on_closed = lambda: self._on_closed(node_id, epoch)

    def check_all(self) -> None:
        """This broker became the active controller: another may have died with the last one."""
        for endpoint in self._image.brokers():
            broker = self._image.state.brokers[endpoint.node_id]
            if endpoint.node_id != self._image.node_id:
                self._on_closed(endpoint.node_id, broker.epoch)

    def close(self) -> None:
        """Fence nothing more."""
        for task in tuple(self._tasks):
            task.cancel()

    def _on_closed(self, node_id: NodeId, epoch: int) -> None:
        if self._controller.is_active:
            task = asyncio.get_running_loop().create_task(self._fence_if_gone(node_id, epoch))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _fence_if_gone(self, node_id: NodeId, epoch: int) -> None:
        endpoint = self._image.endpoint(node_id)
        if endpoint is None:
            return  # it is fenced
        refused = 0
        for _ in range(TRIES_MAX):  # a process that is ending may still accept the first
            refused = refused + 1 if await _is_refused(endpoint.host, endpoint.port) else 0
            if refused == REFUSED_MIN:
                break
            await asyncio.sleep(PAUSE_S)
        else:
            return
        self._controller.submit(
            lambda caller: FenceBroker(caller, node_id, epoch, "its port is closed")
        )


async def _is_refused(host: str, port: int) -> bool:
    """Whether nothing listens there. No response at all says nothing."""
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
