"""Which partition to compact next, and how far. Pure: facts about logs in, a choice out.

A log is clean up to its checkpoint and dirty from there. Never cleaned: the active segment, what is
not yet stable (an open transaction may still be aborted), and what is younger than
`min.compaction.lag.ms`. The dirtiest log over `min.cleanable.dirty.ratio` goes first; before it
goes one with dirty records older than `max.compaction.lag.ms`, whatever its ratio.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.config.views import CompactionSettings
from penstock.model import NO_TIMESTAMP, Millis, Offset


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


class Candidate(NamedTuple, Generic[NameT]):
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


def dirtiest(candidates: Iterable[Candidate[NameT]]) -> Candidate[NameT] | None:
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
