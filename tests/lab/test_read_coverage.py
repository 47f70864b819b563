"""What a group has read: gaps and duplicates are both counted."""

import random

import pyarrow as pa

from penstock.lab.read_coverage import ReadCoverage, ReadSpan, joined, spans_in


def test_a_batch_is_cut_where_offsets_or_partitions_jump() -> None:
    partitions = pa.array([0, 0, 0, 1, 1], pa.int32())
    offsets = pa.array([5, 6, 8, 9, 10], pa.int64())
    assert spans_in(partitions, offsets) == [
        ReadSpan(0, 5, 7), ReadSpan(0, 8, 9), ReadSpan(1, 9, 11),
    ]  # fmt: skip
    assert spans_in(partitions[:0], offsets[:0]) == []


def test_spans_that_follow_one_another_are_joined() -> None:
    spans = [ReadSpan(0, 0, 5), ReadSpan(1, 3, 4), ReadSpan(0, 5, 9), ReadSpan(0, 20, 21)]
    assert sorted(joined(spans)) == [
        ReadSpan(0, 0, 9), ReadSpan(0, 20, 21), ReadSpan(1, 3, 4),
    ]  # fmt: skip


def test_duplicates_do_not_hide_a_gap() -> None:
    coverage = ReadCoverage()
    for span in (ReadSpan(0, 0, 10), ReadSpan(0, 0, 10), ReadSpan(0, 12, 20), ReadSpan(1, 0, 5)):
        coverage.add(span)
    assert coverage.events == 33
    assert coverage.duplicates == 10
    assert coverage.missing({0: 20, 1: 5, 2: 3}) == {0: 2, 2: 3}


def test_spans_in_any_order_count_like_single_offsets() -> None:
    rng = random.Random(4)
    for _ in range(200):
        coverage = ReadCoverage()
        read: list[int] = []
        for _ in range(rng.randrange(1, 12)):
            start = rng.randrange(40)
            end = start + rng.randrange(1, 10)
            coverage.add(ReadSpan(0, start, end))
            read += range(start, end)
        assert coverage.distinct == len(set(read))
        assert coverage.duplicates == len(read) - len(set(read))
        lacking = 50 - len({one for one in read if one < 50})
        assert coverage.missing({0: 50}) == ({0: lacking} if lacking else {})
