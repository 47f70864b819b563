"""Offsets of micro-batches and their tasks."""

import json
import pickle
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Refused
from penstock.model import Offset, TopicId, TopicPartition
from penstock.spark.planning import (
    BUNDLE_OFFSETS,
    TASKS_MAX,
    OffsetRange,
    StreamPosition,
    limited,
    losses,
    ranges_between,
    split_into_tasks,
)

ONE, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def position(*offsets: int, topic_id: TopicId = ONE) -> StreamPosition:
    return StreamPosition(
        {TopicPartition("t", index): Offset(offset) for index, offset in enumerate(offsets)},
        {"t": topic_id},
    )


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.partition.partition, each.start, each.end) for each in ranges]


def test_a_position_survives_the_checkpoint() -> None:
    stored = position(5, 7)
    assert StreamPosition.from_spark(json.loads(json.dumps(stored.to_spark()))) == stored


@pytest.mark.parametrize("stored", [{"t": {"0": 5}}, {"offsets": 3}, {}])
def test_a_checkpoint_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(Refused, match="not written by this source"):
        StreamPosition.from_spark(stored)


def test_ranges_are_between_two_positions_and_a_new_partition_starts_at_0() -> None:
    assert spans(ranges_between(position(5, 7), position(5, 9, 3))) == [(1, 7, 9), (2, 0, 3)]


def test_a_topic_created_again_is_a_loss_and_starts_at_0() -> None:
    before, after = position(5, 7), position(2, 1, topic_id=OTHER)
    assert losses(before, after) == [
        "topic t was deleted and created again: its offsets belong to the deleted one"
    ]
    assert spans(ranges_between(before, after)) == [(0, 0, 2), (1, 0, 1)]
    assert ranges_between(before, after)[0].topic_id == OTHER


def test_partitions_that_were_deleted_or_truncated_are_losses() -> None:
    assert losses(position(5, 7), position(4)) == [
        "t-0 ends at 4: it was read up to offset 5",
        "t-1 no longer exists: it was read up to offset 7",
    ]
    assert losses(position(5), position(5, 9)) == []


backlogs = st.lists(st.integers(0, 1000), min_size=1, max_size=20)


@given(starts=backlogs, waiting=backlogs, offsets_max=st.integers(1, 3000))
def test_a_limit_is_used_fully_and_never_exceeded(
    starts: list[int], waiting: list[int], offsets_max: int
) -> None:
    count = min(len(starts), len(waiting))
    start = position(*starts[:count])
    end = position(*(first + more for first, more in zip(starts, waiting, strict=False)))
    reached = limited(start, end, offsets_max)
    moved = sum(each.end - each.start for each in ranges_between(start, reached))
    assert moved == min(offsets_max, sum(waiting[:count]))
    assert all(
        start.offsets[partition] <= offset <= end.offsets[partition]
        for partition, offset in reached.offsets.items()
    )


def test_a_small_partition_beside_a_large_one_advances_too() -> None:
    reached, end = position(0, 0), position(1_000_000, 1)
    for _ in range(3):
        reached = limited(reached, end, 1)
    assert reached.offsets[TopicPartition("t", 1)] == 1


@given(
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=30),
    partitions_min=st.none() | st.integers(1, 100),
    records_max=st.none() | st.integers(1000, 50_000),
)
def test_tasks_have_every_offset_once_and_in_order(
    sizes: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = ranges_between(position(), position(*sizes))
    tasks = split_into_tasks(
        ranges, partitions_min=partitions_min, records_per_partition_max=records_max
    )
    ends = dict.fromkeys((offsets.partition for offsets in ranges), 0)
    for task in tasks:
        for offsets in task:
            assert ends[offsets.partition] == offsets.start < offsets.end
            ends[offsets.partition] = offsets.end
    assert list(ends.values()) == sizes
    if partitions_min is not None:
        assert len(tasks) >= min(partitions_min, sum(sizes))
    if records_max is not None:
        assert all(each.end - each.start <= records_max for task in tasks for each in task)


def test_short_ranges_share_a_task_and_a_long_one_has_its_own() -> None:
    ranges = ranges_between(position(), position(10, BUNDLE_OFFSETS, 10, 10))
    assert [len(task) for task in split_into_tasks(ranges)] == [1, 1, 2]


def test_the_same_offsets_give_the_same_tasks() -> None:
    ranges = ranges_between(position(), position(70, 90_000, 13))
    tasks = split_into_tasks(ranges, partitions_min=7)
    assert split_into_tasks(pickle.loads(pickle.dumps(ranges)), partitions_min=7) == tasks


def test_a_hundred_thousand_ranges_share_a_limited_number_of_tasks() -> None:
    end = StreamPosition(
        {TopicPartition("t", index): Offset(50_000) for index in range(100_000)}, {"t": ONE}
    )
    tasks = split_into_tasks(ranges_between(position(), end))
    assert len(tasks) == TASKS_MAX
    assert [each.partition.partition for task in tasks for each in task] == list(range(100_000))
