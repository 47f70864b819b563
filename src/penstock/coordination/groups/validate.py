"""The invariants of a group coordinator, for tests and simulations."""

from collections import Counter
from typing import TYPE_CHECKING

from penstock.coordination.groups.classic_rebalance import common_protocols
from penstock.coordination.groups.codec_consumer import MemberState
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.state import (
    LEFT_TEMPORARILY,
    ClassicGroup,
    ConsumerGroup,
    GroupsState,
    PartitionKey,
)
from penstock.coordination.groups.timers import SESSION, TimerKey

if TYPE_CHECKING:
    from uuid import UUID


def validate(state: GroupsState) -> None:
    """Assert what must be true after each command, tick, marker, and after loading."""
    assert all(state.offsets.values()), "a group without offsets has no entry"
    _validate_pending(state)
    for group_id, group in state.groups.items():
        assert group.group_id == group_id
        if isinstance(group, ClassicGroup):
            _validate_classic(group)
        else:
            _validate_consumer(group)
        if state.has_started_sessions:
            for member_id in group.members:
                deadline = state.timers.at(TimerKey(SESSION, group_id, member_id))
                assert deadline is not None, f"the session of {member_id} never ends"


def _validate_pending(state: GroupsState) -> None:
    counts: dict[str, Counter[PartitionKey]] = {}
    for pending in state.pending.values():
        for group_id, partition in pending:
            counts.setdefault(group_id, Counter())[partition] += 1
    assert counts == state.unstable, "unstable counts the transactions of each partition"


def _validate_classic(group: ClassicGroup) -> None:
    members, state = group.members, group.state
    assert all(member_id == member.member_id for member_id, member in members.items())
    assert group.static == {
        member.instance_id: member_id
        for member_id, member in members.items()
        if member.instance_id is not None
    }
    assert not group.pending & members.keys(), "an id is given out or in use"
    assert group.unsynced <= members.keys()
    assert group.leader is None or group.leader in members
    assert state is not ClassicState.DEAD, "a deleted group has no entry"
    assert state is not ClassicState.EMPTY or not members
    assert state is ClassicState.PREPARING or not group.is_delayed
    if state in (ClassicState.COMPLETING, ClassicState.STABLE):
        assert members
        assert group.protocol in common_protocols(group)
        assert state is ClassicState.STABLE or group.leader is not None
    for member in members.values():
        assert member.joining is None or state is ClassicState.PREPARING, "nothing to join"
        assert member.syncing is None or state is ClassicState.COMPLETING, "nothing to sync"
        assert member.syncing is None or member.member_id not in group.unsynced


def _validate_consumer(group: ConsumerGroup) -> None:
    assert all(member_id == member.member_id for member_id, member in group.members.items())
    assert group.static == {
        member.subscription.instance_id: member_id
        for member_id, member in group.members.items()
        if member.subscription.instance_id is not None
    }
    assert group.target_epoch <= group.epoch
    assert group.targets.keys() <= group.members.keys()
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, member in group.members.items():
        current = member.current
        assert current.member_epoch == LEFT_TEMPORARILY or (
            0 <= current.member_epoch <= group.epoch
        )
        is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS
        assert is_revoking == any(current.pending_revocation.values())
        for owned in (current.assigned, current.pending_revocation):
            for topic_id, partitions in owned.items():
                for partition in partitions:
                    assert (topic_id, partition) not in owners, "a partition has two owners"
                    owners[topic_id, partition] = member_id
    assert owners == group.owners
    used = {member.subscription.topic_regex for member in group.members.values()}
    assert group.regexes.keys() <= used
