"""A log as a list of batches: what a log on disk must say of its producers and epochs."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.log import AbortedEntry, EpochStart, PartitionLog
from penstock.log.append_plan import stage
from penstock.log.producer_state import ProducerState, ProducerTable, Staged
from penstock.model import (
    NO_OFFSET,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.batch import BatchHeader, iterate_headers, read_header
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch


class StoredBatch(NamedTuple):
    """A batch as it must be read back."""

    header: BatchHeader
    content: bytes

    @property
    def base_offset(self) -> Offset:
        return Offset(self.header.base_offset)


def stored(content: bytes | bytearray) -> StoredBatch:
    return StoredBatch(read_header(content), bytes(content))


def replay(batches: Iterable[StoredBatch]) -> tuple[ProducerTable, list[AbortedEntry]]:
    """The producers after these batches, and the transactions that were aborted."""
    table, aborted = ProducerTable(), []
    for batch in batches:
        if batch.header.producer_id >= 0:
            staged = Staged(table)
            stage(staged, batch.content, 0, batch.header, batch.base_offset, "replica")
            aborted += table.aborted_by(staged)
            table.commit(staged)
    return table, aborted


def epoch_starts(batches: Iterable[StoredBatch], log_start_offset: int) -> list[EpochStart]:
    """The epochs of these batches; the one that contains the log's start begins there."""
    starts: list[EpochStart] = []
    for batch in batches:
        if not starts or batch.header.leader_epoch > starts[-1].epoch:
            starts.append(EpochStart(LeaderEpoch(batch.header.leader_epoch), batch.base_offset))
    before = [entry for entry in starts if entry.start_offset <= log_start_offset]
    after = [entry for entry in starts if entry.start_offset > log_start_offset]
    if before:
        after.insert(0, EpochStart(before[-1].epoch, Offset(log_start_offset)))
    return after


def known_producer(batches: Iterable[StoredBatch], producer_id: int) -> ProducerState:
    table, _ = replay(batches)
    return table.producers.get(ProducerId(producer_id), ProducerState(ProducerId(producer_id)))


def next_batch(
    producer: ProducerState,
    records: int,
    *,
    raises_epoch: bool,
    timestamp: int,
    transactional: bool,
    gap: int = 0,
) -> bytearray:
    """The batch that a producer sends next; `gap` sequence numbers are left out."""
    epoch = max(0, producer.producer_epoch) + (1 if raises_epoch else 0)
    is_same = epoch == producer.producer_epoch
    return build_batch(
        [(b"p", b"value")] * records,
        timestamp=Millis(timestamp),
        producer_id=producer.producer_id,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=SequenceNumber((producer.last_sequence + 1 if is_same else 0) + gap),
        transactional=transactional,
    )


def end_marker(producer: ProducerState, *, commit: bool, timestamp: int) -> bytearray:
    """The marker that ends a producer's transaction."""
    return build_marker(
        commit=commit,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        timestamp=Millis(timestamp),
    )


def is_open(producer: ProducerState) -> bool:
    return producer.transaction_start != NO_OFFSET


def read_all(log: PartitionLog, *, max_bytes: int) -> list[bytes]:
    """Every batch that can be read, one bounded read after another."""
    batches: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        view = log.read(offset, max_bytes=max_bytes).view
        if not view:
            break  # compaction left a gap at the end
        for at, header in iterate_headers(view):
            batches.append(bytes(view[at : at + header.size_bytes]))
            offset = header.end_offset
    return batches
