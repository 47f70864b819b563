"""How the metadata of a transactional id changes: one pure function per change, no rule of who may.

Every change records the producer id it started from, so that a retry which spans the exchange of an
exhausted producer id is still recognised.
"""

from dataclasses import replace

from penstock.coordination.transactions.state import (
    EPOCH_MAX,
    Transaction,
    TransactionState,
)
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    Millis,
    Moment,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

NOWHERE: frozenset[TopicPartition] = frozenset()


def fresh(
    transactional_id: str, producer_id: ProducerId, timeout_ms: Millis, now: Moment
) -> Transaction:
    """An id nobody used before. Its first epoch is the next one, 0."""
    return Transaction(
        transactional_id,
        producer_id,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        NOWHERE,
        updated_at=now.wall,
    )


def restarted(
    transaction: Transaction,
    *,
    producer_epoch: ProducerEpoch,
    last_producer_epoch: ProducerEpoch,
    timeout_ms: Millis,
    now: Moment,
    producer_id: ProducerId | None = None,
) -> Transaction:
    """A producer initialised itself: no transaction, and the epoch it may use."""
    return replace(
        transaction,
        producer_id=transaction.producer_id if producer_id is None else producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NOWHERE,
        started_at=NO_TIMESTAMP,
        updated_at=now.wall,
        previous_producer_id=transaction.producer_id,
    )


def widened(
    transaction: Transaction,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now: Moment,
) -> Transaction:
    """Partitions joined the transaction; the first ones open it."""
    opens = transaction.state.is_settled
    return replace(
        transaction,
        state=TransactionState.ONGOING,
        partitions=transaction.partitions | partitions,
        started_at=now.wall if opens else transaction.started_at,
        updated_at=now.wall,
        client_version=client_version,
        previous_producer_id=transaction.producer_id,
    )


def decided(
    transaction: Transaction,
    *,
    commit: bool,
    raises_epoch: bool,
    next_producer_id: ProducerId = NO_PRODUCER,
    now: Moment,
) -> Transaction:
    """The outcome is fixed; its markers go out under the epoch of this record."""
    producer_epoch, last_producer_epoch = (
        transaction.producer_epoch,
        transaction.last_producer_epoch,
    )
    if raises_epoch:
        last_producer_epoch = producer_epoch
        producer_epoch = ProducerEpoch(min(producer_epoch + 1, EPOCH_MAX))
    return replace(
        transaction,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        next_producer_id=next_producer_id,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        # an abort without a transaction has no start of its own, and the record wants one
        started_at=now.wall if transaction.state.is_settled else transaction.started_at,
        updated_at=now.wall,
        client_version=2 if raises_epoch else 0,
        previous_producer_id=transaction.producer_id,
    )


def completed(transaction: Transaction, now: Moment) -> Transaction:
    """Every partition has the marker. An exhausted producer id gives way to the next."""
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    exchanges = transaction.client_version >= 2 and transaction.next_producer_id != NO_PRODUCER
    return replace(
        transaction,
        producer_id=transaction.next_producer_id if exchanges else transaction.producer_id,
        producer_epoch=ProducerEpoch(0) if exchanges else transaction.producer_epoch,
        next_producer_id=NO_PRODUCER,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=NOWHERE,
        updated_at=now.wall,
        previous_producer_id=transaction.producer_id,
    )
