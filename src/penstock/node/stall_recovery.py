"""What a broker does after it was paused: it serves nothing until it is sure of its place again.

Other brokers may have taken over what it led. It resumes when the controller has answered a
heartbeat that was sent since, and, if the controller is its own, a majority of the quorum has
committed a record: answers that were on their way before the pause prove nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.background import start_background
from penstock.broker.stall_watch import StallWatch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from penstock.broker.active_controller import ActiveController
    from penstock.broker.dispatch import Dispatcher
    from penstock.broker.lifecycle import BrokerLifecycle
    from penstock.broker.metadata_follower import MetadataFollower

logger: Final = logging.getLogger(__name__)


class StallRecovery:
    """Watches one broker for pauses, as soon as the cluster has another one."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        lifecycle: BrokerLifecycle,
        controller: ActiveController,
        follower: MetadataFollower,
        *,
        limit_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._controller = controller
        self._follower = follower
        self._watch = StallWatch(limit_s, self._on_pause, clock)
        self._resuming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on, or from when there is another broker. Needs the event loop."""
        self._follower.listeners.append(lambda _changes: self._start_watch())
        self._start_watch()

    def close(self) -> None:
        """Watch no more."""
        self._watch.close()
        if self._resuming is not None:
            self._resuming.cancel()

    def _start_watch(self) -> None:
        has_others = len(self._follower.image.state.brokers) > 1
        if has_others and self._dispatcher.stalls is None:
            self._dispatcher.stalls = self._watch
            self._watch.start()

    def _on_pause(self, paused_s: float) -> None:
        logger.warning("this process was paused for %.1f s", paused_s)
        self._dispatcher.pause()
        if self._resuming is not None:
            self._resuming.cancel()  # what the controller said before this pause is out of date
        self._resuming = start_background("resuming after a pause", self._resume())

    async def _resume(self) -> None:
        is_confirmed = False
        while not is_confirmed:
            await self._lifecycle.renewed()
            is_confirmed = not self._controller.is_active or await self._controller.confirm()
        self._dispatcher.open()
