"""Runs one machine over one journal. The shell brings commands and the time.

    loading -> running -> resigned
A runner is bound to one leader epoch or claim, as its journal is. Invariants: the state is `fresh`
plus every event of the journal plus notes; a reply leaves only when everything that it depends on
is committed (own journal) or was read back (shared journal).
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.machine.deferred import Deferred
from penstock.machine.journal import (
    Applies,
    Journal,
    JournalRecord,
    OwnJournal,
    SharedJournal,
    TransactionMark,
)
from penstock.machine.outcome import (
    NO_CALLER,
    CallerId,
    KeyValue,
    Machine,
    Outcome,
    ReplaysBatches,
    Reply,
)
from penstock.machine.story import Step, Story
from penstock.model import Millis, Moment, Offset

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

COMMIT_WAIT_MS: Final = 5_000  # a reply whose events are not committed by then becomes an error
RETRY_MIN_MS: Final = 100  # a tick that the journal refused is tried again after this, doubling
RETRY_MAX_MS: Final = 5_000
QUEUED_MAX: Final = 10_000  # commands behind one write of a shared journal; more are refused


class Phase(Enum):
    """The life of a runner."""

    LOADING = "loading"  # its journal is being read: commands are refused
    RUNNING = "running"
    RESIGNED = "resigned"  # the epoch or claim is over: commands are refused for good


class _Uncommitted(NamedTuple, Generic[EventT]):
    """What waits until the journal is committed up to `end_offset`."""

    end_offset: Offset
    until: Millis  # by the steady clock
    replies: tuple[Reply, ...]
    sends: tuple[object, ...]
    events: tuple[EventT, ...]


class _Queued(NamedTuple, Generic[CommandT]):
    """A command that waits for the write before it, over a shared journal."""

    caller: CallerId
    command: CommandT
    now: Moment


class Runner(Generic[StateT, CommandT, EventT]):
    """One machine, its state, and the callers that wait for a reply."""

    def __init__(
        self,
        machine: Machine[StateT, CommandT, EventT],
        *,
        state: StateT | None = None,  # of the runner before, over a shared journal
        story: Story | None = None,  # likewise
        send: Callable[[object], None] = lambda _message: None,
        on_events: Callable[[Sequence[EventT]], None] | None = None,  # whole batches, committed
    ) -> None:
        self.machine = machine
        self.state: StateT = machine.fresh() if state is None else state
        self.story: Story = Story() if story is None else story
        self.phase: Phase = Phase.LOADING
        self.writes_refused: int = 0  # by the journal
        self._refusal: Exception = Refused(
            ErrorCode.coordinator_load_in_progress, "its log is being read; try again"
        )
        self._send = send
        self._on_events = on_events
        self._replay_batch = machine.replay_batch if isinstance(machine, ReplaysBatches) else None
        self._journal: OwnJournal | None = None
        self._shared: SharedJournal | None = None
        self._callers: dict[CallerId, Deferred[object]] = {}  # those whose reply must wait
        self._last_caller = 0
        self._uncommitted_end: Offset | None = None  # the state depends on what is below it
        self._waiting: deque[_Uncommitted[EventT]] = deque()  # in the order of the journal
        self._awaited_end = Offset(-1)  # the journal calls when everything below is committed
        self._retry_ms = 0  # after a tick that the journal refused
        self._retry_at = Millis(0)
        self._is_writing = False  # a shared journal takes one outcome at a time
        self._queue: deque[_Queued[CommandT]] = deque()

    # Loading.

    def replay(self, records: Iterable[JournalRecord], mark: TransactionMark | None = None) -> None:
        """Rebuild the state from stored records, in offset order."""
        read_events, apply, state = self.machine.read_events, self.machine.apply, self.state
        for record in records:
            for event in read_events(record, mark):
                apply(state, event)

    def replay_batch(self, records: Sequence[KeyValue], mark: TransactionMark | None) -> None:
        """As `replay`, for the records of one batch. Records without a key are not events."""
        if self._replay_batch is not None:
            self._replay_batch(self.state, records, mark)
        else:
            self.replay((JournalRecord(k, v) for k, v in records if k is not None), mark)

    def start(self, journal: Journal) -> None:
        """The state is the journal's, read to its end: take commands."""
        assert self.phase is Phase.LOADING
        self.phase = Phase.RUNNING
        if journal.applies is Applies.ON_READ_BACK:
            self._shared = journal
        else:
            self._journal = journal
            self._note_end(journal)

    def observe(self, event: EventT) -> None:
        """Apply what another writer put into the same log (a transaction marker)."""
        self.machine.apply(self.state, event)
        if self._journal is not None:
            self._note_end(self._journal)

    def _note_end(self, journal: OwnJournal) -> None:
        if journal.end_offset > journal.committed_offset:
            self._uncommitted_end = journal.end_offset

    # Running.

    def submit(self, command: Callable[[CallerId], CommandT], now: Moment) -> object:
        """Decide a command that is made for its caller: its reply, or an exception instead.

        A Deferred of that where it must wait.
        """
        if self.phase is not Phase.RUNNING:
            return self._refusal.with_traceback(None)  # frames of earlier callers would pile up
        self._last_caller = caller = CallerId(self._last_caller + 1)
        if self._is_writing:
            return self._queue_up(_Queued(caller, command(caller), now))
        return self._decide(command(caller), caller, now)

    def report(self, command: CommandT, now: Moment) -> None:
        """Decide a report of the shell itself: nothing waits for a reply."""
        assert self._shared is None
        if self.phase is Phase.RUNNING:
            self._decide(command, NO_CALLER, now)

    def query(self, command: CommandT, now: Moment) -> object:
        """The reply to a command that changes nothing; also while loading. Raises Refused."""
        (reply,) = self.machine.decide(self.state, command, now).replies
        return reply.body

    def tick(self, now: Moment) -> None:
        """Let the machine act on the time that passed, and give up on commits that do not come."""
        if self.phase is not Phase.RUNNING:
            return
        self._expire(now)
        wake_at = self.machine.wake_at(self.state)
        if wake_at is None or max(wake_at, self._retry_at) > now.steady:
            return
        refused = self.writes_refused
        self._carry_out(self.machine.tick(self.state, now), NO_CALLER, now)
        if self.writes_refused == refused:
            self._retry_ms, self._retry_at = 0, Millis(0)
        else:
            self._retry_ms = min(max(2 * self._retry_ms, RETRY_MIN_MS), RETRY_MAX_MS)
            self._retry_at = Millis(now.steady + self._retry_ms)

    def wake_at(self) -> Millis | None:
        """When `tick` should be called next, by the steady clock."""
        if self.phase is not Phase.RUNNING:
            return None
        wake_at = self.machine.wake_at(self.state)
        if wake_at is not None:
            wake_at = max(wake_at, self._retry_at)
        for waiting in self._waiting:
            if waiting.replies:
                return waiting.until if wake_at is None else min(wake_at, waiting.until)
        return wake_at

    def resign(self, refusal: Exception) -> None:
        """The epoch or claim is over: give this to every caller, now and from now on."""
        if self.phase is Phase.RESIGNED:
            return
        self.phase, self._refusal = Phase.RESIGNED, refusal
        if self._shared is None:
            self.state = self.machine.fresh()  # it may hold what another leader never committed
        self._waiting.clear()
        self._queue.clear()
        callers, self._callers = self._callers, {}
        for deferred in callers.values():
            deferred.resolve(refusal)

    def _decide(self, command: CommandT, caller: CallerId, now: Moment) -> object:
        try:
            outcome = self.machine.decide(self.state, command, now)
        except Refused as refusal:  # by a state that may not be committed yet: it waits as well
            outcome = Outcome(replies=(Reply(caller, refusal.without_frames()),))
        return self._carry_out(outcome, caller, now)

    def _carry_out(self, outcome: Outcome[EventT], caller: CallerId, now: Moment) -> object:
        """Write, apply and reply, in this order. The caller's reply, or a Deferred of it."""
        events, notes, replies, sends, mark, story = outcome
        machine, state, journal = self.machine, self.state, self._journal
        if journal is None:
            return self._write_shared(outcome, caller, now)
        if events:
            try:
                end_offset = journal.append([*map(machine.write_event, events)], now.wall, mark)
            except (Refused, OSError) as error:
                return self._refuse(replies, error, caller)
            if end_offset is not None:
                self._uncommitted_end = end_offset
            for event in events:
                machine.apply(state, event)
        for note in notes:
            machine.apply(state, note)
        if story:
            self.story.add(story, now.wall)
        if self._uncommitted_end is not None:
            return self._wait(journal, outcome, caller, now)
        if len(replies) == 1 and replies[0].to == caller and not sends and not self._on_events:
            return replies[0].body  # as most are
        return self._release(replies, sends, events, caller)

    # Replies.

    def _defer(self, caller: CallerId) -> object:
        if caller == NO_CALLER:
            return None
        deferred = self._callers[caller] = Deferred(partial(self._callers.pop, caller, None))
        return deferred

    def _resolve(self, caller: CallerId, body: object) -> None:
        deferred = self._callers.pop(caller, None)
        if deferred is not None:  # else the client disconnected while it waited
            deferred.resolve(body)

    def _release(
        self,
        replies: tuple[Reply, ...],
        sends: tuple[object, ...],
        events: tuple[EventT, ...],
        caller: CallerId,
    ) -> object:
        """Everything is committed. The caller's own reply is returned; a Deferred if none is."""
        if events and self._on_events is not None:
            self._on_events(events)
        own = [body for to, body in replies if to == caller]
        result = own[0] if own else self._defer(caller)
        for to, body in replies:
            if to != caller:
                self._resolve(to, body)
        for message in sends:
            self._send(message)
        return result

    def _refuse(self, replies: tuple[Reply, ...], error: Exception, caller: CallerId) -> object:
        """Nothing was written: every reply of the outcome becomes the error."""
        self.writes_refused += 1
        refusal = error.without_frames() if isinstance(error, Refused) else _disk_failed()
        return self._release(tuple([Reply(to, refusal) for to, _ in replies]), (), (), caller)

    # Waiting for commits.

    def _wait(
        self, journal: OwnJournal, outcome: Outcome[EventT], caller: CallerId, now: Moment
    ) -> object:
        end_offset = self._uncommitted_end
        assert end_offset is not None
        if end_offset <= journal.committed_offset and not self._waiting:
            self._uncommitted_end = None
            return self._release(outcome.replies, outcome.sends, outcome.events, caller)
        result = self._defer(caller)
        events = outcome.events if self._on_events is not None else ()
        if outcome.replies or outcome.sends or events:
            until = Millis(now.steady + COMMIT_WAIT_MS)
            self._waiting.append(
                _Uncommitted(end_offset, until, outcome.replies, outcome.sends, events)
            )
            if end_offset > self._awaited_end:  # else it calls anyway
                self._awaited_end = end_offset
                journal.call_when_committed(end_offset, self.on_committed)
        return result

    def on_committed(self, refusal: Refused | None = None) -> None:
        """More of the journal is committed: release what waited. A refusal: it will not be."""
        if self._journal is None or self.phase is not Phase.RUNNING:
            return
        committed = self._journal.committed_offset
        while self._waiting and self._waiting[0].end_offset <= committed:
            _, _, replies, sends, events = self._waiting.popleft()
            self._release(replies, sends, events, NO_CALLER)
        if self._uncommitted_end is not None and self._uncommitted_end <= committed:
            self._uncommitted_end = None
        if refusal is not None:
            self._awaited_end = committed
            waiting, self._waiting = self._waiting, deque()
            for uncommitted in waiting:
                self._fail(uncommitted.replies, refusal)

    def _expire(self, now: Moment) -> None:
        """Refuse replies that waited too long. What they depend on may still be committed."""
        late = [each for each in self._waiting if each.replies and each.until <= now.steady]
        if not late:
            return
        self._waiting = deque(
            each._replace(replies=()) if each.until <= now.steady else each
            for each in self._waiting
            if each.until > now.steady or each.sends or each.events
        )
        for each in late:
            self._fail(each.replies, _not_committed())

    def _fail(self, replies: tuple[Reply, ...], refusal: Refused) -> None:
        for to, _ in replies:
            self._resolve(to, refusal)

    # Over a shared journal: one write at a time, applied when it was read back.

    def on_read_back(self, events: Sequence[EventT]) -> None:
        """Apply what was read from a shared journal, by whichever runner it was written."""
        for event in events:
            self.machine.apply(self.state, event)
        if self._on_events is not None:
            self._on_events(events)

    def _queue_up(self, queued: _Queued[CommandT]) -> object:
        if len(self._queue) >= QUEUED_MAX:
            return Refused(ErrorCode.throttling_quota_exceeded, "too many writes wait; try again")
        self._queue.append(queued)
        return self._defer(queued.caller)

    def _write_shared(self, outcome: Outcome[EventT], caller: CallerId, now: Moment) -> object:
        events, notes, replies, sends, mark, story = outcome
        assert self._shared is not None
        assert not notes
        if not events:
            return self._release(replies, sends, (), caller)
        records = [*map(self.machine.write_event, events)]
        self._is_writing = True
        deferred = self._callers.get(caller) or self._defer(caller)
        written = self._shared.append(records, now.wall, mark)
        written.listen(partial(self._on_written, replies, sends, story, now.wall))
        return deferred

    def _on_written(
        self,
        replies: tuple[Reply, ...],
        sends: tuple[object, ...],
        story: tuple[Step, ...],
        at: Millis,
        result: Offset | Exception,
    ) -> None:
        if self.phase is not Phase.RUNNING:
            return
        if isinstance(result, Exception):
            for to, _ in replies:
                self._resolve(to, result)
            ended = "the claim ended before this was decided; try again"
            self.resign(Refused(ErrorCode.not_coordinator, ended))
            return
        self._is_writing = False
        self.story.add(story, at)
        self._release(replies, sends, (), NO_CALLER)
        while self._queue and not self._is_writing:
            caller, command, now = self._queue.popleft()
            if caller in self._callers:  # else it was cancelled before its turn
                self._resolve_if_known(caller, self._decide(command, caller, now))

    def _resolve_if_known(self, caller: CallerId, reply: object) -> None:
        if not isinstance(reply, Deferred):
            self._resolve(caller, reply)


def _disk_failed() -> Refused:
    return Refused(
        ErrorCode.coordinator_not_available, "the log behind it could not be written; try again"
    )


def _not_committed() -> Refused:
    return Refused(
        ErrorCode.coordinator_not_available,
        f"the change was not committed within {COMMIT_WAIT_MS} ms; try again",
    )
