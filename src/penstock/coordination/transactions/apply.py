"""How each event changes the coordinator's state. Nothing here can fail or decides."""

from heapq import heapify, heappop, heappush
from typing import Final, assert_never

from penstock.coordination.transactions.events import (
    DeadlineSet,
    Event,
    ExpiryDue,
    MarkersConfirmed,
    MarkersDue,
    TimeoutDeferred,
    TransactionalIdExpired,
    TransactionSet,
)
from penstock.coordination.transactions.state import Deadline, TransactionsState, is_open
from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState
from penstock.model import Millis

IMMEDIATELY: Final = Millis(0)
_STALE_DEADLINES_MAX: Final = 64


def apply(state: TransactionsState, event: Event) -> None:
    """Change the state by one event or note."""
    match event:
        case TransactionSet(transaction):
            _apply_transaction(state, transaction)
        case TransactionalIdExpired(transactional_id):
            _leave_tables(state, transactional_id)
            state.overdue.discard(transactional_id)
            state.by_id.pop(transactional_id, None)
        case MarkersConfirmed():
            _apply_markers_confirmed(state, event)
        case MarkersDue(transactional_id, at):
            if state.markers_due.pop(transactional_id, None) is not None:
                state.markers_due[transactional_id] = at
        case DeadlineSet(transactional_id, at):
            opened = state.by_id.get(transactional_id)
            if opened is not None and opened.state is TransactionState.ONGOING:
                heappush(state.deadlines, _deadline_of(opened, at))
        case TimeoutDeferred(transactional_id, at):
            _defer(state, transactional_id, at)
        case ExpiryDue(at):
            state.expiry_due = at
        case _:
            assert_never(event)
    _drop_stale_deadlines(state)


def _apply_transaction(state: TransactionsState, transaction: Transaction) -> None:
    transactional_id = transaction.transactional_id
    _leave_tables(state, transactional_id)
    state.by_id[transactional_id] = transaction
    if transaction.state.is_ended:
        state.ended[transactional_id] = transaction.updated_at
    elif transaction.state.is_ending:
        state.unmarked[transactional_id] = set(transaction.partitions)
        state.markers_due[transactional_id] = IMMEDIATELY
    if transaction.state is not TransactionState.ONGOING:
        state.overdue.discard(transactional_id)


def _apply_markers_confirmed(state: TransactionsState, event: MarkersConfirmed) -> None:
    unmarked = state.unmarked.get(event.transactional_id)
    if unmarked is None:
        return
    ending = state.by_id[event.transactional_id]
    if (ending.producer_id, ending.producer_epoch) == (event.producer_id, event.producer_epoch):
        unmarked -= event.partitions


def _leave_tables(state: TransactionsState, transactional_id: str) -> None:
    state.ended.pop(transactional_id, None)
    state.markers_due.pop(transactional_id, None)
    state.unmarked.pop(transactional_id, None)


def _deadline_of(transaction: Transaction, at: Millis) -> Deadline:
    return Deadline(
        at,
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.started_at,
    )


def _defer(state: TransactionsState, transactional_id: str, at: Millis) -> None:
    transaction = state.by_id.get(transactional_id)
    if transaction is None or transaction.state is not TransactionState.ONGOING:
        return
    state.overdue.add(transactional_id)
    others = [entry for entry in state.deadlines if entry.transactional_id != transactional_id]
    state.deadlines = [*others, _deadline_of(transaction, at)]
    heapify(state.deadlines)


def _drop_stale_deadlines(state: TransactionsState) -> None:
    """Keep the top of the heap valid, and the heap not much larger than twice what is open."""
    while state.deadlines and not is_open(state, state.deadlines[0]):
        heappop(state.deadlines)
    open_count = len(state.by_id) - len(state.ended) - len(state.markers_due)
    if len(state.deadlines) > 2 * open_count + _STALE_DEADLINES_MAX:
        state.deadlines = [entry for entry in state.deadlines if is_open(state, entry)]
        heapify(state.deadlines)
