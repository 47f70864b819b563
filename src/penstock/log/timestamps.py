"""Finding records by time: the one path of the log that opens batches, for it is rare.

The time index brings it near, headers narrow it to one batch, and only that batch is opened.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.log.scan import Scanned, scan_headers
from penstock.log.segment import Segment
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.records import Record, read_records


class Found(NamedTuple):
    """A record, by its offset and its own timestamp."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


def find_by_timestamp(
    segments: Sequence[Segment], timestamp: Millis, start_offset: Offset, end_offset: Offset
) -> Found | None:
    """The first record in [start_offset, end_offset) with a timestamp not below the asked one."""
    for number, segment in enumerate(segments):
        is_before = number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset
        if is_before or segment.max_timestamp < timestamp:
            continue
        if segment.base_offset >= end_offset:
            return None
        before = segment.time_index.entry_before(timestamp)
        from_offset = max(start_offset, before.offset if before is not None else Offset(0))
        for scanned in scan_headers(segment.log, segment.position_of(from_offset)):
            if scanned.header.base_offset >= end_offset:
                return None
            if scanned.header.max_timestamp >= timestamp:
                found = _first(segment, scanned, timestamp, start_offset, end_offset)
                if found is not None:
                    return found
    return None


def find_max_timestamp(segments: Sequence[Segment], start_offset: Offset) -> Found | None:
    """The first record with the largest timestamp there is."""
    newest = max((segment.max_timestamp for segment in segments), default=Millis(-1))
    if newest < 0:
        return None
    end_offset = Offset(1 << 62)
    return find_by_timestamp(segments, newest, start_offset, end_offset)


def _first(
    segment: Segment,
    scanned: Scanned,
    timestamp: Millis,
    start_offset: Offset,
    end_offset: Offset,
) -> Found | None:
    end = scanned.position + scanned.header.size_bytes
    for record in read_records(segment.log.read(scanned.position, end)):
        if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
            return _found(record, scanned)
    return None


def _found(record: Record, scanned: Scanned) -> Found:
    return Found(
        Offset(record.offset), Millis(record.timestamp), LeaderEpoch(scanned.header.leader_epoch)
    )
