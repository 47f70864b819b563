"""A machine's journal over a partition of this broker, and the reading of it for replay.

Appends go through the partition's one writer; what is below the high watermark is committed.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.broker.partition import Partition
from penstock.errors import Malformed, Refused
from penstock.machine import JournalRecord, TransactionStamp
from penstock.model import NO_PRODUCER, NO_PRODUCER_EPOCH, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    iterate_headers,
    read_header,
)
from penstock.protocol.control_records import Marker, read_marker
from penstock.protocol.key_values import Pair, build_one, build_pairs, read_pairs, read_plain_pairs
from penstock.protocol.records import read_records

READ_BYTES = 1 << 20  # of the log at a time while replaying


class PartitionJournal:
    """The Journal port over a partition that this broker leads."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def end_offset(self) -> Offset:
        """Where the next record would go."""
        return self._partition.log.end_offset

    @property
    def committed_offset(self) -> Offset:
        """The high watermark: every in-sync replica has what is below."""
        return self._partition.log.high_watermark

    def append(
        self,
        records: Sequence[JournalRecord],
        now: Millis,
        stamp: TransactionStamp | None = None,
    ) -> Offset:
        """Append all records as one batch, or none; return the new end offset."""
        if stamp is None and len(records) == 1:
            ((key, value),) = records
            batch, header = build_one(key, value, now)
        else:
            batch = build_pairs(
                records,
                now,
                producer_id=NO_PRODUCER if stamp is None else stamp.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if stamp is None else stamp.producer_epoch,
                transactional=stamp is not None,
            )
            header = read_header(batch)
        return self._partition.append(batch, header, now=now, origin="internal").end_offset


class StoredBatch(NamedTuple):
    """Records as replay meets them, and the transaction they belong to."""

    records: Sequence[Pair]
    stamp: TransactionStamp | None


def read_journal(partition: Partition) -> Iterator[StoredBatch | Marker]:
    """Everything the log holds, in order: batches with the transaction they belong to, and markers.

    Records of a later aborted transaction are among them: the marker that follows says so. OSError
    where the log cannot be read: state without what is there would be believed, and written on.
    """
    log = partition.log
    offset = log.start_offset
    while offset < log.end_offset:
        start = offset
        try:
            raw = bytes(log.read(offset, max_bytes=READ_BYTES, end_offset=log.end_offset).view)
            if not raw:
                return  # compaction took the last ones
            for stored, end_offset in _read_chunk(raw, start):
                offset = end_offset
                if stored is not None:
                    yield stored
        except (Refused, Malformed) as damage:
            raise _unreadable(partition, offset, str(damage)) from damage
        if offset == start:
            raise _unreadable(partition, offset, "no whole batch is there")


def _unreadable(partition: Partition, offset: Offset, reason: str) -> OSError:
    told = f"cannot be read at offset {offset}: {reason}; restore it from a copy"
    return OSError(errno.EIO, told, str(partition.log.folder))


def _read_chunk(raw: bytes, start: Offset) -> Iterator[tuple[StoredBatch | Marker | None, Offset]]:
    """What the whole batches hold, with the offset after it. Plain ones in a row are one."""
    position, offset = 0, start
    while True:
        pairs, position, offset = read_plain_pairs(raw, position, offset)
        yield StoredBatch(pairs, None) if pairs else None, offset
        header = next((found for _, found in iterate_headers(raw, position)), None)
        if header is None:
            return
        stored = None
        if header.end_offset > start and header.record_count:  # compaction may empty one
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
    stamp = None
    if attributes & TRANSACTIONAL:
        stamp = TransactionStamp(
            ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch)
        )
    if header.base_offset >= start:
        pairs = read_pairs(raw, position, header=header)
    else:
        records = read_records(raw, position)
        pairs = [(record.key, record.value) for record in records if record.offset >= start]
    return StoredBatch(pairs, stamp)
