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
    Position,
    admit,
    deal,
    losses,
    ranges_between,
)

ONE, OTHER = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def position(*offsets: int, topic_id: TopicId = ONE) -> Position:
    return Position(
        {TopicPartition("t", index): Offset(offset) for index, offset in enumerate(offsets)},
        {"t": topic_id},
    )


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(one.partition.partition, one.start, one.end) for one in ranges]


def test_a_position_survives_the_checkpoint() -> None:
    there = position(5, 7)
    assert Position.from_spark(json.loads(json.dumps(there.to_spark()))) == there


@pytest.mark.parametrize("told", [{"t": {"0": 5}}, {"offsets": 3}, {}])
def test_a_checkpoint_of_another_source_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(Refused, match="not written by this source"):
        Position.from_spark(told)


def test_ranges_are_what_lies_between_and_a_new_partition_begins_at_its_start() -> None:
    assert spans(ranges_between(position(5, 7), position(5, 9, 3))) == [(1, 7, 9), (2, 0, 3)]


def test_a_topic_created_again_is_a_loss_and_begins_at_its_start() -> None:
    before, after = position(5, 7), position(2, 1, topic_id=OTHER)
    assert losses(before, after) == [
        "topic t was deleted and created again: its offsets belong to the deleted one"
    ]
    assert spans(ranges_between(before, after)) == [(0, 0, 2), (1, 0, 1)]
    assert ranges_between(before, after)[0].topic_id == OTHER


def test_partitions_that_are_gone_or_shorter_are_losses() -> None:
    assert losses(position(5, 7), position(4)) == [
        "t-0 ends at 4: it was read up to offset 5",
        "t-1 is not there any longer: it was read up to offset 7",
    ]
    assert losses(position(5), position(5, 9)) == []


backlogs = st.lists(st.integers(0, 1000), min_size=1, max_size=20)


@given(starts=backlogs, waiting=backlogs, offsets_max=st.integers(1, 3000))
def test_a_limit_is_used_up_and_never_passed(
    starts: list[int], waiting: list[int], offsets_max: int
) -> None:
    count = min(len(starts), len(waiting))
    start = position(*starts[:count])
    end = position(*(one + more for one, more in zip(starts, waiting, strict=False)))
    reached = admit(start, end, offsets_max)
    moved = sum(one.end - one.start for one in ranges_between(start, reached))
    assert moved == min(offsets_max, sum(waiting[:count]))
    assert all(
        start.offsets[place] <= offset <= end.offsets[place]
        for place, offset in reached.offsets.items()
    )


def test_a_small_partition_beside_a_large_one_gets_its_turn() -> None:
    here, end = position(0, 0), position(1_000_000, 1)
    for _ in range(3):
        here = admit(here, end, 1)
    assert here.offsets[TopicPartition("t", 1)] == 1


@given(
    sizes=st.lists(st.integers(1, 100_000), min_size=1, max_size=30),
    partitions_min=st.none() | st.integers(1, 100),
    records_max=st.none() | st.integers(1000, 50_000),
)
def test_tasks_have_every_offset_once_and_in_order(
    sizes: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = ranges_between(position(), position(*sizes))
    tasks = deal(ranges, partitions_min=partitions_min, records_per_partition_max=records_max)
    at = dict.fromkeys((one.partition for one in ranges), 0)
    for task in tasks:
        for one in task:
            assert at[one.partition] == one.start < one.end
            at[one.partition] = one.end
    assert list(at.values()) == sizes
    if partitions_min is not None:
        assert len(tasks) >= min(partitions_min, sum(sizes))
    if records_max is not None:
        assert all(one.end - one.start <= records_max for task in tasks for one in task)


def test_short_ranges_share_a_task_and_a_long_one_has_its_own() -> None:
    ranges = ranges_between(position(), position(10, BUNDLE_OFFSETS, 10, 10))
    assert [len(task) for task in deal(ranges)] == [1, 1, 2]


def test_the_same_offsets_give_the_same_tasks() -> None:
    ranges = ranges_between(position(), position(70, 90_000, 13))
    once = deal(ranges, partitions_min=7)
    assert deal(pickle.loads(pickle.dumps(ranges)), partitions_min=7) == once


def test_a_hundred_thousand_ranges_share_as_many_tasks_as_spark_can_bear() -> None:
    end = Position(
        {TopicPartition("t", index): Offset(50_000) for index in range(100_000)}, {"t": ONE}
    )
    tasks = deal(ranges_between(position(), end))
    assert len(tasks) == TASKS_MAX
    assert [one.partition.partition for task in tasks for one in task] == list(range(100_000))
