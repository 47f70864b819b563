"""How each event changes the state of groups. Nothing here can fail or decides.

Replay may see only the last value of each key, so an event for a member of an unknown group creates
the group, and a tombstone of something unknown does nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.coordination.groups.codec import read_offset_key
from penstock.coordination.groups.codec_classic import StoredGroup
from penstock.coordination.groups.codec_consumer import StoredCurrent
from penstock.coordination.groups.events import (
    ClassicGroupReplaced,
    ClassicGroupSet,
    CurrentAssignmentSet,
    Event,
    GroupEpochSet,
    OffsetSet,
    PendingOffsetSet,
    RegexSet,
    SessionsStarted,
    SubscriptionSet,
    TargetAssignmentSet,
    TargetEpochSet,
    TimersAdvanced,
    TimerSet,
    TopicsChecked,
    TransactionEnded,
)
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    JOINING,
    NO_SUBSCRIPTION,
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
    PartitionKey,
    PendingOffset,
)
from penstock.coordination.groups.subscriptions import subscribed_topics


def apply_event(state: GroupsState, event: Event) -> None:
    """Change the state by one event or note."""
    _APPLY[type(event)](state, event)


# Offsets


def _apply_offset(state: GroupsState, event: OffsetSet) -> None:
    group_id, topic, partition, value = event
    if group_id in state.unstable:
        _supersede(state, group_id, (topic, partition))
    offsets = state.offsets.get(group_id)
    if value is not None:
        if offsets is None:
            offsets = state.offsets[group_id] = {}
        offsets[topic, partition] = value
    elif offsets is not None:
        offsets.pop((topic, partition), None)
        if not offsets:
            del state.offsets[group_id]
            state.replayed.clear()  # it may refer to what was deleted


def replay_target(state: GroupsState, key: bytes) -> tuple[dict[PartitionKey, bytes], str]:
    """Where commits under such keys go: decoded once for all partitions of a topic."""
    group_id, topic, _ = read_offset_key(key)
    target = state.replayed[key[:-4]] = (state.offsets.setdefault(group_id, {}), topic)
    return target


def _supersede(state: GroupsState, group_id: str, partition: PartitionKey) -> None:
    for offsets in state.pending.values():
        pending = offsets.get((group_id, partition))
        if pending is not None:
            offsets[group_id, partition] = pending._replace(is_superseded=True)


def _apply_pending(state: GroupsState, event: PendingOffsetSet) -> None:
    partition = (event.topic, event.partition)
    offsets = state.pending.setdefault(event.producer_id, {})
    if (event.group_id, partition) not in offsets:
        unstable = state.unstable.setdefault(event.group_id, {})
        unstable[partition] = unstable.get(partition, 0) + 1
    offsets[event.group_id, partition] = PendingOffset(event.value)


def _apply_transaction_end(state: GroupsState, event: TransactionEnded) -> None:
    for (group_id, partition), pending in state.pending.pop(event.producer_id, {}).items():
        unstable = state.unstable[group_id]
        unstable[partition] -= 1
        if not unstable[partition]:
            del unstable[partition]
        if not unstable:
            del state.unstable[group_id]
        if event.is_commit and not pending.is_superseded:
            state.offsets.setdefault(group_id, {})[partition] = pending.value


# Classic groups


def _apply_classic(state: GroupsState, event: ClassicGroupSet) -> None:
    if event.stored is not None:
        state.groups[event.group_id] = restore_classic(event.group_id, event.stored)
    elif isinstance(state.groups.get(event.group_id), ClassicGroup):
        del state.groups[event.group_id]


def restore_classic(group_id: str, stored: StoredGroup) -> ClassicGroup:
    """The group of a record; with members it is stable, and their sessions start again."""
    group = ClassicGroup(group_id)
    group.state = ClassicState.STABLE if stored.members else ClassicState.EMPTY
    group.state_since = stored.state_since
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol = stored.protocol
    group.leader = stored.leader
    for member in stored.members:
        group.members[member.member_id] = ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            ((stored.protocol or "", member.subscription),),
            member.assignment,
        )
        if member.instance_id is not None:
            group.static[member.instance_id] = member.member_id
    if stored.protocol_type == CONSUMER_PROTOCOL_TYPE:
        group.subscribed_topics = subscribed_topics(
            member.subscription for member in stored.members
        )
    return group


def _apply_replaced(state: GroupsState, note: ClassicGroupReplaced) -> None:
    if note.group is not None:
        state.groups[note.group_id] = note.group
    else:
        state.groups.pop(note.group_id, None)


# Groups of the consumer protocol


def _consumer_group(state: GroupsState, group_id: str) -> ConsumerGroup:
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        group = state.groups[group_id] = ConsumerGroup(group_id)
    return group


def _known_group(state: GroupsState, group_id: str) -> ConsumerGroup | None:
    group = state.groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _apply_group_epoch(state: GroupsState, event: GroupEpochSet) -> None:
    if event.epoch is not None:
        group = _consumer_group(state, event.group_id)
        group.epoch, group.metadata_hash = event.epoch, event.metadata_hash
    elif _known_group(state, event.group_id) is not None:
        del state.groups[event.group_id]


def _apply_subscription(state: GroupsState, event: SubscriptionSet) -> None:
    if event.subscription is not None:
        change_member(_consumer_group(state, event.group_id), event)
    elif (group := _known_group(state, event.group_id)) is not None:
        change_member(group, event)


def change_member(group: ConsumerGroup, event: SubscriptionSet) -> None:
    """A member joined, changed, or was removed."""
    known = group.members.get(event.member_id)
    instance_id = None if known is None else known.subscription.instance_id
    if instance_id is not None and group.static.get(instance_id) == event.member_id:
        del group.static[instance_id]
    if event.subscription is None:
        if known is not None:
            _release(group, known)
            del group.members[event.member_id]
        return
    current = JOINING if known is None else known.current
    group.members[event.member_id] = ConsumerMember(event.member_id, event.subscription, current)
    if event.subscription.instance_id is not None:
        group.static[event.subscription.instance_id] = event.member_id


def _apply_target_epoch(state: GroupsState, event: TargetEpochSet) -> None:
    if event.epoch is not None:
        _consumer_group(state, event.group_id).target_epoch = event.epoch
    elif (group := _known_group(state, event.group_id)) is not None:
        group.target_epoch = 0


def _apply_target(state: GroupsState, event: TargetAssignmentSet) -> None:
    if event.assignment is not None:
        _consumer_group(state, event.group_id).targets[event.member_id] = event.assignment
    elif (group := _known_group(state, event.group_id)) is not None:
        group.targets.pop(event.member_id, None)


def _apply_current(state: GroupsState, event: CurrentAssignmentSet) -> None:
    if event.current is not None:
        change_current(_consumer_group(state, event.group_id), event.member_id, event.current)
    elif (group := _known_group(state, event.group_id)) is not None:
        change_current(group, event.member_id, None)


def change_current(group: ConsumerGroup, member_id: str, current: StoredCurrent | None) -> None:
    """What a member owns changed; a partition it lost is free unless another member has it."""
    member = group.members.get(member_id)
    if member is None:
        if current is None:
            return
        member = ConsumerMember(member_id, NO_SUBSCRIPTION, JOINING)
    _release(group, member)
    group.members[member_id] = member._replace(current=current or JOINING)
    if current is None:
        return
    for owned in (current.assigned, current.pending_revocation):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                group.owners[topic_id, partition] = member_id


def _release(group: ConsumerGroup, member: ConsumerMember) -> None:
    for owned in (member.current.assigned, member.current.pending_revocation):
        for topic_id, partitions in owned.items():
            for partition in partitions:
                if group.owners.get((topic_id, partition)) == member.member_id:
                    del group.owners[topic_id, partition]


def _apply_regex(state: GroupsState, event: RegexSet) -> None:
    if event.resolved is not None:
        _consumer_group(state, event.group_id).regexes[event.regex] = event.resolved
    elif (group := _known_group(state, event.group_id)) is not None:
        group.regexes.pop(event.regex, None)


def _apply_topics_seen(state: GroupsState, note: TopicsChecked) -> None:
    if (group := _known_group(state, note.group_id)) is not None:
        group.topics = note.topics


# Time


def _apply_timer(state: GroupsState, note: TimerSet) -> None:
    state.timers.put(note.key, note.at)


def _apply_time(state: GroupsState, note: TimersAdvanced) -> None:
    state.timers.advance(note.now)


def _apply_awake(state: GroupsState, _note: SessionsStarted) -> None:
    state.has_started_sessions = True
    state.replayed.clear()


_APPLY: Final[dict[type, Callable[[GroupsState, Any], None]]] = {
    OffsetSet: _apply_offset,
    PendingOffsetSet: _apply_pending,
    TransactionEnded: _apply_transaction_end,
    ClassicGroupSet: _apply_classic,
    ClassicGroupReplaced: _apply_replaced,
    GroupEpochSet: _apply_group_epoch,
    SubscriptionSet: _apply_subscription,
    TargetEpochSet: _apply_target_epoch,
    TargetAssignmentSet: _apply_target,
    CurrentAssignmentSet: _apply_current,
    RegexSet: _apply_regex,
    TopicsChecked: _apply_topics_seen,
    TimerSet: _apply_timer,
    TimersAdvanced: _apply_time,
    SessionsStarted: _apply_awake,
}
