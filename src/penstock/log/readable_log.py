"""The reading side of a partition's log: batches, aborted transactions, records by time.

Changes nothing. A read of corrupt bytes is refused; other reads of the log are not affected.
"""

from collections.abc import Sequence

from penstock.errors import ErrorCode, Refused
from penstock.log.producer_state import ProducerTable
from penstock.log.scan import DAMAGE, unreadable
from penstock.log.segment import NOTHING, Segment
from penstock.log.segment_list import LogSlice, Segments
from penstock.log.time_lookup import TimestampMatch, find_by_timestamp, newest_timestamp
from penstock.log.transaction_index import AbortedEntry
from penstock.model import Millis, Offset


class ReadableLog:
    """The log of one partition, for its readers.

    start_offset <= last_stable_offset <= high_watermark <= end_offset
    """

    __slots__ = ("_segments", "end_offset", "high_watermark", "producers", "start_offset")

    def __init__(self, segments: Segments, *, end_offset: Offset, producers: ProducerTable) -> None:
        self.start_offset: Offset = segments.all[0].base_offset
        self.end_offset: Offset = end_offset
        self.high_watermark: Offset = self.start_offset
        self.producers: ProducerTable = producers
        self._segments = segments

    @property
    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last is the active one."""
        return self._segments.all

    @property
    def active(self) -> Segment:
        return self._segments.active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments.all)

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction that started before it is decided."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)

    def read(
        self,
        offset: Offset,
        *,
        max_bytes: int,
        end_offset: Offset | None = None,
        whole_first: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that contains `offset`, all of them below `end_offset`.

        At most `max_bytes`, except that the first batch is complete when `whole_first`: otherwise
        readers would never get past a batch that is larger than their limit.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is not within {self.start_offset} to {self.end_offset}",
            )
        limit = self.end_offset if end_offset is None else min(end_offset, self.end_offset)
        if offset >= limit:
            return LogSlice(NOTHING, self.active.base_offset, 0)
        try:
            return self._segments.read(
                offset, limit, self.end_offset, max_bytes=max_bytes, whole_first=whole_first
            )
        except DAMAGE as damage:
            raise unreadable(self._segments.folder, damage) from damage

    def aborted_in(self, read: LogSlice, offset: Offset, end_offset: Offset) -> list[AbortedEntry]:
        """The aborted transactions with records in what was read from `offset` on."""
        segments = self.segments[self._segments.index_of(offset) :]
        if not any(segment.transaction_index.may_have_entries for segment in segments):
            return []
        try:
            following = self._segments.offset_after(read)
            end = end_offset if following < 0 else min(following, end_offset)
            return self.aborted_transactions(offset, end)
        except DAMAGE as damage:
            raise unreadable(self._segments.folder, damage) from damage

    def aborted_transactions(self, start: Offset, end: Offset) -> list[AbortedEntry]:
        """The aborted transactions with records in [start, end)."""
        aborted: list[AbortedEntry] = []
        for segment in self.segments[self._segments.index_of(start) :]:
            if segment.transaction_index.collect(start, end, aborted):
                break
        return aborted

    def offset_by_timestamp(
        self, timestamp: Millis, *, end_offset: Offset | None = None
    ) -> TimestampMatch | None:
        """The first record with this timestamp or a later one, below `end_offset`."""
        limit = self.end_offset if end_offset is None else end_offset
        return find_by_timestamp(self.segments, timestamp, self.start_offset, limit)

    def offset_of_max_timestamp(self) -> TimestampMatch | None:
        """The first record with the largest timestamp."""
        newest = newest_timestamp(self.segments)
        return None if newest is None else self.offset_by_timestamp(newest)
