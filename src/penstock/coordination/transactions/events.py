"""What happens to transactional ids. Events are logged; notes are soft, and lost on failover."""

from typing import NamedTuple, TypeAlias

from penstock.coordination.transactions.transaction_moves import Transaction
from penstock.model import Millis, ProducerEpoch, ProducerId, TopicPartition


class TransactionSet(NamedTuple):
    """The metadata of a transactional id is now this."""

    transaction: Transaction


class TransactionalIdExpired(NamedTuple):
    """A transactional id was not used for a long time: remove it."""

    transactional_id: str


class MarkersConfirmed(NamedTuple):
    """Note: these partitions have the marker of the transaction that ends under this epoch."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class MarkersDue(NamedTuple):
    """Note: markers were sent; unless all are confirmed, send them again at that time."""

    transactional_id: str
    at: Millis


class DeadlineSet(NamedTuple):
    """Note: the transaction that was just opened, or loaded, is aborted at that time."""

    transactional_id: str
    at: Millis


class TimeoutDeferred(NamedTuple):
    """Note: a transaction past its deadline waits for a producer id before it can be aborted."""

    transactional_id: str
    at: Millis


class ExpiryDue(NamedTuple):
    """Note: deadlines are known from now on; look for expired ids at that time."""

    at: Millis


Event: TypeAlias = (
    TransactionSet
    | TransactionalIdExpired
    | MarkersConfirmed
    | MarkersDue
    | DeadlineSet
    | TimeoutDeferred
    | ExpiryDue
)
