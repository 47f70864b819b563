"""Which partition to compact next, and how far. Pure: facts about logs in, a choice out.

A log is clean up to its checkpoint and dirty from there. Never cleaned: the active segment, what is
not yet stable (an open transaction may still be aborted), and what is younger than
`min.compaction.lag.ms`. The dirtiest log over `min.cleanable.dirty.ratio` goes first; before it
goes one with dirty records older than `max.compaction.lag.ms`, whatever its ratio.

Which neighbouring segments become one cleaned segment. Pure.

Sizes are taken before cleaning, so a group never comes out larger than a segment may be (but for a
few bytes that delete horizons add); what shrinks is joined further in later rounds.

Which transactions the cleaner is inside of while it walks a log. Pure.

Fed each transactional batch and each marker in offset order. A batch of an aborted transaction can
go. A marker can go once no batch of its transaction is left before it: until then a reader needs
the marker (and the `.txnindex` entry of an abort) to tell whether to show those records.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.log.transaction_index import AbortedEntry
from penstock.model import NO_TIMESTAMP, Millis, Offset, ProducerId
from penstock.upkeep.settings import CompactionSettings


class SegmentFacts(NamedTuple):
    """What choosing needs to know of one segment."""

    base_offset: Offset
    size_bytes: int
    first_timestamp: Millis  # of its first batch: what max.compaction.lag.ms counts from
    max_timestamp: Millis


class LogFacts(NamedTuple):
    """What choosing needs to know of one partition. The last segment is the active one."""

    segments: Sequence[SegmentFacts]
    start_offset: Offset
    last_stable_offset: Offset
    end_offset: Offset
    checkpoint: Offset | None  # where the last cleaning stopped


class CleanableRange(NamedTuple):
    """How far a log may be cleaned, and how much there is to gain."""

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
    """What may be cleaned now; None when that is nothing or not worth it yet."""
    first_dirty = _first_dirty_offset(log)
    end = max(first_dirty, _end_cleanable_offset(log, first_dirty, settings, now))
    closed = log.segments[:-1]
    ends = [segment.base_offset for segment in log.segments[1:]]
    dirty = [s for s, s_end in zip(closed, ends, strict=True) if s_end > first_dirty]
    found = CleanableRange(
        first_dirty,
        end,
        clean_bytes=sum(s.size_bytes for s in closed) - sum(s.size_bytes for s in dirty),
        dirty_bytes=sum(s.size_bytes for s in dirty if s.base_offset < end),
        is_overdue=_is_overdue(dirty, settings, now),
    )
    if found.dirty_bytes == 0:
        return None
    worth_it = found.is_overdue or found.dirty_ratio > settings.min_cleanable_dirty_ratio
    return found if worth_it else None


def dirtiest(candidates: Iterable[CompactionCandidate[NameT]]) -> CompactionCandidate[NameT] | None:
    """The one with the most to gain: an overdue log before any other, then by dirty ratio."""
    return max(
        candidates,
        key=lambda c: (c.cleanable.is_overdue, c.cleanable.dirty_ratio),
        default=None,
    )


def _first_dirty_offset(log: LogFacts) -> Offset:
    """The checkpoint, unless the log was cut below it or its start has moved past it."""
    checkpoint = log.checkpoint
    if checkpoint is None or not log.start_offset <= checkpoint <= log.end_offset:
        return log.start_offset
    return checkpoint


def _end_cleanable_offset(
    log: LogFacts, first_dirty: Offset, settings: CompactionSettings, now: Millis
) -> Offset:
    """Where the first segment starts that has to stay as it is."""
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
    stamps = [s.first_timestamp for s in dirty if s.first_timestamp != NO_TIMESTAMP]
    return bool(stamps) and min(stamps) < now - settings.max_compaction_lag_ms


_RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # an index holds offsets as 32 bits from the segment's base


class SegmentSize(NamedTuple):
    """What a closed segment takes on disk, and the offsets it spans."""

    base_offset: Offset
    end_offset: Offset  # where the next one starts
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Iterable[SegmentSize], *, segment_bytes: int, segment_index_bytes: int
) -> list[list[SegmentSize]]:
    """Cut the row of segments into groups that each fit one segment and its indexes."""
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
        sum(one.size_bytes for one in joined) <= segment_bytes
        and sum(one.index_bytes for one in joined) <= segment_index_bytes
        and sum(one.time_index_bytes for one in joined) <= segment_index_bytes
        # An empty one adds no entry, so it may be joined from any distance.
        and (
            segment.size_bytes == 0
            or segment.end_offset - 1 - group[0].base_offset <= _RELATIVE_OFFSET_MAX
        )
    )


class WalkedTransactions:
    """The state of one walk from `start_offset` on."""

    def __init__(self, aborted: Iterable[AbortedEntry], start_offset: Offset) -> None:
        # One that ended before the walk starts has no marker to meet: it would stay open for ever.
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
        """An abort marker: whether nothing of its transaction is left, else the entry to keep."""
        self._move_to(offset)
        entry = self._aborted.pop(producer_id, None)
        if producer_id not in self._seen_aborted:
            return True, None
        self._seen_aborted.remove(producer_id)
        return False, entry

    def _move_to(self, offset: Offset) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            entry = self._ahead.popleft()
            # A producer has one transaction at a time: an earlier one ended, its marker is gone.
            self._aborted[entry.producer_id] = entry
