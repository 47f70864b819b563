"""One transactional id: its metadata, its states, and one pure function per legal change.

No rule about which producer may make a change. Every change records the producer id it started
from, so that a retry which spans the replacement of an exhausted producer id is still recognized.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from penstock.machine import Move, Transitions
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

EPOCH_MAX: Final = 32767  # a producer epoch is a signed 16-bit number
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class TransactionState(IntEnum):
    """The numbers are those of the stored records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that clients see."""
        return _TITLES[self]

    @property
    def is_ending(self) -> bool:
        """The outcome is decided, and not yet in every partition."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_ended(self) -> bool:
        """No transaction is open or being ended."""
        return self in _ENDED


_TITLES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
STATE_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}
_ENDED: Final = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
)

_S = TransactionState
TRANSACTION_MOVES: Final = Transitions(
    "transaction",
    Move(_S.EMPTY, _S.EMPTY, "a producer initializes itself again"),
    Move(_S.EMPTY, _S.ONGOING, "the first partition is added"),
    Move(_S.EMPTY, _S.PREPARE_ABORT, "a producer aborts without having written"),
    Move(_S.ONGOING, _S.ONGOING, "more partitions are added"),
    Move(_S.ONGOING, _S.PREPARE_COMMIT, "the producer commits"),
    Move(_S.ONGOING, _S.PREPARE_ABORT, "the producer aborts, times out, or is fenced"),
    Move(_S.PREPARE_COMMIT, _S.COMPLETE_COMMIT, "every partition has its marker"),
    Move(_S.PREPARE_ABORT, _S.COMPLETE_ABORT, "every partition has its marker"),
    Move(_S.COMPLETE_COMMIT, _S.ONGOING, "the next transaction begins"),
    Move(_S.COMPLETE_COMMIT, _S.EMPTY, "a producer initializes itself"),
    Move(_S.COMPLETE_COMMIT, _S.PREPARE_ABORT, "a producer aborts without having written"),
    Move(_S.COMPLETE_ABORT, _S.ONGOING, "the next transaction begins"),
    Move(_S.COMPLETE_ABORT, _S.EMPTY, "a producer initializes itself"),
    Move(_S.COMPLETE_ABORT, _S.PREPARE_ABORT, "a producer aborts without having written"),
    name=lambda state: state.title,
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id: its producer, and the last transaction that producer had."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Millis
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_at: Millis
    started_at: Millis = NO_TIMESTAMP
    previous_producer_id: ProducerId = NO_PRODUCER  # before the last change of this record
    next_producer_id: ProducerId = NO_PRODUCER  # in use once the markers are written
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH  # of a call that its producer may retry
    client_version: int = 0  # 2: the client knows that each end raises its epoch

    @property
    def is_epoch_exhausted(self) -> bool:
        """The epoch may be raised once more by the coordinator, to fence, but not for a client."""
        return self.producer_epoch >= EPOCH_MAX - 1


def new_transaction(
    transactional_id: str, producer_id: ProducerId, timeout_ms: Millis, now: Moment
) -> Transaction:
    """An id that was not used before. Its first epoch is the next one, 0."""
    return Transaction(
        transactional_id,
        producer_id,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        NO_PARTITIONS,
        updated_at=now.wall,
    )


def _moved(
    transaction: Transaction, state: TransactionState, now: Moment, **changes: Any
) -> Transaction:
    TRANSACTION_MOVES.check(transaction.state, state)
    return replace(
        transaction,
        state=state,
        updated_at=now.wall,
        previous_producer_id=transaction.producer_id,
        **changes,
    )


def initialized(
    transaction: Transaction,
    *,
    producer_epoch: ProducerEpoch,
    last_producer_epoch: ProducerEpoch,
    timeout_ms: Millis,
    now: Moment,
    producer_id: ProducerId | None = None,
) -> Transaction:
    """A producer initialized itself: no transaction, and the epoch it may use."""
    return _moved(
        transaction,
        TransactionState.EMPTY,
        now,
        producer_id=transaction.producer_id if producer_id is None else producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        started_at=NO_TIMESTAMP,
    )


def with_partitions(
    transaction: Transaction,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now: Moment,
) -> Transaction:
    """Partitions were added to the transaction; the first ones open it."""
    opens = transaction.state.is_ended
    return _moved(
        transaction,
        TransactionState.ONGOING,
        now,
        partitions=transaction.partitions | partitions,
        started_at=now.wall if opens else transaction.started_at,
        client_version=client_version,
    )


def prepared(
    transaction: Transaction,
    *,
    commit: bool,
    raises_epoch: bool,
    next_producer_id: ProducerId = NO_PRODUCER,
    now: Moment,
) -> Transaction:
    """The outcome is decided; its markers are written under the epoch of this record."""
    producer_epoch, last_producer_epoch = (
        transaction.producer_epoch,
        transaction.last_producer_epoch,
    )
    if raises_epoch:
        last_producer_epoch = producer_epoch
        producer_epoch = ProducerEpoch(min(producer_epoch + 1, EPOCH_MAX))
    return _moved(
        transaction,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        now,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        next_producer_id=next_producer_id,
        # an abort without a transaction has no start of its own, and the record needs one
        started_at=now.wall if transaction.state.is_ended else transaction.started_at,
        client_version=2 if raises_epoch else 0,
    )


def completed(transaction: Transaction, now: Moment) -> Transaction:
    """Every partition has the marker. An exhausted producer id is replaced by the next."""
    is_commit = transaction.state is TransactionState.PREPARE_COMMIT
    replaces = transaction.client_version >= 2 and transaction.next_producer_id != NO_PRODUCER
    return _moved(
        transaction,
        TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        now,
        producer_id=transaction.next_producer_id if replaces else transaction.producer_id,
        producer_epoch=ProducerEpoch(0) if replaces else transaction.producer_epoch,
        next_producer_id=NO_PRODUCER,
        partitions=NO_PARTITIONS,
    )
