"""Runs one machine over one journal. The shell brings commands, the time, and news of commits.

Invariant: the state is always `fresh` plus every event of the journal plus notes; a reply leaves
only when the journal is committed up to the end it had when the reply was made. So nobody ever sees
what could still be lost.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.machine.journal import Journal, JournalRecord, TransactionStamp
from penstock.machine.outcome import CallerId, Machine, Outcome, ReplaysBatches, Reply, Stored
from penstock.model import Millis, Moment, Offset

StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
EventT = TypeVar("EventT")

NOT_YET: Final = object()  # instead of a reply, which may be anything


class Runner(Generic[StateT, CommandT, EventT]):
    """One machine, its state, and the replies that wait for the journal."""

    def __init__(
        self,
        machine: Machine[StateT, CommandT, EventT],
        journal: Journal,
        *,
        answer: Callable[[CallerId, object], None],
        send: Callable[[object], None],
    ) -> None:
        self.machine = machine
        self.state = machine.fresh()
        self.failed = (
            False  # an append failed: memory is ahead of the log, so the owner must reload
        )
        self._replay_batch = machine.replay_batch if isinstance(machine, ReplaysBatches) else None
        self._journal = journal
        self._answer = answer
        self._send = send
        self._waiting: deque[tuple[Offset, tuple[Reply, ...], tuple[object, ...]]] = deque()

    def replay(self, records: Iterable[tuple[JournalRecord, TransactionStamp | None]]) -> None:
        """Rebuild the state from stored records, in offset order."""
        read_events, apply, state = self.machine.read_events, self.machine.apply, self.state
        for record, stamp in records:
            for event in read_events(record, stamp):
                apply(state, event)

    def replay_batch(self, records: Sequence[Stored], stamp: TransactionStamp | None) -> None:
        """As `replay`, for the records of one batch; a machine may know a shorter way.

        A record without a key is nobody's event.
        """
        if self._replay_batch is not None:
            self._replay_batch(self.state, records, stamp)
        else:
            self.replay(
                (JournalRecord(key, value), stamp) for key, value in records if key is not None
            )

    def submit(self, command: CommandT, caller: CallerId, now: Moment) -> object:
        """Decide one command. The caller's own reply, a Refused, or NOT_YET if it must wait.

        Replies that wait, and replies to other callers, follow through `answer`.
        """
        if self.failed:
            return _reloading()
        try:
            outcome = self.machine.decide(self.state, command, now)
        except Refused as refusal:  # by a state that may not be committed yet: it waits as well
            outcome = Outcome(replies=(Reply(caller, refusal),))
        return self._carry_out(outcome, caller, now)

    def tick(self, now: Moment) -> None:
        """Let the machine act on the time that passed."""
        wake_at = self.machine.wake_at(self.state)
        if not self.failed and wake_at is not None and wake_at <= now.steady:
            self._carry_out(self.machine.tick(self.state, now), None, now)

    def wake_at(self) -> Millis | None:
        """When `tick` should be called next, by the steady clock."""
        return None if self.failed else self.machine.wake_at(self.state)

    def observe(self, event: EventT) -> None:
        """Apply what another writer of the same log did (a transaction marker)."""
        self.machine.apply(self.state, event)

    def on_committed(self) -> None:
        """The journal's committed offset moved: release what waited for it."""
        if not self._waiting:
            return
        committed = self._journal.committed_offset
        while self._waiting and self._waiting[0][0] <= committed:
            _, replies, sends = self._waiting.popleft()
            self._release(replies, sends)

    def fail(self) -> None:
        """The log cannot be written, or is led elsewhere now: refuse everybody who waits."""
        self.failed = True
        while self._waiting:
            _, replies, _ = self._waiting.popleft()
            for reply in replies:
                self._answer(reply.to, _reloading())

    def _carry_out(self, outcome: Outcome[EventT], caller: CallerId | None, now: Moment) -> object:
        events, notes, replies, sends, stamp = outcome
        if events:
            refusal = self._append(events, now, stamp)
            if refusal is not None:
                replies = tuple([Reply(reply.to, refusal) for reply in replies])
                return self._release(replies, (), caller)
        for note in notes:
            self.machine.apply(self.state, note)
        if not replies and not sends:
            return NOT_YET
        journal, waiting = self._journal, self._waiting
        if not waiting and (journal.end_offset <= journal.committed_offset or self.failed):
            if len(replies) == 1 and replies[0].to == caller and not sends:
                return replies[0].body  # as most are
            return self._release(replies, sends, caller)
        waiting.append((journal.end_offset, replies, sends))
        return NOT_YET

    def _append(
        self, events: tuple[EventT, ...], now: Moment, stamp: TransactionStamp | None
    ) -> Refused | None:
        """Write the events and apply them; else why nothing was done."""
        machine, state = self.machine, self.state
        try:
            self._journal.append([*map(machine.write_event, events)], now.wall, stamp)
        except OSError:
            self.fail()
            return _reloading()
        except Refused as refusal:  # of this batch alone, as of a fenced producer's
            return refusal
        for event in events:
            machine.apply(state, event)
        return None

    def _release(
        self, replies: tuple[Reply, ...], sends: tuple[object, ...], caller: CallerId | None = None
    ) -> object:
        """Let go of what may be known; gives what is for the caller itself."""
        own = NOT_YET
        for to, body in replies:
            if to == caller:
                own = body
            else:
                self._answer(to, body)
        for message in sends:
            self._send(message)
        return own


def _reloading() -> Refused:
    return Refused(
        ErrorCode.coordinator_not_available,
        "the log behind this service could not be written; it reloads, try again",
    )
