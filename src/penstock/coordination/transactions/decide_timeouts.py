"""What follows from time alone: time-outs, repeated markers, expired ids, and loaded deadlines."""

from collections.abc import Sequence
from typing import Final

from penstock.coordination.transactions.commands import AbortTimedOut, RequestProducerId
from penstock.coordination.transactions.decide_transactions import (
    MARKER_RETRY_MS,
    TIMED_OUT,
    ending_outcome,
    fenced,
    markers_of,
    producer_of,
)
from penstock.coordination.transactions.events import (
    DeadlineSet,
    Event,
    ExpiryDue,
    MarkersDue,
    TimeoutDeferred,
    TransactionalIdExpired,
)
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import TransactionsState, is_open
from penstock.coordination.transactions.transaction_moves import TransactionState
from penstock.machine import Outcome
from penstock.model import NO_PRODUCER, Millis, Moment

DUE_MAX: Final = 200  # of each kind in one tick; the rest follows in the next
EXPIRY_CHECK_MS: Final = Millis(3_600_000)


def decide_tick(
    state: TransactionsState, settings: TransactionSettings, now: Moment
) -> Outcome[Event]:
    """Abort what timed out, send markers again, remove ids that were not used for long."""
    if state.expiry_due is None:
        return Outcome(notes=(*_loaded_deadlines(state, now), _next_expiry(settings, now)))
    return _joined(
        (
            *_expire(state, settings, now),
            *_resend_markers(state, now),
            *_time_out(state, now),
        )
    )


def _joined(outcomes: Sequence[Outcome[Event]]) -> Outcome[Event]:
    """Many outcomes as one: their events are one batch, all or none."""
    return Outcome(
        events=tuple(event for outcome in outcomes for event in outcome.events),
        notes=tuple(note for outcome in outcomes for note in outcome.notes),
        sends=tuple(message for outcome in outcomes for message in outcome.sends),
        story=tuple(step for outcome in outcomes for step in outcome.story),
    )


def _loaded_deadlines(state: TransactionsState, now: Moment) -> list[Event]:
    """The time-outs of what was open when the log was read, by what is left of them.

    That is by the time of day. If it was set back meanwhile, no transaction has more than its whole
    time-out left.
    """
    known = {entry.transactional_id for entry in state.deadlines if is_open(state, entry)}
    notes: list[Event] = []
    for transactional_id, transaction in state.by_id.items():
        if transaction.state is TransactionState.ONGOING and transactional_id not in known:
            left_ms = transaction.started_at + transaction.timeout_ms - now.wall
            left_ms = min(max(left_ms, 0), transaction.timeout_ms)
            notes.append(DeadlineSet(transactional_id, Millis(now.steady + left_ms)))
    return notes


def _next_expiry(settings: TransactionSettings, now: Moment) -> Event:
    wait_ms = min(EXPIRY_CHECK_MS, settings.id_expiration_ms)
    return ExpiryDue(Millis(now.steady + wait_ms))


def _expire(
    state: TransactionsState, settings: TransactionSettings, now: Moment
) -> list[Outcome[Event]]:
    """By the time of day, for that is what the log knows."""
    if state.expiry_due is None or state.expiry_due > now.steady:
        return []
    used_before = now.wall - settings.id_expiration_ms
    expired = [
        TransactionalIdExpired(transactional_id)
        for transactional_id, updated_at in state.ended.items()
        if updated_at <= used_before
    ]
    next_due = _next_expiry(settings, now) if len(expired) <= DUE_MAX else ExpiryDue(now.steady)
    return [Outcome(events=tuple(expired[:DUE_MAX]), notes=(next_due,))]


def _resend_markers(state: TransactionsState, now: Moment) -> list[Outcome[Event]]:
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


def _time_out(state: TransactionsState, now: Moment) -> list[Outcome[Event]]:
    due = sorted(
        entry for entry in state.deadlines if entry.at <= now.steady and is_open(state, entry)
    )
    outcomes: dict[str, Outcome[Event]] = {}
    for entry in due[:DUE_MAX]:
        transaction = state.by_id[entry.transactional_id]
        if transaction.is_epoch_exhausted:
            outcomes[entry.transactional_id] = Outcome(
                notes=(
                    TimeoutDeferred(entry.transactional_id, Millis(now.steady + MARKER_RETRY_MS)),
                ),
                sends=(RequestProducerId(entry.transactional_id, producer_of(transaction)),),
            )
        else:
            aborting = fenced(transaction, NO_PRODUCER, now)
            outcomes[entry.transactional_id] = ending_outcome(aborting, now, TIMED_OUT)
    return list(outcomes.values())


def decide_abort_timed_out(
    state: TransactionsState, report: AbortTimedOut, now: Moment
) -> Outcome[Event]:
    """The producer id is there: abort, unless the producer ended the transaction meanwhile."""
    transaction = state.by_id.get(report.transactional_id)
    if (
        transaction is None
        or transaction.state is not TransactionState.ONGOING
        or report.transactional_id not in state.overdue
        or report.producer != producer_of(transaction)
    ):
        return Outcome()
    return ending_outcome(fenced(transaction, report.new_producer_id, now), now, TIMED_OUT)
