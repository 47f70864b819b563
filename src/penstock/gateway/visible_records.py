"""Fetched batches to the records that a reader of committed data sees. Pure.

Records of aborted transactions and markers are skipped; their offsets and those that compaction
removed are gaps, which `end_offset` covers.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.model import Offset
from penstock.protocol.batch import BatchHeader, iterate_headers
from penstock.protocol.control_records import read_marker
from penstock.protocol.messages.fetch import FetchedAbort
from penstock.protocol.records import Record, iterate_records


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

    A batch that was cut at the end is not read; the next fetch returns it whole.
    """
    records: list[Record] = []
    end_offset, size_bytes = start, 0
    for position, header, counts in _batches(batches, aborted):
        if counts and header.end_offset > start:
            for record in iterate_records(batches, position):
                if record.offset < start:
                    continue
                record_bytes = len(record.key or b"") + len(record.value or b"")
                if records and bytes_max is not None and size_bytes + record_bytes > bytes_max:
                    return VisibleRecords(records, Offset(record.offset))
                records.append(record)
                size_bytes += record_bytes
        end_offset = max(end_offset, header.end_offset)
    return VisibleRecords(records, end_offset)


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
