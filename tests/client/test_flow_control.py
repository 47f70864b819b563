"""The watermarks, without a Kafka client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.flow_control import FlowChanges, FlowControl, FlowLimits
from penstock.model import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
LIMITS = FlowLimits(high_records=10, low_records=4, high_bytes=1000, low_bytes=400)


def flow(*assigned: TopicPartition) -> FlowControl:
    queue = FlowControl(LIMITS)
    queue.on_assigned(list(assigned))
    assert queue.changes() == FlowChanges([], list(assigned))  # once, how they start
    return queue


def test_all_pause_at_the_high_watermark_and_resume_at_the_low_one() -> None:
    queue = flow(A, B)
    queue.on_fetched(9, 100)
    assert queue.changes() == FlowChanges([], [])
    queue.on_fetched(1, 10)
    assert queue.changes() == FlowChanges([A, B], [])
    queue.on_removed(5, 50)
    assert queue.changes() == FlowChanges([], [])
    queue.on_removed(1, 10)
    assert queue.changes() == FlowChanges([], [A, B])
    assert queue.stats.pauses == 1


def test_bytes_count_like_records() -> None:
    queue = flow(A)
    queue.on_fetched(1, 1000)
    assert queue.changes().pause == [A]
    queue.on_removed(1, 500)
    assert queue.changes() == FlowChanges([], [])
    queue.on_removed(0, 100)
    assert queue.changes().resume == [A]


def test_a_rebalance_keeps_paused_partitions_paused() -> None:
    queue = flow(A)
    queue.on_fetched(10, 0)
    assert queue.changes().pause == [A]
    queue.on_assigned([B])  # one more
    assert queue.changes().pause == [B]
    queue.on_revoked([A, B])  # all again, as in an eager rebalance
    queue.on_assigned([A, C])
    assert queue.changes() == FlowChanges([A, C], [])


def test_what_the_program_paused_stays_paused() -> None:
    queue = flow(A, B)
    queue.paused_by_program.add(B)
    assert queue.changes().pause == [B]
    queue.on_fetched(10, 0)
    assert queue.changes().pause == [A]
    queue.on_removed(10, 0)
    assert queue.changes() == FlowChanges([], [A])
    queue.on_revoked([B])
    queue.on_assigned([B])
    assert queue.changes() == FlowChanges([B], [])
    queue.paused_by_program.clear()
    assert queue.changes().resume == [B]


def test_records_taken_before_a_revocation_are_not_current() -> None:
    queue = flow(A, B)
    before = queue.epoch
    queue.on_revoked([A])
    assert not queue.is_current(A, before)
    queue.on_assigned([A])
    assert not queue.is_current(A, before)
    assert queue.is_current(A, queue.epoch)
    assert queue.is_current(B, before)


@pytest.mark.parametrize(
    "limits", [{"low_records": 10_000}, {"low_bytes": 1 << 40}, {"high_records": 0}]
)
def test_inconsistent_watermarks_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be less"):
        FlowLimits(**limits)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60))
def test_the_queue_never_exceeds_the_high_watermark(
    steps: list[tuple[int, int]],
) -> None:
    queue = flow(A)
    for fetched, taken in steps:
        queue.changes()
        if not queue.is_full:
            queue.on_fetched(min(fetched, queue.capacity_records), 0)
        queue.on_removed(min(taken, queue.queued), 0)
    assert queue.stats.peak_records <= LIMITS.high_records
