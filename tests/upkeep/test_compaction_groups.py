"""Which segments are joined."""

from penstock.model import Offset
from penstock.upkeep.compaction_plan import SegmentSize, group_segments


def bases(
    *segments: SegmentSize, segment_bytes: int = 100, segment_index_bytes: int = 100
) -> list[list[int]]:
    groups = group_segments(
        segments, segment_bytes=segment_bytes, segment_index_bytes=segment_index_bytes
    )
    return [[int(segment.base_offset) for segment in group] for group in groups]


def segment(
    base: int, size: int, *, end: int | None = None, index: int = 0, times: int = 0
) -> SegmentSize:
    return SegmentSize(Offset(base), Offset(base + 10 if end is None else end), size, index, times)


def test_neighbouring_segments_are_joined_up_to_the_size_of_a_segment() -> None:
    rows = [segment(0, 40), segment(10, 60), segment(20, 1), segment(30, 100)]
    assert bases(*rows) == [[0, 10], [20], [30]]


def test_an_index_that_would_be_too_large_starts_a_new_group() -> None:
    assert bases(segment(0, 1, index=60), segment(10, 1, index=41)) == [[0], [10]]
    assert bases(segment(0, 1, times=60), segment(10, 1, times=41)) == [[0], [10]]


def test_offsets_too_far_apart_for_an_index_start_a_new_group() -> None:
    far = 2**31
    assert bases(segment(0, 1, end=10), segment(10, 1, end=far)) == [[0, 10]]
    assert bases(segment(0, 1, end=10), segment(10, 1, end=far + 1)) == [[0], [10]]


def test_an_empty_segment_is_joined_at_any_distance() -> None:
    assert bases(segment(0, 1), segment(10, 0, end=2**40)) == [[0, 10]]


def test_no_segments_make_no_groups() -> None:
    assert bases() == []
