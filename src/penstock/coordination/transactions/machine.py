"""The transaction coordinator as a machine: one per led partition of `__transaction_state`.

Pure. The log's records are the whole metadata of a transactional id; markers in data partitions are
*sends*, repeated until the shell reports them written, also by a coordinator that has just loaded
its log: a transaction is complete only after its markers are in the logs.

Which transactional ids a ListTransactions request asks for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from penstock.coordination.transactions import codec
from penstock.coordination.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    Command,
    Describe,
    EndTransaction,
    InitProducer,
    ListIds,
    MarkersWritten,
    Producer,
    WantProducerId,
)
from penstock.coordination.transactions.decide_transactions import (
    decide_add,
    decide_end,
    decide_init,
    decide_markers_written,
    ending_outcome,
    fenced,
    markers_of,
)
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import (
    AT_ONCE,
    MARKER_RETRY_MS,
    STATE_BY_TITLE,
    DeadlineSet,
    Event,
    Expired,
    ExpiryDue,
    MarkersDue,
    TimeoutDeferred,
    Transaction,
    Transactions,
    TransactionState,
    apply,
    is_open,
)
from penstock.coordination.transactions.validate import validate
from penstock.errors import ErrorCode, Refused
from penstock.machine import JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import NO_PRODUCER, Millis, Moment, ProducerId

DUE_MAX: Final = 200  # of each kind in one tick; the rest follows in the next
EXPIRY_CHECK_MS: Final = Millis(3_600_000)


class TransactionMachine:
    """The coordinator of all transactional ids that hash to one partition."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings

    def fresh(self) -> Transactions:
        """Nobody has a transactional id yet."""
        return Transactions()

    def decide(self, state: Transactions, command: Command, now: Moment) -> Outcome[Event]:
        """All rules; see `rules`."""
        match command:
            case InitProducer():
                return decide_init(state, command, self.settings, now)
            case AddPartitions():
                return decide_add(state, command, now)
            case EndTransaction():
                return decide_end(state, command, now)
            case MarkersWritten():
                return decide_markers_written(state, command, now)
            case AbortTimedOut():
                return _decide_abort_timed_out(state, command, now)
            case Describe():
                return Outcome(replies=(Reply(command.caller, _described(state, command)),))
            case ListIds():
                return Outcome(replies=(Reply(command.caller, tuple(state.by_id.values())),))
            case _:
                assert_never(command)

    def apply(self, state: Transactions, event: Event) -> None:
        """Change the state; see `state`."""
        apply(state, event)

    def wake_at(self, state: Transactions) -> Millis | None:
        """The next time-out, repeated marker or expiry."""
        if state.expiry_due is None:
            return AT_ONCE
        due: list[Millis] = []
        if state.deadlines:
            due.append(state.deadlines[0].at)
        if state.markers_due:
            due.append(next(iter(state.markers_due.values())))
        if state.settled:
            due.append(state.expiry_due)
        return min(due, default=None)

    def tick(self, state: Transactions, now: Moment) -> Outcome[Event]:
        """Abort what timed out, send markers again, forget ids nobody used."""
        if state.expiry_due is None:
            return Outcome(notes=(*_loaded_deadlines(state, now), self._next_expiry(now)))
        return _joined(
            (
                *self._expire(state, now),
                *_resend_markers(state, now),
                *_time_out(state, now),
            )
        )

    def validate(self, state: Transactions) -> None:
        """Assert the invariants."""
        validate(state)

    def write_event(self, event: Event) -> JournalRecord:
        """The event as its log stores it."""
        return codec.write_event(event)

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        """The events a stored record stands for. No transaction wraps this log's own records."""
        return codec.read_events(record)

    def _expire(self, state: Transactions, now: Moment) -> list[Outcome[Event]]:
        """By the time of day, for that is what the log knows; how long it is kept is retention."""
        if state.expiry_due is None or state.expiry_due > now.steady:
            return []
        used_before = now.wall - self.settings.id_expiration_ms
        expired = [
            Expired(transactional_id)
            for transactional_id, updated_at in state.settled.items()
            if updated_at <= used_before
        ]
        next_due = self._next_expiry(now) if len(expired) <= DUE_MAX else ExpiryDue(now.steady)
        return [Outcome(events=tuple(expired[:DUE_MAX]), notes=(next_due,))]

    def _next_expiry(self, now: Moment) -> Event:
        wait_ms = min(EXPIRY_CHECK_MS, self.settings.id_expiration_ms)
        return ExpiryDue(Millis(now.steady + wait_ms))


def _described(state: Transactions, command: Describe) -> Transaction:
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = state.by_id.get(command.transactional_id)
    if transaction is None:
        raise Refused(ErrorCode.transactional_id_not_found, "nobody uses this transactional id")
    return transaction


def _loaded_deadlines(state: Transactions, now: Moment) -> list[Event]:
    """The time-outs of what was open when the log was read, by what is left of them.

    That is told by the time of day. If it was set back meanwhile no transaction has more than its
    whole time-out left.
    """
    known = {entry.transactional_id for entry in state.deadlines if is_open(state, entry)}
    notes: list[Event] = []
    for transactional_id, transaction in state.by_id.items():
        if transaction.state is TransactionState.ONGOING and transactional_id not in known:
            left_ms = transaction.started_at + transaction.timeout_ms - now.wall
            left_ms = min(max(left_ms, 0), transaction.timeout_ms)
            notes.append(DeadlineSet(transactional_id, Millis(now.steady + left_ms)))
    return notes


def _resend_markers(state: Transactions, now: Moment) -> list[Outcome[Event]]:
    outcomes: list[Outcome[Event]] = []
    for transactional_id, at in state.markers_due.items():
        if at > now.steady or len(outcomes) == DUE_MAX:
            break
        partitions = frozenset(state.unmarked[transactional_id])
        outcomes.append(
            Outcome(
                notes=(MarkersDue(transactional_id, Millis(now.steady + MARKER_RETRY_MS)),),
                sends=(markers_of(state.by_id[transactional_id], partitions),),
            )
        )
    return outcomes


def _time_out(state: Transactions, now: Moment) -> list[Outcome[Event]]:
    due = sorted(
        entry for entry in state.deadlines if entry.at <= now.steady and is_open(state, entry)
    )
    outcomes: dict[str, Outcome[Event]] = {}
    for entry in due[:DUE_MAX]:
        transaction = state.by_id[entry.transactional_id]
        if transaction.is_epoch_exhausted:
            producer = Producer(transaction.producer_id, transaction.producer_epoch)
            outcomes[entry.transactional_id] = Outcome(
                notes=(
                    TimeoutDeferred(entry.transactional_id, Millis(now.steady + MARKER_RETRY_MS)),
                ),
                sends=(WantProducerId(entry.transactional_id, producer),),
            )
        else:
            aborting = fenced(transaction, NO_PRODUCER, now)
            outcomes[entry.transactional_id] = ending_outcome(aborting, now)
    return list(outcomes.values())


def _decide_abort_timed_out(
    state: Transactions, report: AbortTimedOut, now: Moment
) -> Outcome[Event]:
    transaction = state.by_id.get(report.transactional_id)
    if (
        transaction is None
        or transaction.state is not TransactionState.ONGOING
        or report.transactional_id not in state.overdue
        or report.producer != (transaction.producer_id, transaction.producer_epoch)
    ):
        return Outcome()
    return ending_outcome(fenced(transaction, report.minted_producer_id, now), now)


def _joined(outcomes: Sequence[Outcome[Event]]) -> Outcome[Event]:
    """Many outcomes as one: their events are one batch, all or none."""
    return Outcome(
        events=tuple(event for outcome in outcomes for event in outcome.events),
        notes=tuple(note for outcome in outcomes for note in outcome.notes),
        sends=tuple(message for outcome in outcomes for message in outcome.sends),
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """What must all hold. An empty set, None or a negative duration asks for nothing."""

    states: frozenset[TransactionState] = frozenset()
    has_unknown_states: bool = False  # only unknown ones were asked for: nothing matches
    producer_ids: frozenset[ProducerId] = frozenset()
    longer_than_ms: Millis = Millis(-1)
    matches_id: Callable[[str], bool] | None = None

    def admits(self, transaction: Transaction, now: Millis) -> bool:
        """Whether the list should show it."""
        if (self.states or self.has_unknown_states) and transaction.state not in self.states:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.longer_than_ms >= 0 and now - transaction.started_at <= self.longer_than_ms:
            return False
        return self.matches_id is None or self.matches_id(transaction.transactional_id)


def known_states(titles: Iterable[str]) -> tuple[frozenset[TransactionState], tuple[str, ...]]:
    """The states by the names that clients see, and the names nobody knows."""
    titles = tuple(titles)
    known = frozenset(STATE_BY_TITLE[title] for title in titles if title in STATE_BY_TITLE)
    return known, tuple(title for title in titles if title not in STATE_BY_TITLE)
