"""The decisions of compaction, from facts about logs: which one, how far, what is joined. Pure.

A log is clean up to its checkpoint and dirty from there. Never compacted: the active segment, what
is above the last stable offset (an open transaction may still be aborted), and what is younger than
`min.compaction.lag.ms`. First comes a log with dirty records older than `max.compaction.lag.ms`,
then the dirtiest log over `min.cleanable.dirty.ratio`.

Neighbouring segments become one cleaned segment if their sizes before compaction allow it, so that
the result is never larger than a segment may be (except for a few bytes of delete horizons). What
shrinks is joined further in later rounds.

A batch of an aborted transaction is removed. A marker is removed when no batch of its transaction
is left before it: until then readers need the marker, and the `.txnindex` entry of an abort.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.log.transaction_index import AbortedEntry
from penstock.model import NO_TIMESTAMP, Millis, Offset, ProducerId
from penstock.upkeep.settings import CompactionSettings


class SegmentFacts(NamedTuple):
    """The facts of one segment."""

    base_offset: Offset
    size_bytes: int
    first_timestamp: Millis  # of its first batch, which max.compaction.lag.ms applies to
    max_timestamp: Millis


class LogFacts(NamedTuple):
    """The facts of one partition. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    start_offset: Offset
    last_stable_offset: Offset
    end_offset: Offset
    checkpoint: Offset | None  # where the last compaction stopped


class CleanableRange(NamedTuple):
    """How far a log may be compacted, and how much of it is dirty."""

    first_dirty_offset: Offset
    end_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # max.compaction.lag.ms has passed for a dirty record

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


NameT = TypeVar("NameT")


class CompactionCandidate(NamedTuple, Generic[NameT]):
    """A log that may be compacted now."""

    name: NameT
    cleanable: CleanableRange


def cleanable_range(
    log: LogFacts, settings: CompactionSettings, now: Millis
) -> CleanableRange | None:
    """What may be compacted now; None when nothing is dirty enough."""
    first_dirty = _first_dirty_offset(log)
    end = max(first_dirty, _end_cleanable_offset(log, first_dirty, settings, now))
    closed = log.segments[:-1]
    ends = [segment.base_offset for segment in log.segments[1:]]
    dirty = [s for s, s_end in zip(closed, ends, strict=True) if s_end > first_dirty]
    cleanable = CleanableRange(
        first_dirty,
        end,
        clean_bytes=sum(s.size_bytes for s in closed) - sum(s.size_bytes for s in dirty),
        dirty_bytes=sum(s.size_bytes for s in dirty if s.base_offset < end),
        is_overdue=_is_overdue(dirty, settings, now),
    )
    if cleanable.dirty_bytes == 0:
        return None
    is_due = cleanable.is_overdue or cleanable.dirty_ratio > settings.min_cleanable_dirty_ratio
    return cleanable if is_due else None


def dirtiest(candidates: Iterable[CompactionCandidate[NameT]]) -> CompactionCandidate[NameT] | None:
    """An overdue log before any other, then by dirty ratio."""
    return max(
        candidates,
        key=lambda c: (c.cleanable.is_overdue, c.cleanable.dirty_ratio),
        default=None,
    )


def _first_dirty_offset(log: LogFacts) -> Offset:
    """The checkpoint, unless the log was truncated below it or starts after it."""
    checkpoint = log.checkpoint
    if checkpoint is None or not log.start_offset <= checkpoint <= log.end_offset:
        return log.start_offset
    return checkpoint


def _end_cleanable_offset(
    log: LogFacts, first_dirty: Offset, settings: CompactionSettings, now: Millis
) -> Offset:
    """The base offset of the first segment that must not be compacted."""
    youngest_allowed = now - settings.min_compaction_lag_ms
    for segment, following in zip(log.segments[:-1], log.segments[1:], strict=True):
        is_too_young = (
            settings.min_compaction_lag_ms > 0
            and following.base_offset > first_dirty
            and segment.max_timestamp > youngest_allowed
        )
        if is_too_young or following.base_offset > log.last_stable_offset:
            return segment.base_offset
    return log.segments[-1].base_offset


def _is_overdue(dirty: Sequence[SegmentFacts], settings: CompactionSettings, now: Millis) -> bool:
    if settings.max_compaction_lag_ms is None:
        return False
    timestamps = [s.first_timestamp for s in dirty if s.first_timestamp != NO_TIMESTAMP]
    return bool(timestamps) and min(timestamps) < now - settings.max_compaction_lag_ms


_RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # offsets in an index have 32 bits


class SegmentSize(NamedTuple):
    """The size of a closed segment on disk, and its offsets."""

    base_offset: Offset
    end_offset: Offset  # where the next one starts
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Iterable[SegmentSize], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentSize]]:
    """Divide the segments into groups that each fit one segment and its indexes."""
    groups: list[list[SegmentSize]] = []
    for segment in segments:
        if groups and _fits(groups[-1], segment, segment_bytes, segment_index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: list[SegmentSize], segment: SegmentSize, segment_bytes: int, segment_index_bytes: int
) -> bool:
    joined = [*group, segment]
    return (
        sum(each.size_bytes for each in joined) <= segment_bytes
        and sum(each.index_bytes for each in joined) <= segment_index_bytes
        and sum(each.time_index_bytes for each in joined) <= segment_index_bytes
        # An empty segment adds no index entry, so that any distance is possible.
        and (
            segment.size_bytes == 0
            or segment.end_offset - 1 - group[0].base_offset <= _RELATIVE_OFFSET_MAX
        )
    )


class TransactionScan:
    """The transactions of batches and markers that are scanned from `start_offset` on."""

    def __init__(self, aborted: Iterable[AbortedEntry], start_offset: Offset) -> None:
        # The marker of a transaction that ended before the start is never scanned.
        ahead = (entry for entry in set(aborted) if entry.last_offset >= start_offset)
        self._ahead = deque(sorted(ahead, key=lambda entry: entry.first_offset))
        self._aborted: dict[ProducerId, AbortedEntry] = {}
        self._seen_aborted: set[ProducerId] = set()
        self._seen_committed: set[ProducerId] = set()

    def on_batch(self, producer_id: ProducerId, last_offset: Offset) -> bool:
        """A transactional batch; True when it was aborted."""
        self._move_to(last_offset)
        entry = self._aborted.get(producer_id)
        if entry is not None and last_offset <= entry.last_offset:
            self._seen_aborted.add(producer_id)
            return True
        self._seen_committed.add(producer_id)
        return False

    def on_commit(self, producer_id: ProducerId, offset: Offset) -> bool:
        """A commit marker; True when nothing of its transaction is left."""
        self._move_to(offset)
        if producer_id not in self._seen_committed:
            return True
        self._seen_committed.remove(producer_id)
        return False

    def on_abort(self, producer_id: ProducerId, offset: Offset) -> tuple[bool, AbortedEntry | None]:
        """An abort marker: whether nothing of its transaction is left, else the entry to retain."""
        self._move_to(offset)
        entry = self._aborted.pop(producer_id, None)
        if producer_id not in self._seen_aborted:
            return True, None
        self._seen_aborted.remove(producer_id)
        return False, entry

    def _move_to(self, offset: Offset) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            entry = self._ahead.popleft()
            # A producer has one transaction at a time: the marker of an earlier one was removed.
            self._aborted[entry.producer_id] = entry
