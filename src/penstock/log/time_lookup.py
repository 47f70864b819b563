"""Finding records by timestamp: the only code of the log that opens batches.

The time index and batch headers narrow the search to one batch, which is quick. Opening that batch
takes time in proportion to its records; a `CandidateBatch` can be opened in any thread, because it
needs nothing of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import Malformed
from penstock.log.scan import DAMAGE, scan_headers, unreadable
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.records import iterate_records

if TYPE_CHECKING:
    from penstock.log.segment import Segment
    from penstock.protocol.batch import BatchHeader


class TimestampMatch(NamedTuple):
    """A record with its offset and timestamp."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


class CandidateBatch(NamedTuple):
    """The first batch that may have a record in [start_offset, end_offset) of that time or later.

    If it has none, the search continues from its `header.end_offset`.
    """

    batch: memoryview
    header: BatchHeader
    timestamp: Millis
    start_offset: Offset
    end_offset: Offset

    def open(self, find: TimeFinder | None = None) -> TimestampMatch | None:
        """The first such record; Refused when the batch is corrupt."""
        try:
            match = (find or find_one_by_one)(
                self.batch, self.timestamp, self.start_offset, self.end_offset
            )
        except Malformed as damage:
            raise unreadable(f"the batch at offset {self.header.base_offset}", damage) from damage
        if match is None:
            return None
        return TimestampMatch(*match, LeaderEpoch(self.header.leader_epoch))


TimeFinder: TypeAlias = Callable[
    [memoryview, Millis, Offset, Offset], tuple[Offset, Millis] | None
]  # the first record of a batch in [start_offset, end_offset) of a time or later


def find_one_by_one(
    batch: memoryview, timestamp: Millis, start_offset: Offset, end_offset: Offset
) -> tuple[Offset, Millis] | None:
    """A `TimeFinder` in Python: slow for a batch with many records."""
    for record in iterate_records(batch):
        if record.timestamp >= timestamp and start_offset <= record.offset < end_offset:
            return Offset(record.offset), Millis(record.timestamp)
    return None


def find_candidate(
    segments: Sequence[Segment], timestamp: Millis, start_offset: Offset, end_offset: Offset
) -> CandidateBatch | None:
    """The first batch by its header; None when there is no such record.

    Refused when the log cannot be read.
    """
    try:
        return _find_candidate(segments, timestamp, start_offset, end_offset)
    except DAMAGE as damage:
        raise unreadable(segments[0].folder, damage) from damage


def _find_candidate(
    segments: Sequence[Segment], timestamp: Millis, start_offset: Offset, end_offset: Offset
) -> CandidateBatch | None:
    for number, segment in enumerate(segments):
        is_before = number + 1 < len(segments) and segments[number + 1].base_offset <= start_offset
        if is_before or segment.max_timestamp < timestamp:
            continue
        if segment.base_offset >= end_offset:
            return None
        before = segment.time_index.entry_before(timestamp)
        from_offset = max(start_offset, before.offset if before is not None else Offset(0))
        reached = segment.position_of(from_offset)
        for position, header, _, _ in scan_headers(segment.log, reached):
            reached = position + header.size_bytes
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp >= timestamp:
                batch = segment.log.read(position, position + header.size_bytes)
                return CandidateBatch(batch, header, timestamp, start_offset, end_offset)
        if reached != segment.size_bytes:
            raise Malformed(f"{segment.log.path} has no valid batch where one is expected", reached)
    return None


def find_by_timestamp(
    segments: Sequence[Segment], timestamp: Millis, start_offset: Offset, end_offset: Offset
) -> TimestampMatch | None:
    """The first record in [start_offset, end_offset) with this timestamp or a later one."""
    while True:
        candidate = find_candidate(segments, timestamp, start_offset, end_offset)
        if candidate is None:
            return None
        match = candidate.open()
        if match is not None:
            return match
        start_offset = candidate.header.end_offset


def newest_timestamp(segments: Sequence[Segment]) -> Millis | None:
    """The largest timestamp; None when no record has one."""
    newest = max((segment.max_timestamp for segment in segments), default=Millis(-1))
    return newest if newest >= 0 else None
