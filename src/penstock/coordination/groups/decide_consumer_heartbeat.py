"""The heartbeat of the consumer protocol (KIP-848): join, stay, change, reconcile and leave.

A heartbeat that changes nothing costs a look-up and a timer.
"""

from typing import Final

from penstock.coordination.groups.codec_consumer import (
    MemberState,
    StoredCurrent,
    StoredSubscription,
)
from penstock.coordination.groups.commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from penstock.coordination.groups.consumer_draft import (
    ConsumerDraft,
    advance,
    assign,
    bump_epoch,
    leave_temporarily,
    refresh_topics,
    subscribe,
    succeed,
    waiting_interval_ms,
)
from penstock.coordination.groups.events import (
    ClassicGroupSet,
    CurrentAssignmentSet,
    Event,
    timer_set,
)
from penstock.coordination.groups.group_moves import CLASSIC_MOVES, ClassicState
from penstock.coordination.groups.members import check_size, fenced_instance, unknown_member
from penstock.coordination.groups.protocol_switch import remove_or_downgrade, upgrade
from penstock.coordination.groups.removal_step import LEFT
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    JOINING,
    LEFT_TEMPORARILY,
    ClassicGroup,
    ConsumerGroup,
    ConsumerMember,
    Group,
    GroupsState,
    without_epochs,
)
from penstock.coordination.groups.subscriptions import check_regex
from penstock.coordination.groups.timers import FETCH, REJOIN, SESSION
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Moment

JOINS: Final = 0  # as a member epoch
LEAVES: Final = -1
UNCHANGED_MS: Final = -1  # as a rebalance time-out


def decide_consumer_heartbeat(
    state: GroupsState, command: ConsumerHeartbeat, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Join, stay, change, reconcile or leave."""
    group = state.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup):
        member = group.members.get(command.member_id)
        if member is not None and _is_unchanged(group, member, command):
            return _unchanged_reply(command, now)
    _check_request(command, settings)
    if command.member_epoch in (LEAVES, LEFT_TEMPORARILY):
        return _leave(group, command, settings, now)
    draft = _draft(group, command, settings, now)
    _admit(draft, command)
    known = draft.group.members.get(command.member_id)
    subscription = _subscription_of(command, None if known is None else known.subscription)
    if known is not None and known.subscription.classic is not None:
        # The member uses the consumer protocol from now on: its classic deadlines are void.
        draft.set_timer(REJOIN, command.member_id, None)
        draft.set_timer(FETCH, command.member_id, None)
    is_due = subscribe(draft, command.member_id, subscription)
    is_due = refresh_topics(draft, command.topics, is_due=is_due) or is_due
    if is_due or _is_rebalancing(group):
        bump_epoch(draft, command.topics)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, command.topics)
    return draft.outcome(Reply(command.caller, _advance_member(draft, command)))


def _is_unchanged(group: ConsumerGroup, member: ConsumerMember, command: ConsumerHeartbeat) -> bool:
    """Whether neither the member nor the group has anything new."""
    return (
        command.member_epoch == member.current.member_epoch == group.target_epoch == group.epoch
        and member.current.state is MemberState.STABLE
        and member.subscription.classic is None
        and group.topics.version == command.topics.version
        and command.topic_names is None
        and command.topic_regex is None
        and command.rebalance_timeout_ms == UNCHANGED_MS
        and command.server_assignor is None
        and command.rack_id is None
    )


def _unchanged_reply(command: ConsumerHeartbeat, now: Moment) -> Outcome[Event]:
    session = timer_set(
        SESSION, command.group_id, command.member_id, now, command.session_timeout_ms
    )
    body = ConsumerHeartbeatReply(
        command.member_id, command.member_epoch, command.heartbeat_interval_ms, None
    )
    return Outcome(notes=(session,), replies=(Reply(command.caller, body),))


def _subscription_of(
    command: ConsumerHeartbeat, known: StoredSubscription | None
) -> StoredSubscription:
    """What the member says now, over what it said before."""
    names, regex = command.topic_names, command.topic_regex
    assignor, rack_id = command.server_assignor, command.rack_id
    timeout_ms = command.rebalance_timeout_ms
    if known is not None:
        names = known.topic_names if names is None else names
        regex = known.topic_regex if regex is None else regex
        assignor = known.server_assignor if assignor is None else assignor
        rack_id = known.rack_id if rack_id is None else rack_id
        timeout_ms = known.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms
    return StoredSubscription(
        command.instance_id if known is None else known.instance_id,
        rack_id,
        command.client_id,
        command.client_host,
        tuple(sorted(set(names or ()))),
        regex or None,
        timeout_ms,
        assignor,
        None,
    )


def _is_rebalancing(group: Group | None) -> bool:
    """A classic group that changes its protocol in the middle of a rebalance still needs it."""
    return isinstance(group, ClassicGroup) and group.state is not ClassicState.STABLE


# Checks.


def _check_request(command: ConsumerHeartbeat, settings: GroupSettings) -> None:
    if not command.group_id:
        raise _invalid("GroupId is empty")
    if not command.member_id:
        raise _invalid("MemberId is empty")
    if command.instance_id == "" or command.rack_id == "":
        raise _invalid("InstanceId and RackId may be absent but not empty")
    if command.member_epoch < LEFT_TEMPORARILY:
        raise _invalid(f"MemberEpoch is {command.member_epoch}")
    if command.member_epoch == LEFT_TEMPORARILY and command.instance_id is None:
        raise _invalid("only a static member (group.instance.id) leaves temporarily")
    if command.member_epoch == JOINS:
        _check_joining(command)
    if command.topic_regex:
        check_regex(command.topic_regex)
    if command.server_assignor is not None and command.server_assignor not in settings.assignors:
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"{command.server_assignor!r} is not one of {', '.join(settings.assignors)}",
        )


def _check_joining(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == UNCHANGED_MS:
        raise _invalid("RebalanceTimeoutMs must be given when joining")
    if command.owned is None or command.owned:
        raise _invalid("TopicPartitions must be empty when joining")
    if command.topic_names is None and command.topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be given when joining")


def _invalid(reason: str) -> Refused:
    return Refused(ErrorCode.invalid_request, reason)


def _draft(
    group: Group | None, command: ConsumerHeartbeat, settings: GroupSettings, now: Moment
) -> ConsumerDraft:
    if isinstance(group, ConsumerGroup):
        return ConsumerDraft(group, settings, now)
    if command.member_epoch == JOINS and group is not None and group.members:
        return upgrade(group, command.topics, settings, now)
    if command.member_epoch != JOINS:
        raise Refused(
            ErrorCode.group_id_not_found,
            f"{command.group_id!r} is not a group of the consumer protocol",
        )
    draft = ConsumerDraft(ConsumerGroup(command.group_id), settings, now)
    if group is not None and group.generation > 0:
        # It has no members: it becomes a group of the consumer protocol and keeps its offsets.
        CLASSIC_MOVES.check(group.state, ClassicState.DEAD)
        draft.events.append(ClassicGroupSet(command.group_id, None))
    return draft


def _admit(draft: ConsumerDraft, command: ConsumerHeartbeat) -> None:
    """Refuse a member that may not send this, and prepare for one that joins."""
    known = draft.group.members.get(command.member_id)
    if command.instance_id is not None:
        successor_of = _check_static(draft.group, command)
        if successor_of is not None:
            succeed(draft, successor_of, command.member_id)
            return
    if command.member_epoch != JOINS:
        if known is None:
            raise unknown_member(command.group_id, command.member_id)
        _check_epoch(known, command)
    elif known is not None:
        # It joins again under the same id, and says that it owns nothing.
        draft.emit(CurrentAssignmentSet(draft.group_id, command.member_id, JOINING))
    else:
        check_size(len(draft.group.members), draft.settings.consumer_members_max)


def _check_static(group: ConsumerGroup, command: ConsumerHeartbeat) -> ConsumerMember | None:
    """The member that a joining one replaces, if any."""
    assert command.instance_id is not None
    current_id = group.static.get(command.instance_id)
    if current_id == command.member_id:
        return None
    if command.member_epoch != JOINS:
        if current_id is None:
            raise unknown_member(command.group_id, command.member_id)
        raise fenced_instance(command.instance_id)
    if current_id is None:
        return None
    member = group.members[current_id]
    is_classic = member.subscription.classic is not None
    if member.current.member_epoch != LEFT_TEMPORARILY and not is_classic:
        raise Refused(
            ErrorCode.unreleased_instance_id,
            f"group.instance.id {command.instance_id!r} is in use by another member",
        )
    return member


def _check_epoch(member: ConsumerMember, command: ConsumerHeartbeat) -> None:
    current = member.current
    if command.member_epoch == current.member_epoch:
        return
    if command.member_epoch == current.previous_member_epoch and _owns_at_most(command, current):
        return  # the reply with the new epoch was lost
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"the member is at epoch {current.member_epoch}; join again with epoch 0",
    )


def _owns_at_most(command: ConsumerHeartbeat, current: StoredCurrent) -> bool:
    """Whether the member owns no more than it was assigned."""
    return command.owned is not None and all(
        partition in current.assigned.get(topic_id, {})
        for topic_id, partitions in command.owned.items()
        for partition in partitions
    )


# What follows.


def _advance_member(draft: ConsumerDraft, command: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
    """Take the member a step towards its target, and reply where it is."""
    before, current = advance(draft, command.member_id, command.owned)
    draft.set_timer(SESSION, command.member_id, command.session_timeout_ms)
    interval_ms = command.heartbeat_interval_ms
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        interval_ms = min(interval_ms, waiting_interval_ms(len(draft.group.members)))
    assigned = without_epochs(current.assigned)
    must_include = _is_full(command) or without_epochs(before.assigned) != assigned
    return ConsumerHeartbeatReply(
        command.member_id, current.member_epoch, interval_ms, assigned if must_include else None
    )


def _is_full(command: ConsumerHeartbeat) -> bool:
    """A full request (the first, or one after an error) gets a full reply."""
    return command.member_epoch == JOINS or (
        command.rebalance_timeout_ms != UNCHANGED_MS
        and command.owned is not None
        and (command.topic_names is not None or command.topic_regex is not None)
    )


def _leave(
    group: Group | None, command: ConsumerHeartbeat, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    if not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.group_id_not_found, f"there is no group {command.group_id!r}")
    member_id = command.member_id
    if command.instance_id is not None:
        member_id = group.static.get(command.instance_id, "")
        if member_id and member_id != command.member_id:
            raise fenced_instance(command.instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(command.group_id, command.member_id)
    reply = Reply(command.caller, ConsumerHeartbeatReply(member_id, command.member_epoch, 0, None))
    if command.member_epoch != LEFT_TEMPORARILY:
        return remove_or_downgrade(group, [member_id], LEFT, settings, now, reply)
    draft = ConsumerDraft(group, settings, now)
    leave_temporarily(draft, member, command.session_timeout_ms)
    return draft.outcome(reply)
