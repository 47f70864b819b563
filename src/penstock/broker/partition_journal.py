"""A machine's journal over a partition of this broker, and the reading of it for replay.

Bound to one leader epoch. Appends go through the partition's one writer; what is below the high
watermark is committed. Refusals are given in the codes of coordinators, as Apache Kafka maps them.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from penstock.broker.partition import Partition
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import Applies, JournalRecord, OnCommitted, TransactionMark
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from penstock.protocol.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    iterate_headers,
    read_header,
)
from penstock.protocol.control_records import Marker, read_marker
from penstock.protocol.key_values import Pair, build_one, build_pairs, read_pairs, read_simple_pairs
from penstock.protocol.records import read_records

READ_BYTES: Final = 1 << 20  # of the log at a time while replaying

# The error for clients of a coordinator when the log behind it refuses a write.
COORDINATOR_CODES: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
}


def coordinator_refusal(refusal: Refused) -> Refused:
    """The refusal of a partition as a coordinator gives it."""
    return Refused(COORDINATOR_CODES.get(refusal.code, refusal.code), refusal.message)


class PartitionJournal:
    """The journal port over a partition, for as long as it is led in one epoch."""

    def __init__(self, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch

    @property
    def applies(self) -> Literal[Applies.ON_APPEND]:
        """Only this broker writes the partition."""
        return Applies.ON_APPEND

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""
        return self._partition.log.end_offset

    @property
    def committed_offset(self) -> Offset:
        """The high watermark: every in-sync replica has what is below."""
        return self._partition.log.high_watermark

    def append(
        self, records: Sequence[JournalRecord], now: Millis, mark: TransactionMark | None = None
    ) -> Offset | None:
        """Append all records as one batch, or none. None: committed; else the end to wait for."""
        if mark is None and len(records) == 1:
            ((key, value),) = records
            batch, header = build_one(key, value, now)
        else:
            batch = build_pairs(
                records,
                now,
                producer_id=NO_PRODUCER if mark is None else mark.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if mark is None else mark.producer_epoch,
                transactional=mark is not None,
            )
            header = read_header(batch)
        partition = self._partition
        try:
            if partition.is_leader and not partition.has_min_insync:
                partition.check_min_insync()
            _, end_offset, _, _ = partition.append(
                batch, header, now=now, origin="internal", epoch=self._leader_epoch
            )
        except Refused as refusal:
            raise coordinator_refusal(refusal) from None
        return None if end_offset <= partition.log.high_watermark else end_offset

    def call_when_committed(self, end_offset: Offset, call: OnCommitted) -> None:
        """Call once everything below `end_offset` is committed, or when it will not be."""

        def on_committed(refusal: Refused | None) -> None:
            call(None if refusal is None else coordinator_refusal(refusal))

        self._partition.call_when_committed(end_offset, on_committed)


class StoredBatch(NamedTuple):
    """Records as replay reads them, and the transaction they belong to."""

    records: Sequence[Pair]
    mark: TransactionMark | None


def read_journal(partition: Partition) -> Iterator[StoredBatch | Marker]:
    """Everything the log holds, in order, up to its end: batches, and transaction markers.

    Records of an aborted transaction are among them: the marker that follows says so. OSError where
    the log cannot be read: a state without some of its records would be wrong, and written further.
    """
    log = partition.log
    offset = log.start_offset
    while offset < log.end_offset:
        start = offset
        try:
            raw = bytes(log.read(offset, max_bytes=READ_BYTES, end_offset=log.end_offset).view)
            if not raw:
                return  # compaction removed the last records
            for stored, end_offset in _read_chunk(raw, start):
                offset = end_offset
                if stored is not None:
                    yield stored
        except (Refused, Malformed) as damage:
            if isinstance(damage, Malformed):
                damage = Refused(ErrorCode.corrupt_message, f"damaged at {offset}: {damage}")
            partition.on_unreadable(damage)
            raise _unreadable(partition, offset, str(damage)) from damage
        if offset == start:
            raise _unreadable(partition, offset, "no whole batch is there")


def _unreadable(partition: Partition, offset: Offset, reason: str) -> OSError:
    message = f"cannot be read at offset {offset}: {reason}; restore it from a copy"
    return OSError(errno.EIO, message, str(partition.log.folder))


def _read_chunk(raw: bytes, start: Offset) -> Iterator[tuple[StoredBatch | Marker | None, Offset]]:
    """What the whole batches hold, with the offset after it.

    Consecutive uncompressed batches outside of transactions come as one.
    """
    position, offset = 0, start
    while True:
        pairs, position, offset = read_simple_pairs(raw, position, offset)
        yield StoredBatch(pairs, None) if pairs else None, offset
        header = next((each for _, each in iterate_headers(raw, position)), None)
        if header is None:
            return
        stored = None
        if header.end_offset > start and header.record_count:  # compaction may empty a batch
            stored = _read_batch(raw, position, header, start)
        offset = Offset(max(offset, header.end_offset))
        position += header.size_bytes
        yield stored, offset


def _read_batch(
    raw: bytes, position: int, header: BatchHeader, start: Offset
) -> StoredBatch | Marker:
    attributes = header.attributes
    if attributes & CONTROL:
        return read_marker(raw, position)
    mark = None
    if attributes & TRANSACTIONAL:
        mark = TransactionMark(ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch))
    if header.base_offset >= start:
        pairs = read_pairs(raw, position, header=header)
    else:
        records = read_records(raw, position)
        pairs = [(record.key, record.value) for record in records if record.offset >= start]
    return StoredBatch(pairs, mark)
