"""Fetched batches to the records that a reader of committed data sees. Pure.

Records of aborted transactions and markers are skipped; their offsets and those that compaction
removed are gaps, which `end_offset` covers.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.model import Offset
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, iterate_headers
from penstock.protocol.compression import decompressed_size_limit
from penstock.protocol.control_records import read_marker
from penstock.protocol.messages.fetch import FetchedAbort
from penstock.protocol.records import OPENED_BYTES_MAX, Record, iterate_records

RECORDS_MAX: Final = 10_000  # at a time: a small batch may have millions of empty records


class VisibleRecords(NamedTuple):
    """Records in the order of their offsets, and the offset to read from next."""

    records: list[Record]
    end_offset: Offset


def visible_records(
    batches: memoryview,
    aborted: Sequence[FetchedAbort],
    start: Offset,
    *,
    bytes_max: int | None = None,
) -> VisibleRecords:
    """The records from `start` on, at least one, until they have `bytes_max` bytes.

    With `bytes_max` there are RECORDS_MAX at most. A batch that was cut at the end is not read; the
    next fetch returns it whole.
    """
    records: list[Record] = []
    end_offset, size_bytes = start, 0
    for position, header, counts in _batches(batches, aborted):
        if counts and header.end_offset > start:
            for record in iterate_records(batches, position):
                if record.offset < start:
                    continue
                record_bytes = len(record.key or b"") + len(record.value or b"")
                size_bytes += record_bytes
                if bytes_max is not None and _is_full(len(records), size_bytes, bytes_max):
                    return VisibleRecords(records, Offset(record.offset))
                records.append(record)
        end_offset = max(end_offset, header.end_offset)
    return VisibleRecords(records, end_offset)


def _is_full(count: int, next_size_bytes: int, bytes_max: int) -> bool:
    """Whether one record more would be too many."""
    return count >= RECORDS_MAX or (count > 0 and next_size_bytes > bytes_max)


def opened_bytes_max(batches: memoryview) -> int:
    """The memory that the records can take when they are decompressed, by the headers."""
    size_bytes = 0
    for position, header in iterate_headers(batches):
        packed = batches[position + HEADER_BYTES : position + header.size_bytes]
        try:
            size_bytes += decompressed_size_limit(header.codec, packed, max_bytes=OPENED_BYTES_MAX)
        except Malformed:  # raised again when it is opened, unless its transaction was aborted
            size_bytes += OPENED_BYTES_MAX
    return size_bytes


def _batches(
    batches: memoryview, aborted: Sequence[FetchedAbort]
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position and header of each whole batch, and whether its records count."""
    waiting = sorted(aborted, key=lambda abort: abort.first_offset, reverse=True)
    aborting: set[int] = set()
    for position, header in iterate_headers(batches):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            aborting.add(waiting.pop().producer_id)
        if header.is_control:
            # Compaction may leave a marker's batch empty; its transaction has no records either.
            if header.record_count and not read_marker(batches, position).commit:
                aborting.discard(header.producer_id)
            yield position, header, False
        else:
            is_aborted = header.is_transactional and header.producer_id in aborting
            yield position, header, not is_aborted
