"""The transaction coordinator as a machine: one per led partition of `__transaction_state`.

The records of the log are the whole metadata of a transactional id. Markers in data partitions are
*sends*, repeated until the shell reports them written, also by a coordinator that has just loaded
its log: a transaction is complete only after its markers are committed.
"""

from collections.abc import Sequence
from typing import assert_never

from penstock.coordination.transactions import codec
from penstock.coordination.transactions.apply import IMMEDIATELY, apply
from penstock.coordination.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    Command,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
)
from penstock.coordination.transactions.decide_timeouts import decide_abort_timed_out, decide_tick
from penstock.coordination.transactions.decide_transactions import (
    decide_add,
    decide_end,
    decide_init,
    decide_markers_written,
)
from penstock.coordination.transactions.events import Event
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import TransactionsState
from penstock.coordination.transactions.transaction_moves import Transaction
from penstock.coordination.transactions.validate import validate
from penstock.errors import ErrorCode, Refused
from penstock.machine import JournalRecord, Outcome, Reply, TransactionMark
from penstock.model import Millis, Moment


class TransactionMachine:
    """The coordinator of all transactional ids that hash to one partition."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings

    def fresh(self) -> TransactionsState:
        """No transactional id is in use."""
        return TransactionsState()

    def decide(self, state: TransactionsState, command: Command, now: Moment) -> Outcome[Event]:
        """All rules. May raise Refused; changes nothing."""
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
                return decide_abort_timed_out(state, command, now)
            case DescribeTransaction():
                return Outcome(replies=(Reply(command.caller, _described(state, command)),))
            case ListTransactions():
                return Outcome(replies=(Reply(command.caller, tuple(state.by_id.values())),))
            case _:
                assert_never(command)

    def apply(self, state: TransactionsState, event: Event) -> None:
        """Change the state. Cannot fail."""
        apply(state, event)

    def wake_at(self, state: TransactionsState) -> Millis | None:
        """The next time-out, repeated marker or expiry; immediately after loading."""
        if state.expiry_due is None:
            return IMMEDIATELY
        due: list[Millis] = []
        if state.deadlines:
            due.append(state.deadlines[0].at)
        if state.markers_due:
            due.append(next(iter(state.markers_due.values())))
        if state.ended:
            due.append(state.expiry_due)
        return min(due, default=None)

    def tick(self, state: TransactionsState, now: Moment) -> Outcome[Event]:
        """What follows from the time that passed."""
        return decide_tick(state, self.settings, now)

    def validate(self, state: TransactionsState) -> None:
        """Assert the invariants."""
        validate(state)

    def write_event(self, event: Event) -> JournalRecord:
        """The event as `__transaction_state` stores it."""
        return codec.write_event(event)

    def read_events(self, record: JournalRecord, mark: TransactionMark | None) -> Sequence[Event]:
        """The events a stored record stands for. This log's own records are in no transaction."""
        return codec.read_events(record)


def _described(state: TransactionsState, command: DescribeTransaction) -> Transaction:
    if not command.transactional_id:
        raise Refused(ErrorCode.invalid_request, "a transactional id cannot be empty")
    transaction = state.by_id.get(command.transactional_id)
    if transaction is None:
        raise Refused(ErrorCode.transactional_id_not_found, "this transactional id is not in use")
    return transaction
