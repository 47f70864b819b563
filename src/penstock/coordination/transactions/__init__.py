"""The transaction coordinator: a machine over `__transaction_state`. Pure."""

from penstock.coordination.transactions.commands import (
    AbortTimedOut,
    AddPartitions,
    Command,
    DescribeTransaction,
    EndTransaction,
    IfMissing,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    MissingPartitions,
    ProducerIdentity,
    RequestProducerId,
    WriteMarkers,
)
from penstock.coordination.transactions.decide_transactions import needs_producer_id
from penstock.coordination.transactions.events import Event
from penstock.coordination.transactions.machine import TransactionMachine
from penstock.coordination.transactions.settings import TransactionSettings
from penstock.coordination.transactions.state import TransactionsState
from penstock.coordination.transactions.transaction_filter import TransactionFilter, known_states
from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState

__all__ = [
    "AbortTimedOut",
    "AddPartitions",
    "Command",
    "DescribeTransaction",
    "EndTransaction",
    "Event",
    "IfMissing",
    "InitProducer",
    "ListTransactions",
    "MarkersWritten",
    "MissingPartitions",
    "ProducerIdentity",
    "RequestProducerId",
    "Transaction",
    "TransactionFilter",
    "TransactionMachine",
    "TransactionSettings",
    "TransactionState",
    "TransactionsState",
    "WriteMarkers",
    "known_states",
    "needs_producer_id",
]
