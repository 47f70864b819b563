"""A machine in this process: its runner over a partition, its loading, and its timer.

The shell of every coordinator. Bound to a partition in one leader epoch:
whatever changes the epoch closes this host, and another one loads the log again. It brings commands
and the time to the runner, and keeps one timer for its next wake-up. Keeps no rule of the machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker.partition_journal import PartitionJournal, StoredBatch, read_journal
from penstock.broker.runner_host import RunnerHost
from penstock.errors import ErrorCode, Refused
from penstock.machine import Machine, Phase, Runner, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.broker.partition import Partition
    from penstock.model import LeaderEpoch, Moment
    from penstock.protocol.control_records import Marker

logger: Final = logging.getLogger(__name__)

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

LOAD_TURN_S: Final = 0.01  # of loading per turn of the event loop: groups and transactions load
LOAD_RETRY_MIN_S: Final = 1.0  # a log that cannot be read is tried again after this, doubling
LOAD_RETRY_MAX_S: Final = 60.0
REPORTS_MAX: Final = 1000  # that wait while the log is read; the oldest are dropped


class HostedMachine(RunnerHost[StateT, CommandT, EventT]):
    """One machine over one partition that this broker leads, in one leader epoch."""

    def __init__(
        self,
        machine: Machine[StateT, CommandT, EventT],
        partition: Partition,
        *,
        clock: Callable[[], Moment],
        send: Callable[[object], None] = lambda _message: None,
        marker_event: Callable[[Marker], EventT] | None = None,
        key_name: str = "key",  # in the log
    ) -> None:
        self.partition = partition
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self._machine = machine
        self._send = send
        self._key_name = key_name
        self._marker_event = marker_event  # what a transaction marker means to this machine
        self._reports: deque[CommandT] = deque(maxlen=REPORTS_MAX)  # while loading
        self._loading: Iterator[None] | None = None
        super().__init__(self._new_runner(), clock)

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
        self.set_timer()

    def _new_runner(self) -> Runner[StateT, CommandT, EventT]:
        story = Story(partial(logger.info, "%s %s", self._key_name))
        return Runner(self._machine, send=self._send, story=story)

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

    def report(self, command: CommandT) -> None:
        """Decide a report of the broker itself: nothing waits for a reply."""
        if self._runner.phase is Phase.LOADING:
            self._reports.append(command)
        else:
            self._runner.report(command, self._clock())
            self.set_timer()

    def close(self) -> None:
        """The partition has another epoch or leader, or the broker stops: refuse all callers."""
        if self._on_marker in self.partition.marker_listeners:
            self.partition.marker_listeners.remove(self._on_marker)
        self.resign(
            Refused(
                ErrorCode.not_coordinator, "this broker no longer coordinates it; find it again"
            )
        )

    def _on_marker(self, marker: Marker) -> None:
        assert self._marker_event is not None
        self._runner.observe(self._marker_event(marker))
        self.set_timer()


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
