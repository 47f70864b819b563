"""The producers of a partition: their epochs, last five batches and open transactions.

The rules of idempotence and transactions, without I/O: a batch is checked and its change is staged;
the table changes only when the batch is in the log. Never opens a record: the caller reads the
markers that end transactions.

An unknown producer may start at any sequence number: its entry may have expired.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

from penstock.errors import ErrorCode, Refused
from penstock.log.transaction_index import AbortedEntry
from penstock.model import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.batch import SEQUENCE_MASK, BatchHeader
from penstock.protocol.control_records import Marker

Origin: TypeAlias = Literal["client", "marker", "internal", "replica"]

WINDOW_BATCHES: Final = 5
_NO_COORDINATOR: Final = -1


class BatchMark(NamedTuple):
    """One appended batch: what identifies a retry of it."""

    last_sequence: SequenceNumber
    last_offset: Offset
    offset_delta: int

    @property
    def base_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class ProducerState(NamedTuple):
    """One producer in one partition; replaced by each of its batches."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    batches: tuple[BatchMark, ...] = ()  # the last five of this epoch, oldest first
    coordinator_epoch: int = _NO_COORDINATOR
    last_timestamp: Millis = NO_TIMESTAMP
    transaction_start: Offset = NO_OFFSET  # first offset of the open transaction

    @property
    def last_sequence(self) -> SequenceNumber:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def next_sequence(self, producer_epoch: int) -> int:
        """The sequence number that its next batch starts with; a new epoch starts at 0."""
        if producer_epoch != self.producer_epoch:
            return 0
        return (self.last_sequence + 1) & SEQUENCE_MASK


class ActiveProducer(NamedTuple):
    """A row of DescribeProducers."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: SequenceNumber
    last_timestamp: Millis
    coordinator_epoch: int
    current_txn_start_offset: Offset


class EndedTransaction(NamedTuple):
    """A transaction with records here, ended by its marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    aborted: bool


def is_later_sequence(sequence: int, other: int) -> bool:
    """Whether a sequence number comes after another; after the largest one comes 0."""
    return 0 < (sequence - other) & SEQUENCE_MASK <= SEQUENCE_MASK >> 1


def check_epoch(producer: ProducerState, header: BatchHeader) -> None:
    if header.producer_epoch < producer.producer_epoch:
        raise Refused(
            ErrorCode.invalid_producer_epoch,
            f"producer {header.producer_id} wrote with epoch {header.producer_epoch}, but its "
            f"current epoch is {producer.producer_epoch}: another producer with this id is active",
        )


def check_sequence(producer: ProducerState, header: BatchHeader) -> None:
    """Batches of an epoch follow each other without a gap, and a new epoch starts at 0."""
    if producer.producer_epoch == NO_PRODUCER_EPOCH:
        return
    expected = producer.next_sequence(header.producer_epoch)
    if header.base_sequence != expected:
        raise Refused(
            ErrorCode.out_of_order_sequence_number,
            f"producer {header.producer_id} sent sequence number {header.base_sequence}, "
            f"but {expected} is next",
        )


def check_marker(producer: ProducerState, header: BatchHeader, marker: Marker) -> None:
    check_epoch(producer, header)
    if marker.coordinator_epoch < producer.coordinator_epoch:
        raise Refused(
            ErrorCode.transaction_coordinator_fenced,
            f"a coordinator of epoch {marker.coordinator_epoch} ended a transaction, "
            f"but the current epoch is {producer.coordinator_epoch}",
        )


class Staged:
    """The changes of batches that are about to be written; dropped if the write fails."""

    __slots__ = ("_table", "ended", "producers", "started")

    def __init__(self, table: "ProducerTable") -> None:
        self._table = table
        self.producers: dict[ProducerId, ProducerState] = {}
        self.started: list[tuple[Offset, ProducerId]] = []
        self.ended: list[EndedTransaction] = []

    def _current(self, producer_id: ProducerId) -> ProducerState:
        staged = self.producers.get(producer_id)
        return staged or self._table.producers.get(producer_id) or ProducerState(producer_id)

    def add_batch(self, header: BatchHeader, base_offset: Offset, origin: Origin) -> None:
        """Records of a producer; Refused when it may not write them."""
        producer = self._current(ProducerId(header.producer_id))
        if origin != "replica":
            check_epoch(producer, header)
        if origin == "client":
            check_sequence(producer, header)
        start = self._transaction_start(producer, header, base_offset, origin)
        mark = BatchMark(
            SequenceNumber(header.last_sequence),
            Offset(base_offset + header.last_offset_delta),
            header.last_offset_delta,
        )
        same_epoch = header.producer_epoch == producer.producer_epoch
        earlier = producer.batches[1 - WINDOW_BATCHES :] if same_epoch else ()
        self.producers[producer.producer_id] = ProducerState(
            producer.producer_id,
            ProducerEpoch(header.producer_epoch),
            (*earlier, mark),
            producer.coordinator_epoch,
            Millis(header.max_timestamp),
            start,
        )

    def _transaction_start(
        self, producer: ProducerState, header: BatchHeader, base_offset: Offset, origin: Origin
    ) -> Offset:
        if producer.transaction_start != NO_OFFSET:
            if not header.is_transactional and origin != "replica":
                raise Refused(
                    ErrorCode.invalid_txn_state,
                    f"producer {header.producer_id} has an open transaction here "
                    "and wrote a batch outside it",
                )
            return producer.transaction_start
        if not header.is_transactional:
            return NO_OFFSET
        self.started.append((base_offset, producer.producer_id))
        return base_offset

    def add_marker(
        self, header: BatchHeader, base_offset: Offset, marker: Marker, origin: Origin
    ) -> None:
        """The end of a producer's transaction; Refused when a newer coordinator has written one."""
        producer = self._current(ProducerId(header.producer_id))
        if origin != "replica":
            check_marker(producer, header, marker)
        if producer.transaction_start != NO_OFFSET:
            ended = EndedTransaction(
                producer.producer_id, producer.transaction_start, base_offset, not marker.commit
            )
            self.ended.append(ended)
        same_epoch = header.producer_epoch == producer.producer_epoch
        self.producers[producer.producer_id] = ProducerState(
            producer.producer_id,
            ProducerEpoch(header.producer_epoch),
            producer.batches if same_epoch else (),
            marker.coordinator_epoch,
            Millis(header.max_timestamp),
            NO_OFFSET,
        )


class ProducerTable:
    """All producers of one partition.

    `first_unstable_offset` is the start of the oldest transaction that is open, or whose marker is
    not below the high watermark; None when there is none.
    """

    __slots__ = ("_idle_since", "_open", "first_unstable_offset", "producers", "unreplicated")

    def __init__(self) -> None:
        self.producers: dict[ProducerId, ProducerState] = {}
        self._open: dict[Offset, ProducerId] = {}  # by first offset, which only grows
        self.unreplicated: list[EndedTransaction] = []
        self._idle_since: dict[
            ProducerId, tuple[ProducerState, Millis]
        ] = {}  # since when it is idle
        self.first_unstable_offset: Offset | None = None

    def __len__(self) -> int:
        return len(self.producers)

    def duplicate_of(self, header: BatchHeader) -> BatchMark | None:
        """The batch that this one is a retry of, if it is among the last five."""
        producer = self.producers.get(ProducerId(header.producer_id))
        if producer is None or producer.producer_epoch != header.producer_epoch:
            return None
        if not producer.batches or header.base_sequence == producer.batches[-1][0] + 1:
            return None  # the usual case: it follows the last one
        last_sequence = header.last_sequence
        for mark in producer.batches:
            if (
                mark.last_sequence == last_sequence
                and mark.offset_delta == header.last_offset_delta
            ):
                return mark
        return None

    def aborted_by(self, staged: Staged) -> list[AbortedEntry]:
        """The entries of the transaction index for the staged batches."""
        if not staged.ended:
            return []
        still_open = {**self._open, **dict(staged.started)}
        aborted: list[AbortedEntry] = []
        for ended in staged.ended:
            still_open.pop(ended.first_offset, None)
            if ended.aborted:
                stable = next(iter(still_open), Offset(ended.last_offset + 1))
                aborted.append(
                    AbortedEntry(ended.producer_id, ended.first_offset, ended.last_offset, stable)
                )
        return aborted

    def commit(self, staged: Staged) -> None:
        """The staged batches are in the log."""
        self.producers.update(staged.producers)
        if staged.started or staged.ended:
            self._open.update(staged.started)
            for ended in staged.ended:
                self._open.pop(ended.first_offset, None)
            self.unreplicated += staged.ended
            self._find_first_unstable()

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Transactions whose marker is below the high watermark are decided."""
        self.unreplicated = [e for e in self.unreplicated if e.last_offset >= high_watermark]
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        starts = [ended.first_offset for ended in self.unreplicated]
        starts.extend(islice(self._open, 1))
        self.first_unstable_offset = min(starts, default=None)

    def expire(self, now: Millis, expiration_ms: Millis) -> int:
        """Remove producers that have been idle for long and have no open transaction.

        By the broker's clock and by timestamps: a producer of old records is not idle.
        """
        idle_since = {
            producer.producer_id: self._note_idle(producer, now)
            for producer in self.producers.values()
        }
        expired = [
            producer_id
            for producer_id, (producer, idle_at) in idle_since.items()
            if producer.transaction_start == NO_OFFSET
            and now - max(producer.last_timestamp, idle_at) >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id], idle_since[producer_id]
        self._idle_since = idle_since
        return len(expired)

    def _note_idle(self, producer: ProducerState, now: Millis) -> tuple[ProducerState, Millis]:
        """The producer, and since when it is idle. Every write creates another tuple."""
        before = self._idle_since.get(producer.producer_id)
        return before if before is not None and before[0] is producer else (producer, now)

    def load(self, producers: Iterable[ProducerState]) -> None:
        """Replace the table by a snapshot."""
        self.producers = {producer.producer_id: producer for producer in producers}
        starts = [
            (producer.transaction_start, producer.producer_id)
            for producer in self.producers.values()
            if producer.transaction_start != NO_OFFSET
        ]
        self._open = dict(sorted(starts))
        self.unreplicated = []
        self._find_first_unstable()

    def active(self) -> Iterator[ActiveProducer]:
        for producer in self.producers.values():
            yield ActiveProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
