"""A machine in this process: its runner, its journal, its timer, and the callers that wait.

The shell of every coordinator. It brings commands and the time, and keeps one timer for the
machine's next wake-up. When the journal cannot be written, the state in memory is dropped and
rebuilt from the log, and callers that waited are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

from penstock.broker.partition import Partition
from penstock.broker.partition_journal import PartitionJournal, StoredBatch, read_journal
from penstock.errors import ErrorCode, Refused
from penstock.machine import NOT_YET, CallerId, Deferred, Machine, Runner
from penstock.model import Millis, Moment
from penstock.protocol.control_records import Marker

logger = logging.getLogger(__name__)

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

RELOAD_AFTER_S: Final = 1.0  # a disk that refuses is asked again at this pace
NOBODY: Final = CallerId(0)  # callers are numbered from 1
LATE_S: Final = 1.0  # a timer that late means that the process stood still
LOAD_TURN_S: Final = 0.02  # a machine that loads in turns gives way after this
CATCH_UP_S: Final = 0.2  # what arrived meanwhile is heard first
SLEEP_MAX_S: Final = 3600.0  # a timer for the far future is set anew on the way


class HostedMachine(Generic[StateT, CommandT, EventT]):
    """One machine over one partition that this broker leads."""

    def __init__(
        self,
        machine: Machine[StateT, CommandT, EventT],
        partition: Partition,
        *,
        clock: Callable[[], Moment],
        send: Callable[[object], None] = lambda message: None,
        marker_event: Callable[[Marker], EventT] | None = None,
        loads_in_turns: bool = False,  # from `start` on, and refuses commands until it has
    ) -> None:
        self.partition = partition
        self._machine = machine
        self._clock = clock
        self._send = send
        self._marker_event = marker_event  # what a transaction marker means to this machine
        self._callers: dict[CallerId, Deferred[object]] = {}  # those whose reply must wait
        self._last_caller = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Millis | None = None
        self._timer_due_s = 0.0  # by the loop's clock
        self._closed = False
        self._loading: Iterator[None] | None = None
        self._told: list[CommandT] = []  # while loading
        if loads_in_turns:
            self._begin_loading()
        else:
            self._runner = self._load()
            self._listen()

    @property
    def state(self) -> StateT:
        """For reading only, between two commands."""
        return self._runner.state

    @property
    def is_ready(self) -> bool:
        """False while the log behind it refuses writes."""
        return not (self._closed or self._loading is not None or self._runner.failed)

    def start(self) -> None:
        """Let time pass for the machine; needs the running event loop."""
        if self._loading is not None:
            asyncio.get_running_loop().call_soon(self._load_on)
        else:
            self._set_timer()

    def submit(self, command: Callable[[CallerId], CommandT]) -> object:
        """Decide a command that is made for its caller: its reply, or a Refused.

        A Deferred of that where it must wait.
        """
        if self._closed:
            return _moved()
        if self._loading is not None:
            return Refused(
                ErrorCode.coordinator_load_in_progress, "its log is being read; try again"
            )
        self._last_caller += 1
        caller = CallerId(self._last_caller)
        runner = self._runner
        reply = runner.submit(command(caller), caller, self._clock())
        if reply is NOT_YET:
            reply = self._callers[caller] = Deferred(partial(self._callers.pop, caller, None))
        if runner.failed or runner.machine.wake_at(runner.state) != self._timer_at:
            self._after()
        return reply

    def tell(self, command: CommandT) -> None:
        """Decide a report of the shell itself: nobody waits for an answer."""
        if self._loading is not None:
            self._told.append(command)
        elif not self._closed:
            self._runner.submit(command, NOBODY, self._clock())
            self._after()

    def close(self) -> None:
        """Stop, because the partition moves or the broker stops: refuse everybody who waits."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_committed in self.partition.commit_listeners:
            self.partition.commit_listeners.remove(self._on_committed)
        if self._on_failed in self.partition.failure_listeners:
            self.partition.failure_listeners.remove(self._on_failed)
        if self._on_marker in self.partition.marker_listeners:
            self.partition.marker_listeners.remove(self._on_marker)
        self._runner.fail()
        self._refuse_callers(_moved())

    def _listen(self) -> None:
        """Hear of commits and markers from here on; before, the log itself told of them."""
        self.partition.commit_listeners.append(self._on_committed)
        self.partition.failure_listeners.append(self._on_failed)
        if self._marker_event is not None:
            self.partition.marker_listeners.append(self._on_marker)

    def _fresh(self) -> Runner[StateT, CommandT, EventT]:
        journal = PartitionJournal(self.partition)
        return Runner(self._machine, journal, answer=self._answer, send=self._send)

    def _load(self) -> Runner[StateT, CommandT, EventT]:
        runner = self._fresh()
        for _ in self._replay(runner):
            pass
        return runner

    def _replay(self, runner: Runner[StateT, CommandT, EventT]) -> Iterator[None]:
        """Read the log; at each stop something else may be done, and what is written meanwhile
        is read too."""
        for stored in read_journal(self.partition):
            if isinstance(stored, StoredBatch):
                runner.replay_batch(stored.records, stored.stamp)
            elif self._marker_event is not None:
                runner.observe(self._marker_event(stored))
            yield

    def _begin_loading(self) -> None:
        self._runner = self._fresh()
        self._loading = self._replay(self._runner)

    def _load_on(self) -> None:
        """A turn of loading: no longer than others can wait."""
        if self._closed or self._loading is None:
            return
        loop = asyncio.get_running_loop()
        until_s = loop.time() + LOAD_TURN_S
        try:
            for _ in self._loading:
                if loop.time() >= until_s:
                    loop.call_soon(self._load_on)
                    return
        except OSError as error:
            logger.error("%s: %s", self.partition.topic_partition, error)
            self._begin_loading()
            loop.call_later(RELOAD_AFTER_S, self._load_on)
            return
        self._loading = None
        self._listen()
        told, self._told = self._told, []
        for command in told:
            self.tell(command)
        self._after()

    def _answer(self, caller: CallerId, body: object) -> None:
        deferred = self._callers.pop(caller, None)
        if deferred is not None:  # else the client disconnected while it waited
            deferred.resolve(body)

    def _on_committed(self) -> None:
        self._runner.on_committed()

    def _on_failed(self) -> None:
        """What is in the log and may be lost is not answered for, nor built upon."""
        self._runner.fail()
        self._after()

    def _on_marker(self, marker: Marker) -> None:
        assert self._marker_event is not None
        self._runner.observe(self._marker_event(marker))
        self._after()

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._timer_due_s > LATE_S:
            # Heartbeats that came while we stood still must count before sessions end.
            self._timer_due_s = loop.time() + CATCH_UP_S
            self._timer = loop.call_at(self._timer_due_s, self._on_timer)
            return
        self._timer = None
        self._runner.tick(self._clock())
        self._after()

    def _after(self) -> None:
        if self._runner.failed and not self._closed:
            self._reload_later()
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        wake_at = self._runner.wake_at()
        if self._timer is not None:
            if wake_at == self._timer_at:
                return
            self._timer.cancel()
            self._timer = None
        self._timer_at = wake_at
        if wake_at is None or self._closed:
            return
        delay_s = min(max(wake_at - self._clock().steady, 0) / 1000, SLEEP_MAX_S)
        loop = asyncio.get_running_loop()
        self._timer_due_s = loop.time() + delay_s
        self._timer = loop.call_at(self._timer_due_s, self._on_timer)

    def _reload_later(self) -> None:
        self._refuse_callers(
            Refused(ErrorCode.coordinator_not_available, "the log behind it could not be written")
        )
        if self.partition.log.sync_failure is not None:
            return  # only the next start can tell what is on disk: until then all are refused
        if self._timer is not None and self._timer_at is None:
            return  # a reload is on its way
        if self._timer is not None:
            self._timer.cancel()
        logger.error("%s could not be written; reloading", self.partition.topic_partition)
        self._timer_at = None
        self._timer = asyncio.get_running_loop().call_later(RELOAD_AFTER_S, self._reload)

    def _reload(self) -> None:
        self._timer = None
        try:
            self._runner = self._load()
        except OSError as error:
            logger.error("%s: %s", self.partition.topic_partition, error)
            self._reload_later()
            return
        self._set_timer()

    def _refuse_callers(self, refusal: Refused) -> None:
        callers, self._callers = self._callers, {}
        for deferred in callers.values():
            deferred.resolve(refusal)


def _moved() -> Refused:
    return Refused(ErrorCode.not_coordinator, "this broker no longer coordinates it; find it again")
