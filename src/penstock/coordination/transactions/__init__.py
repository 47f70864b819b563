"""The transaction coordinator: a machine over `__transaction_state`. See `machine` and `rules`."""

from penstock.coordination.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    Command,
    Describe,
    EndTransaction,
    InitProducer,
    ListIds,
    MarkersWritten,
    Missed,
    Missing,
    Producer,
    WantProducerId,
    WriteMarkers,
)
from penstock.coordination.transactions.decide_transactions import needs_producer_id
from penstock.coordination.transactions.machine import Filter, TransactionMachine, known_states
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import (
    Event,
    Transaction,
    Transactions,
    TransactionState,
)

__all__ = [
    "AbortTimedOut",
    "AddPartitions",
    "Command",
    "Describe",
    "EndTransaction",
    "Event",
    "Filter",
    "InitProducer",
    "ListIds",
    "MarkersWritten",
    "Missed",
    "Missing",
    "Producer",
    "Transaction",
    "TransactionMachine",
    "TransactionSettings",
    "TransactionState",
    "Transactions",
    "WantProducerId",
    "WriteMarkers",
    "known_states",
    "needs_producer_id",
]
