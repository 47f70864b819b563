"""Which partition is compacted next, and how far."""

from typing import Any

import pytest

from penstock.model import Millis, Offset
from penstock.upkeep.compaction_plan import (
    CleanableRange,
    CompactionCandidate,
    LogFacts,
    SegmentFacts,
    cleanable_range,
    dirtiest,
)
from penstock.upkeep.settings import CompactionSettings
from tests.support.settings import default_settings

NOW = Millis(1_000_000)


def facts(
    *segments: tuple[int, int, int],
    checkpoint: int | None = None,
    stable: int = 100,
    start: int = 0,
    end: int = 100,
) -> LogFacts:
    """Segments as (base offset, bytes, age of all its records); the last one is active."""
    return LogFacts(
        [
            SegmentFacts(Offset(base), size, Millis(NOW - age), Millis(NOW - age))
            for base, size, age in segments
        ],
        start_offset=Offset(start),
        last_stable_offset=Offset(stable),
        end_offset=Offset(end),
        checkpoint=None if checkpoint is None else Offset(checkpoint),
    )


THREE = ((0, 300, 50), (30, 100, 30), (60, 1000, 10))


def cleanable(log: LogFacts, **settings: Any) -> CleanableRange | None:
    return cleanable_range(log, default_settings(CompactionSettings, compact=True, **settings), NOW)


def test_a_log_never_cleaned_is_dirty_up_to_its_active_segment() -> None:
    assert cleanable(facts(*THREE)) == CleanableRange(Offset(0), Offset(60), 0, 400, False)


def test_a_log_is_compacted_above_the_dirty_ratio() -> None:
    log = facts(*THREE, checkpoint=30)
    assert cleanable(log, min_cleanable_dirty_ratio=0.25) is None
    result = cleanable(log, min_cleanable_dirty_ratio=0.24)
    assert result is not None
    assert (result.clean_bytes, result.dirty_bytes, result.dirty_ratio) == (300, 100, 0.25)


def test_a_clean_log_is_not_compacted() -> None:
    assert cleanable(facts(*THREE, checkpoint=60), min_cleanable_dirty_ratio=0.0) is None


def test_a_log_with_only_an_active_segment_has_nothing_to_clean() -> None:
    assert cleanable(facts((0, 1000, 50))) is None


def test_segments_from_the_last_stable_offset_on_are_not_compacted() -> None:
    for stable in (30, 59):
        result = cleanable(facts(*THREE, stable=stable))
        assert result is not None
        assert result.end_offset == 30
    assert cleanable(facts(*THREE, stable=29)) is None


def test_records_younger_than_the_minimum_lag_are_not_compacted() -> None:
    result = cleanable(facts(*THREE), min_compaction_lag_ms=Millis(40))
    assert result is not None
    assert result.end_offset == 30
    assert cleanable(facts(*THREE), min_compaction_lag_ms=Millis(60)) is None


def test_the_maximum_lag_forces_a_round_whatever_the_ratio() -> None:
    log = facts(*THREE, checkpoint=30)
    assert cleanable(log, max_compaction_lag_ms=Millis(30)) is None
    result = cleanable(log, max_compaction_lag_ms=Millis(29))
    assert result is not None
    assert result.is_overdue


@pytest.mark.parametrize("checkpoint", [5, 101])
def test_a_checkpoint_outside_the_log_counts_as_none(checkpoint: int) -> None:
    result = cleanable(facts(*THREE, checkpoint=checkpoint, start=10))
    assert result is not None
    assert result.first_dirty_offset == 10


def test_an_overdue_log_is_first_and_then_the_dirtiest() -> None:
    def candidate(name: str, dirty: int, *, is_overdue: bool) -> CompactionCandidate[str]:
        return CompactionCandidate(
            name, CleanableRange(Offset(0), Offset(9), 100, dirty, is_overdue)
        )

    half = candidate("half", 100, is_overdue=False)
    most = candidate("most", 900, is_overdue=False)
    late = candidate("late", 1, is_overdue=True)
    assert dirtiest([]) is None
    assert dirtiest([half, most]) == most
    assert dirtiest([half, late, most]) == late
