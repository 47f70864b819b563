"""Detects that this process was paused: suspended, swapped out, or asleep with its machine.

Meanwhile other brokers may have taken over what it led. A tick is set by the event loop at short
intervals; a request that finds the last tick too old is the first thing after a stall.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS_PER_LIMIT: Final = 4


class StallWatch:
    """Calls `on_stall` before the first request after a stall of more than `limit_s`."""

    def __init__(
        self,
        limit_s: float,
        on_stall: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._on_stall = on_stall
        self._clock = clock
        self._ticked_at = clock()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Tick from now on. Needs the running event loop."""
        self._tick()

    def close(self) -> None:
        """Tick no more."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """To be called before each request."""
        paused_s = self._clock() - self._ticked_at
        if paused_s > self._limit_s:
            self._ticked_at = self._clock()
            self._on_stall(paused_s)

    def _tick(self) -> None:
        self.check()
        self._ticked_at = self._clock()
        delay_s = self._limit_s / TICKS_PER_LIMIT
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)
