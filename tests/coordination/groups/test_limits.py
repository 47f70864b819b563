"""The limits of groups, and what happens there."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.coordination.groups import GroupMachine, GroupSettings
from penstock.coordination.groups.codec import NO_TOPIC_ID, read_events, write_offset_key
from penstock.coordination.groups.commands import CommitOffsets, CommitReply, OffsetToCommit
from penstock.coordination.groups.consumer_draft import waiting_interval_ms
from penstock.coordination.groups.state import GroupsState
from penstock.errors import ErrorCode
from penstock.machine import CallerId, JournalRecord, TransactionMark
from penstock.model import Millis, Moment, ProducerEpoch, ProducerId
from tests.support.settings import default_settings


@pytest.fixture
def small(scenario: Any) -> Callable[[str], str]:
    """A scenario with at most two members in a group."""
    small: Any = type(scenario)(
        default_settings(GroupSettings, members_max=2, consumer_members_max=2)
    )
    said: Callable[[str], str] = small.step
    return said


def test_a_full_group_refuses_members_and_counts_pending_ids(
    small: Callable[[str], str],
) -> None:
    small("a joins g old=1")
    assert "member_id_required" in small("b joins g")
    assert small("c joins g") == "c: group_max_size_reached"
    assert small("b joins g") == "nothing"  # it waits for the rebalance: it had its id before


def test_a_full_consumer_group_refuses_members(small: Callable[[str], str]) -> None:
    small("topics are t=1")
    small("a consumes g topics=t")
    small("b consumes g topics=t")
    assert small("c consumes g topics=t") == "c: group_max_size_reached"
    assert small("a consumes g").startswith("a: epoch=2")


def test_metadata_that_is_too_long_refuses_only_its_own_offset() -> None:
    machine = GroupMachine(default_settings(GroupSettings, offset_metadata_bytes_max=4))
    offsets = tuple(
        OffsetToCommit("t", partition, 1, -1, "x" * partition, NO_TOPIC_ID) for partition in (4, 5)
    )
    command = CommitOffsets(CallerId(1), "g", -1, "", None, offsets)
    outcome = machine.decide(GroupsState(), command, Moment(Millis(1), Millis(1)))
    assert outcome.replies[0].body == CommitReply(
        (ErrorCode.none, ErrorCode.offset_metadata_too_large)
    )
    assert len(outcome.events) == 1


def test_replaying_a_batch_gives_the_same_state_as_replaying_its_records() -> None:
    machine = GroupMachine(default_settings(GroupSettings))
    mark = TransactionMark(ProducerId(1), ProducerEpoch(0))
    first: list[tuple[bytes | None, bytes | None]] = [
        (write_offset_key("g", "t", partition), b"v%d" % partition) for partition in range(3)
    ]
    tombstones: list[tuple[bytes | None, bytes | None]] = [(key, None) for key, _ in first]
    back: list[tuple[bytes | None, bytes | None]] = [(first[0][0], b"again"), (None, b"stray")]
    batched, singly = machine.fresh(), machine.fresh()
    for batch, batch_mark in (
        (first, None),
        (tombstones, None),
        (back, None),
        (first, mark),
        (back, None),
    ):
        machine.replay_batch(batched, batch, batch_mark)
        for key, value in batch:
            if key is not None:
                for event in read_events(JournalRecord(key, value), batch_mark):
                    machine.apply(singly, event)
    assert batched.offsets == singly.offsets == {"g": {("t", 0): b"again"}}
    assert batched.pending == singly.pending
    assert batched.unstable == singly.unstable


def test_the_interval_of_a_waiting_member_grows_with_the_group(scenario: Any) -> None:
    """But never beyond the group's own interval."""
    assert [waiting_interval_ms(members) for members in (2, 50, 200)] == [500, 500, 2_000]
    scenario.step("topics are t=1000")
    for number in range(500):
        scenario.step(f"m{number} consumes g topics=t")
    # It waits, but 5 010 ms would be later than the group's 5 s.
    assert scenario.step("late consumes g topics=t").splitlines()[0].endswith("has nothing")
    assert "again in" not in scenario.step("late consumes g")
