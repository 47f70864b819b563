"""A runner in this process: brings it commands and the time, and keeps one timer for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from penstock.machine import Deferred, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.machine import CallerId, Runner
    from penstock.model import Millis, Moment

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

LATE_S: Final = 0.25  # a timer later than this means that the process had no time to run
CATCH_UP_S: Final = 0.2  # what arrived meanwhile is handled before time-outs are
SLEEP_MAX_S: Final = 3600.0  # a timer for the far future is set again on the way


class RunnerHost(Generic[StateT, CommandT, EventT]):
    """One runner on the event loop. Keeps no rule of its machine."""

    def __init__(
        self, runner: Runner[StateT, CommandT, EventT], clock: Callable[[], Moment]
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Millis | None = None
        self._timer_due_s = 0.0  # by the loop's clock
        self._machine_wake_at: Millis | None = None  # when the timer was set

    @property
    def state(self) -> StateT:
        """For reading only, between two commands."""
        return self._runner.state

    @property
    def is_running(self) -> bool:
        """Whether commands are decided."""
        return self._runner.phase is Phase.RUNNING

    def submit(self, command: Callable[[CallerId], CommandT]) -> object:
        """Decide a command that is made for its caller: its reply, or a Refused.

        A Deferred of that where it must wait.
        """
        runner = self._runner
        reply = runner.submit(command, self._clock())
        if (
            isinstance(reply, Deferred)
            or runner.machine.wake_at(runner.state) != self._machine_wake_at
        ):
            self.set_timer()
        return reply

    def resign(self, refusal: Exception) -> None:
        """The runner's epoch is over: refuse all callers, now and from now on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._runner.resign(refusal)

    # Time.

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._timer_due_s > LATE_S:
            # Heartbeats that arrived meanwhile count before sessions end.
            self._timer_due_s = loop.time() + CATCH_UP_S
            self._timer = loop.call_at(self._timer_due_s, self._on_timer)
            return
        self._timer = None
        self._runner.tick(self._clock())
        self.set_timer()

    def set_timer(self) -> None:
        """Wake the runner when it says; called whenever that may have changed."""
        runner = self._runner
        wake_at = runner.wake_at()
        self._machine_wake_at = runner.machine.wake_at(runner.state)
        if self._timer is not None:
            if wake_at == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_at = wake_at
        if wake_at is None:
            return
        delay_s = min(max(wake_at - self._clock().steady, 0) / 1000, SLEEP_MAX_S)
        loop = asyncio.get_running_loop()
        self._timer_due_s = loop.time() + delay_s
        self._timer = loop.call_at(self._timer_due_s, self._on_timer)
