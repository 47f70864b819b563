"""A machine in this process: its runner over a partition, its loading, and its timer.

The shell of every coordinator and of the controller. Bound to a partition in one leader epoch:
whatever changes the epoch closes this host, and another one loads the log again. It brings commands
and the time to the runner, and keeps one timer for its next wake-up. Keeps no rule of the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.broker.partition_journal import PartitionJournal, StoredBatch, read_journal
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId, Deferred, Machine, Phase, Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.broker.partition import Partition
    from penstock.model import LeaderEpoch, Millis, Moment
    from penstock.protocol.control_records import Marker

logger: Final = logging.getLogger(__name__)

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

LOAD_TURN_S: Final = 0.01  # of loading per turn of the event loop: groups and transactions load
LOAD_RETRY_MIN_S: Final = 1.0  # a log that cannot be read is tried again after this, doubling
LOAD_RETRY_MAX_S: Final = 60.0
REPORTS_MAX: Final = 1000  # that wait while the log is read; the oldest are dropped
LATE_S: Final = 1.0  # a timer later than this means that the process was stopped
CATCH_UP_S: Final = 0.2  # what arrived meanwhile is handled before time-outs are
SLEEP_MAX_S: Final = 3600.0  # a timer for the far future is set again on the way


class HostedMachine(Generic[StateT, CommandT, EventT]):
    """One machine over one partition that this broker leads, in one leader epoch."""

    def __init__(
        self,
        machine: Machine[StateT, CommandT, EventT],
        partition: Partition,
        *,
        clock: Callable[[], Moment],
        send: Callable[[object], None] = lambda _message: None,
        marker_event: Callable[[Marker], EventT] | None = None,
        on_events: Callable[[Sequence[EventT]], None] | None = None,
    ) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self._machine = machine
        self._clock = clock
        self._send = send
        self._on_events = on_events
        self._marker_event = marker_event  # what a transaction marker means to this machine
        self._runner = self._new_runner()
        self._reports: deque[CommandT] = deque(maxlen=REPORTS_MAX)  # while loading
        self._loading: Iterator[None] | None = None
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

    def story(self, key: str) -> Sequence[tuple[Millis, str]]:
        """The last things that happened to a group, transactional id or topic, in words."""
        return self._runner.story.of(key)

    # Loading.

    def load(self) -> None:
        """Read the whole log now. OSError when it cannot be read."""
        for _ in self._replay():
            pass
        self._begin()

    def load_until(self, give_way: Callable[[], bool]) -> bool:
        """Read the log until its end, or until others must have a turn. True when it is loaded.

        OSError when it cannot be read: the next call begins again.
        """
        if self._runner.phase is not Phase.LOADING:
            return True
        if self._loading is None:
            self._loading = self._replay()
        try:
            for _ in self._loading:
                if give_way():
                    return False
        except OSError:
            self._loading, self._runner = None, self._new_runner()
            raise
        self._loading = None
        self._begin()
        while self._reports:
            self.report(self._reports.popleft())
        return True

    def start(self) -> None:
        """Let time pass for the machine, which is loaded. Needs the running event loop."""
        assert self._runner.phase is not Phase.LOADING
        self._set_timer()

    def _new_runner(self) -> Runner[StateT, CommandT, EventT]:
        return Runner(self._machine, send=self._send, on_events=self._on_events)

    def _replay(self) -> Iterator[None]:
        """Read the log to its end; at each stop something else may be done."""
        runner = self._runner
        for stored in read_journal(self.partition):
            if isinstance(stored, StoredBatch):
                runner.replay_batch(stored.records, stored.mark)
            elif self._marker_event is not None:
                runner.observe(self._marker_event(stored))
            yield

    def _begin(self) -> None:
        """Everything in the log is in the state: take commands, and notice what comes next."""
        self._runner.start(PartitionJournal(self.partition, self.leader_epoch))
        if self._marker_event is not None:
            self.partition.marker_listeners.append(self._on_marker)

    # Running.

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
            self._set_timer()
        return reply

    def report(self, command: CommandT) -> None:
        """Decide a report of the broker itself: nothing waits for a reply."""
        if self._runner.phase is Phase.LOADING:
            self._reports.append(command)
        else:
            self._runner.report(command, self._clock())
            self._set_timer()

    def close(self) -> None:
        """The partition has another epoch or leader, or the broker stops: refuse all callers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_marker in self.partition.marker_listeners:
            self.partition.marker_listeners.remove(self._on_marker)
        self._runner.resign(
            Refused(
                ErrorCode.not_coordinator, "this broker no longer coordinates it; find it again"
            )
        )

    def _on_marker(self, marker: Marker) -> None:
        assert self._marker_event is not None
        self._runner.observe(self._marker_event(marker))
        self._set_timer()

    # Time.

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._timer_due_s > LATE_S:
            # Heartbeats that arrived while the process was stopped count before sessions end.
            self._timer_due_s = loop.time() + CATCH_UP_S
            self._timer = loop.call_at(self._timer_due_s, self._on_timer)
            return
        self._timer = None
        self._runner.tick(self._clock())
        self._set_timer()

    def _set_timer(self) -> None:
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


class LoadTurns:
    """Loads machines in turns, so that all of them together leave time for requests."""

    def __init__(self) -> None:
        self._hosts: deque[tuple[HostedMachine[Any, Any, Any], float]] = deque()  # retry delay

    def add(self, host: HostedMachine[Any, Any, Any]) -> None:
        """Load and start it: immediately if its log is empty. Needs the running event loop."""
        log = host.partition.log
        if log.start_offset == log.end_offset:
            host.load()
            host.start()
        else:
            self._add(host, LOAD_RETRY_MIN_S)

    def _add(self, host: HostedMachine[Any, Any, Any], retry_s: float) -> None:
        self._hosts.append((host, retry_s))
        if len(self._hosts) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOAD_TURN_S
        while self._hosts:
            host, retry_s = self._hosts[0]
            try:
                if not host.load_until(lambda: loop.time() >= until_s):
                    break
                host.start()
            except OSError as error:
                logger.error(
                    "%s cannot be loaded, next try in %.0f s: %s",
                    host.partition.topic_partition,
                    retry_s,
                    error,
                )
                loop.call_later(retry_s, self._add, host, min(2 * retry_s, LOAD_RETRY_MAX_S))
            self._hosts.popleft()
            if loop.time() >= until_s:
                break
        if self._hosts:
            loop.call_soon(self._turn)
