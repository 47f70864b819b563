"""The invariants of a transaction coordinator, for tests and simulations."""

from penstock.coordination.transactions.state import TransactionsState, is_open
from penstock.coordination.transactions.transaction_moves import (
    EPOCH_MAX,
    Transaction,
    TransactionState,
)
from penstock.model import NO_PRODUCER, NO_TIMESTAMP


def validate(state: TransactionsState) -> None:
    """Assert what must be true after each command and tick, and after loading."""
    ongoing: set[str] = set()
    ending: set[str] = set()
    ended: set[str] = set()
    for transactional_id, transaction in state.by_id.items():
        assert transaction.transactional_id == transactional_id
        _validate_transaction(transaction)
        if transaction.state is TransactionState.ONGOING:
            ongoing.add(transactional_id)
        else:
            (ending if transaction.state.is_ending else ended).add(transactional_id)
    assert ended == state.ended.keys()
    assert ending == state.markers_due.keys() == state.unmarked.keys()
    for transactional_id, unmarked in state.unmarked.items():
        assert unmarked <= state.by_id[transactional_id].partitions
    assert state.overdue <= ongoing
    heap = state.deadlines
    assert all(heap[(index - 1) // 2] <= heap[index] for index in range(1, len(heap)))
    assert not heap or is_open(state, heap[0]), "the next deadline is of an open transaction"
    if state.expiry_due is not None:
        timed = {entry.transactional_id for entry in heap if is_open(state, entry)}
        assert timed == ongoing, "every open transaction has a deadline"


def _validate_transaction(transaction: Transaction) -> None:
    has_transaction = transaction.state is TransactionState.ONGOING or transaction.state.is_ending
    assert has_transaction or transaction.state.is_ended
    assert has_transaction or not transaction.partitions
    assert transaction.state is not TransactionState.ONGOING or transaction.partitions
    assert not has_transaction or transaction.started_at != NO_TIMESTAMP
    assert transaction.state.is_ending or transaction.next_producer_id == NO_PRODUCER
    assert transaction.producer_id >= 0
    assert -1 <= transaction.producer_epoch <= EPOCH_MAX
