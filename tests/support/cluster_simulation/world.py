"""The scheduler: virtual time, the events of every process in order, and the source of chance.

One heap of events decides what runs next. Each callback takes a microsecond of virtual time, so a
process that spins cannot stop the clock, and a limit on steps finds it.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.support.cluster_simulation.event_loop import SimulatedLoop

CALLBACK_S: Final = 1e-6
START_S: Final = 1_000.0  # a monotonic clock starts somewhere
EPOCH_MS: Final = 1_700_000_000_000  # the time of day at START_S


class SimulationError(AssertionError):
    """The simulation cannot go on: a task failed, or nothing ends."""


class _Event(NamedTuple):
    due_s: float
    number: int  # events due at the same time run in the order they were scheduled
    loop: SimulatedLoop
    handle: asyncio.Handle


class World:
    """All processes of one run."""

    def __init__(self, seed: int, *, steps_max: int = 5_000_000) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_s = START_S
        self.steps = 0
        self.failures: list[str] = []  # what a process would have logged as its own bug
        self._steps_max = steps_max
        self._events: list[_Event] = []
        self._scheduled = 0
        self._trace = hashlib.blake2b(digest_size=8)

    def schedule(self, loop: SimulatedLoop, handle: asyncio.Handle, due_s: float) -> None:
        """Run the handle on its loop when its time has come."""
        self._scheduled += 1
        heapq.heappush(self._events, _Event(due_s, self._scheduled, loop, handle))

    def run_until(self, is_over: Callable[[], bool], *, within_s: float) -> bool:
        """Let time pass until something holds; False if it does not within this much time."""
        until_s = self.now_s + within_s
        while not is_over():
            if not self._events or self._events[0].due_s > until_s:
                self.now_s = max(self.now_s, until_s)
                self._check_failures()
                return is_over()
            self._step()
        return True

    def run_for(self, span_s: float) -> None:
        """Let this much time pass."""
        self.run_until(lambda: False, within_s=span_s)

    def drop_events(self) -> None:
        """The end: nothing runs any more."""
        self._events.clear()

    def note(self, line: str) -> None:
        """Make a line part of the trace: two runs of a seed must agree on all of them."""
        self._trace.update(f"{self.now_s:.6f} {line}\n".encode())

    @property
    def trace(self) -> str:
        """A hash of everything noted so far."""
        return self._trace.hexdigest()

    def _step(self) -> None:
        due_s, _, loop, handle = heapq.heappop(self._events)
        if handle.cancelled() or loop.is_closed():
            return
        if loop.is_paused:
            loop.deferred.append(handle)
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise SimulationError(f"seed {self.seed}: more than {self._steps_max} callbacks")
        self.now_s = max(self.now_s, due_s) + CALLBACK_S
        loop.run(handle)
        self._check_failures()

    def _check_failures(self) -> None:
        if self.failures:
            raise SimulationError(f"seed {self.seed}: {self.failures[0]}")
