"""The water marks, without a client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.flow_control import Flow, FlowLimits, Steering
from penstock.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
LIMITS = FlowLimits(high_records=10, low_records=4, high_bytes=1000, low_bytes=400)


def flow(*assigned: TopicPartition) -> Flow:
    found = Flow(LIMITS)
    found.on_assigned(list(assigned))
    assert found.steer() == Steering([], list(assigned))  # told once how they begin
    return found


def test_all_pause_at_the_high_mark_and_resume_at_the_low_one() -> None:
    queue = flow(A, B)
    queue.arrived(9, 100)
    assert queue.steer() == Steering([], [])
    queue.arrived(1, 10)
    assert queue.steer() == Steering([A, B], [])
    queue.left(5, 50)
    assert queue.steer() == Steering([], [])
    queue.left(1, 10)
    assert queue.steer() == Steering([], [A, B])
    assert queue.stats.pauses == 1


def test_bytes_count_like_records() -> None:
    queue = flow(A)
    queue.arrived(1, 1000)
    assert queue.steer().pause == [A]
    queue.left(1, 500)
    assert queue.steer() == Steering([], [])
    queue.left(0, 100)
    assert queue.steer().resume == [A]


def test_a_rebalance_keeps_paused_partitions_paused() -> None:
    queue = flow(A)
    queue.arrived(10, 0)
    assert queue.steer().pause == [A]
    queue.on_assigned([B])  # one more
    assert queue.steer().pause == [B]
    queue.on_revoked([A, B])  # all anew, as an eager rebalance does
    queue.on_assigned([A, C])
    assert queue.steer() == Steering([A, C], [])


def test_what_the_program_holds_stays_held_through_it_all() -> None:
    queue = flow(A, B)
    queue.held.add(B)
    assert queue.steer().pause == [B]
    queue.arrived(10, 0)
    assert queue.steer().pause == [A]
    queue.left(10, 0)
    assert queue.steer() == Steering([], [A])
    queue.on_revoked([B])
    queue.on_assigned([B])
    assert queue.steer() == Steering([B], [])
    queue.held.clear()
    assert queue.steer().resume == [B]


def test_what_was_taken_before_a_partition_turned_is_not_current() -> None:
    queue = flow(A, B)
    before = queue.epoch
    queue.on_revoked([A])
    assert not queue.is_current(A, before)
    queue.on_assigned([A])
    assert not queue.is_current(A, before)
    assert queue.is_current(A, queue.epoch)
    assert queue.is_current(B, before)


@pytest.mark.parametrize(
    "marks", [{"low_records": 10_000}, {"low_bytes": 1 << 40}, {"high_records": 0}]
)
def test_marks_that_make_no_sense_are_refused(marks: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be less"):
        FlowLimits(**marks)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60))
def test_the_queue_goes_no_further_than_one_fetch_beyond_the_mark(
    steps: list[tuple[int, int]],
) -> None:
    queue = flow(A)
    for fetched, taken in steps:
        queue.steer()
        if not queue.is_full:
            queue.arrived(min(fetched, queue.room_records), 0)
        queue.left(min(taken, queue.waiting), 0)
    assert queue.stats.peak_records <= LIMITS.high_records
