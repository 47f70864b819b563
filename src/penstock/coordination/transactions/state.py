"""What the coordinator knows of all transactional ids of one partition of `__transaction_state`.

`by_id` holds the metadata as the records keep it, one `Transaction` per id, replaced whole by every
change. The other tables follow from it, or are soft: which markers are missing, and what is due.
What a record holds is by the time of day. What is due is by the steady clock, so it is not known
from the records: the first tick after loading sets it. Changed by `apply` only.

Invariant: an id is *ended* (may expire), *ongoing* (has a deadline, once awake) or *ending* (has
markers to write), and is in exactly one of the three tables.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState
from penstock.model import Millis, ProducerEpoch, ProducerId, TopicPartition


class Deadline(NamedTuple):
    """An entry of the heap; stale once the transaction it names is no longer open."""

    at: Millis
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    started_at: Millis


@dataclass(slots=True)
class TransactionsState:
    """All transactional ids of one coordinator."""

    by_id: dict[str, Transaction] = field(default_factory=dict)
    ended: dict[str, Millis] = field(default_factory=dict)  # last use, by the time of day
    deadlines: list[Deadline] = field(default_factory=list)  # a heap; its top is never stale
    markers_due: dict[str, Millis] = field(default_factory=dict)  # of the ending; soonest first
    unmarked: dict[str, set[TopicPartition]] = field(default_factory=dict)  # of the ending
    overdue: set[str] = field(default_factory=set)  # ongoing, past its deadline
    expiry_due: Millis | None = None  # None: just loaded, so no deadline is known yet


def is_open(state: TransactionsState, entry: Deadline) -> bool:
    """Whether the transaction that had this deadline is still open."""
    transaction = state.by_id.get(entry.transactional_id)
    return (
        transaction is not None
        and transaction.state is TransactionState.ONGOING
        and entry.producer_id == transaction.producer_id
        and entry.producer_epoch == transaction.producer_epoch
        and entry.started_at == transaction.started_at
    )
