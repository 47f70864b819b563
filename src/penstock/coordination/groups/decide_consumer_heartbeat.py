"""The heartbeat of the consumer protocol: is it well-formed, who is it from, and what follows."""

from penstock.coordination.groups.codec_consumer import StoredCurrent
from penstock.coordination.groups.commands import ConsumerHeartbeat, ConsumerHeartbeatReply
from penstock.coordination.groups.consumer_draft import (
    FETCH,
    REJOIN,
    ConsumerDraft,
    advance_member,
    assign,
    beat_unchanged,
    bump_epoch,
    leave_temporarily,
    refresh_topics,
    subscribe,
    subscription_of,
    succeed,
    unchanged,
)
from penstock.coordination.groups.decide_classic_join import unknown_member
from penstock.coordination.groups.events import (
    ClassicGroupSet,
    CurrentAssignmentSet,
    Event,
)
from penstock.coordination.groups.protocol_switch import remove_or_downgrade, upgrade
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    JOINING,
    LEFT_TEMPORARILY,
    ClassicGroup,
    ClassicState,
    ConsumerGroup,
    ConsumerMember,
    GroupsState,
)
from penstock.coordination.groups.subscriptions import check_regex
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Moment

JOINS = 0
LEAVES = -1


def decide_consumer_heartbeat(
    state: GroupsState, command: ConsumerHeartbeat, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Join, live, change, reconcile or leave."""
    group = state.groups.get(command.group_id)
    if isinstance(group, ConsumerGroup):
        member = group.members.get(command.member_id)
        if member is not None and unchanged(group, member, command):
            return beat_unchanged(command, now)
    _check_beat(command, settings)
    if command.member_epoch in (LEAVES, LEFT_TEMPORARILY):
        return _leave(group, command, settings, now)
    draft = _draft(group, command, settings, now)
    _admit(draft, command)
    known = draft.group.members.get(command.member_id)
    wanted = subscription_of(command, None if known is None else known.subscription)
    if known is not None and known.subscription.classic is not None:
        _end_classic_life(draft, command.member_id)
    is_due = subscribe(draft, command.member_id, wanted)
    is_due = refresh_topics(draft, command.topics, is_due=is_due) or is_due
    if is_due or _is_rebalancing(group):
        bump_epoch(draft, command.topics)
    if draft.group.epoch > draft.group.target_epoch:
        assign(draft, command.topics)
    return draft.outcome(Reply(command.caller, advance_member(draft, command)))


def _is_rebalancing(group: ClassicGroup | ConsumerGroup | None) -> bool:
    """A classic group that changes in the middle of a rebalance still needs its outcome."""
    return isinstance(group, ClassicGroup) and group.state is not ClassicState.STABLE


def _end_classic_life(draft: ConsumerDraft, member_id: str) -> None:
    """The member speaks the consumer protocol from now on: its classic deadlines are void."""
    draft.set_timer(REJOIN, member_id, None)
    draft.set_timer(FETCH, member_id, None)


def _check_beat(command: ConsumerHeartbeat, settings: GroupSettings) -> None:
    if not command.group_id:
        raise _invalid("GroupId is empty")
    if not command.member_id:
        raise _invalid("MemberId is empty")
    if command.instance_id == "" or command.rack_id == "":
        raise _invalid("InstanceId and RackId may be absent but not empty")
    if command.member_epoch < LEFT_TEMPORARILY:
        raise _invalid(f"MemberEpoch is {command.member_epoch}")
    if command.member_epoch == LEFT_TEMPORARILY and command.instance_id is None:
        raise _invalid("only a static member (group.instance.id) leaves for a while")
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
    if command.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be given when joining")
    if command.owned is None or command.owned:
        raise _invalid("TopicPartitions must be empty when joining")
    if command.topic_names is None and command.topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be given when joining")


def _invalid(what: str) -> Refused:
    return Refused(ErrorCode.invalid_request, what)


def _draft(
    group: ClassicGroup | ConsumerGroup | None,
    command: ConsumerHeartbeat,
    settings: GroupSettings,
    now: Moment,
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
        # The classic group is empty: it becomes one of the consumer protocol and keeps its offsets.
        draft.events.append(ClassicGroupSet(command.group_id, None))
    return draft


def _admit(draft: ConsumerDraft, command: ConsumerHeartbeat) -> None:
    """Refuse whoever may not speak; make room for one that joins."""
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
    elif len(draft.group.members) >= draft.settings.consumer_members_max:
        raise Refused(
            ErrorCode.group_max_size_reached,
            f"the group has {draft.settings.consumer_members_max} members",
        )


def _check_static(group: ConsumerGroup, command: ConsumerHeartbeat) -> ConsumerMember | None:
    """The member that the one who joins takes over from, if any."""
    assert command.instance_id is not None
    current_id = group.static.get(command.instance_id)
    if current_id == command.member_id:
        return None
    if command.member_epoch != JOINS:
        if current_id is None:
            raise unknown_member(command.group_id, command.member_id)
        raise Refused(
            ErrorCode.fenced_instance_id,
            f"another process has joined as group.instance.id {command.instance_id!r}",
        )
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
    if command.member_epoch == current.previous_member_epoch and _is_part(command, current):
        return  # the answer that told it the new epoch was lost
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"the member is at epoch {current.member_epoch}; join anew with epoch 0",
    )


def _is_part(command: ConsumerHeartbeat, current: StoredCurrent) -> bool:
    """Whether the member owns no more than it was given."""
    return command.owned is not None and all(
        partition in current.assigned.get(topic_id, {})
        for topic_id, partitions in command.owned.items()
        for partition in partitions
    )


def _leave(
    group: ClassicGroup | ConsumerGroup | None,
    command: ConsumerHeartbeat,
    settings: GroupSettings,
    now: Moment,
) -> Outcome[Event]:
    if not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.group_id_not_found, f"there is no group {command.group_id!r}")
    member_id = command.member_id
    if command.instance_id is not None:
        member_id = group.static.get(command.instance_id, "")
        if member_id and member_id != command.member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"another process has joined as group.instance.id {command.instance_id!r}",
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(command.group_id, command.member_id)
    reply = Reply(command.caller, ConsumerHeartbeatReply(member_id, command.member_epoch, 0, None))
    if command.member_epoch != LEFT_TEMPORARILY:
        return remove_or_downgrade(group, [member_id], settings, now, reply)
    draft = ConsumerDraft(group, settings, now)
    leave_temporarily(draft, member, command.session_timeout_ms)
    return draft.outcome(reply)
