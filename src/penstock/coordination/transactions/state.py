"""What the coordinator knows of each transactional id, and the changes to it.

A `Transaction` is the whole metadata of one transactional id, as a record of `__transaction_state`
holds it; every change writes it anew. `Transactions` adds what follows from those records and what
is soft: which markers are still missing, and when something is due. `apply` is the only writer.

What a record holds is by the time of day. What is due is by the steady clock, so it is not known
from the records: the first tick after loading sets it.

Invariants: a transaction is *settled* (may expire), *ongoing* (has a deadline, once awake) or
*ending* (has markers to write), and stands in exactly one of those three queues.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias, assert_never

from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIMESTAMP,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

EPOCH_MAX: Final = 32767  # a producer epoch is a signed 16-bit number
MARKER_RETRY_MS: Final = Millis(100)  # a marker that is not known to be written is sent again
AT_ONCE: Final = Millis(0)
_STALE_DEADLINES_MAX: Final = 64


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
    def is_settled(self) -> bool:
        """No transaction is open or being ended."""
        return self in _SETTLED


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
_SETTLED: Final = frozenset(
    (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
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
    next_producer_id: ProducerId = NO_PRODUCER  # takes over when the markers are written
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH  # in memory only, as in Apache Kafka
    client_version: int = 0  # 2: the client knows that each end raises its epoch

    @property
    def is_epoch_exhausted(self) -> bool:
        """The epoch may rise once more inside, to fence, but not for the client."""
        return self.producer_epoch >= EPOCH_MAX - 1


class Stored(NamedTuple):
    """The metadata of a transactional id is now this."""

    transaction: Transaction


class Expired(NamedTuple):
    """A transactional id was not used for long: forget it."""

    transactional_id: str


class MarkersConfirmed(NamedTuple):
    """Soft: these partitions hold the marker of the transaction that ends under this epoch."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class MarkersDue(NamedTuple):
    """Soft: markers were sent; unless all are confirmed, send them again at that time."""

    transactional_id: str
    at: Millis


class DeadlineSet(NamedTuple):
    """Soft: the transaction that was just opened, or loaded, is aborted at that time."""

    transactional_id: str
    at: Millis


class TimeoutDeferred(NamedTuple):
    """Soft: a transaction past its deadline waits for a producer id before it can be aborted."""

    transactional_id: str
    at: Millis


class ExpiryDue(NamedTuple):
    """Soft: deadlines are known from now on; look for ids to forget at that time."""

    at: Millis


Event: TypeAlias = (
    Stored | Expired | MarkersConfirmed | MarkersDue | DeadlineSet | TimeoutDeferred | ExpiryDue
)


class Deadline(NamedTuple):
    """An entry of the heap; stale once the transaction it names is no longer open."""

    at: Millis
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    started_at: Millis


@dataclass(slots=True)
class Transactions:
    """All transactional ids of one partition of `__transaction_state`."""

    by_id: dict[str, Transaction] = field(default_factory=dict)
    settled: dict[str, Millis] = field(default_factory=dict)  # last use, by the time of day
    deadlines: list[Deadline] = field(default_factory=list)  # a heap; its top is never stale
    markers_due: dict[str, Millis] = field(default_factory=dict)  # of the ending; soonest first
    unmarked: dict[str, set[TopicPartition]] = field(default_factory=dict)  # of the ending
    overdue: set[str] = field(default_factory=set)  # ongoing, past its deadline
    expiry_due: Millis | None = None  # None: just loaded, so no deadline is known yet


def apply(state: Transactions, event: Event) -> None:
    """Change the state. Cannot fail, and means the same the second time."""
    match event:
        case Stored(transaction):
            _apply_stored(state, transaction)
        case Expired(transactional_id):
            _leave_queues(state, transactional_id)
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


def _apply_stored(state: Transactions, transaction: Transaction) -> None:
    transactional_id = transaction.transactional_id
    _leave_queues(state, transactional_id)
    state.by_id[transactional_id] = transaction
    if transaction.state.is_settled:
        state.settled[transactional_id] = transaction.updated_at
    elif transaction.state.is_ending:
        state.unmarked[transactional_id] = set(transaction.partitions)
        state.markers_due[transactional_id] = AT_ONCE
    if transaction.state is not TransactionState.ONGOING:
        state.overdue.discard(transactional_id)


def _apply_markers_confirmed(state: Transactions, event: MarkersConfirmed) -> None:
    unmarked = state.unmarked.get(event.transactional_id)
    if unmarked is None:
        return
    ending = state.by_id[event.transactional_id]
    if (ending.producer_id, ending.producer_epoch) == (event.producer_id, event.producer_epoch):
        unmarked -= event.partitions


def _leave_queues(state: Transactions, transactional_id: str) -> None:
    state.settled.pop(transactional_id, None)
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


def _defer(state: Transactions, transactional_id: str, at: Millis) -> None:
    transaction = state.by_id.get(transactional_id)
    if transaction is None or transaction.state is not TransactionState.ONGOING:
        return
    state.overdue.add(transactional_id)
    others = [entry for entry in state.deadlines if entry.transactional_id != transactional_id]
    state.deadlines = [*others, _deadline_of(transaction, at)]
    heapify(state.deadlines)


def _drop_stale_deadlines(state: Transactions) -> None:
    """Keep the heap's top true, and the heap not much larger than twice what is open."""
    while state.deadlines and not is_open(state, state.deadlines[0]):
        heappop(state.deadlines)
    open_count = len(state.by_id) - len(state.settled) - len(state.markers_due)
    if len(state.deadlines) > 2 * open_count + _STALE_DEADLINES_MAX:
        state.deadlines = [entry for entry in state.deadlines if is_open(state, entry)]
        heapify(state.deadlines)


def is_open(state: Transactions, entry: Deadline) -> bool:
    """Whether the transaction that had this deadline still runs."""
    transaction = state.by_id.get(entry.transactional_id)
    return (
        transaction is not None
        and transaction.state is TransactionState.ONGOING
        and entry.producer_id == transaction.producer_id
        and entry.producer_epoch == transaction.producer_epoch
        and entry.started_at == transaction.started_at
    )
