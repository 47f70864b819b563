"""Life in a classic group after the join: sync, heartbeat, leave."""

from penstock.coordination.groups.classic_rebalance import (
    SESSION,
    SYNC,
    ClassicDraft,
    drop_pending,
    rebalance_after_loss,
    remove_member,
    spread_assignment,
    synced_answer,
)
from penstock.coordination.groups.commands import Done, Heartbeat, Leave, LeaveReply, Sync
from penstock.coordination.groups.decide_classic_join import (
    check_group_id,
    known_member,
    unknown_member,
)
from penstock.coordination.groups.events import Event, TimerSet
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    GroupsState,
)
from penstock.coordination.groups.timers import TimerKey
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Millis, Moment


def classic_group(state: GroupsState, group_id: str, member_id: str) -> ClassicGroup:
    """The group a member speaks of."""
    check_group_id(group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        raise unknown_member(group_id, member_id)
    return group


def member_of_generation(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMember:
    """A member that knows the current generation, or a refusal."""
    member = known_member(group, member_id, instance_id)
    if generation != group.generation:
        raise Refused(
            ErrorCode.illegal_generation, f"the group is at generation {group.generation}"
        )
    return member


def decide_sync(
    state: GroupsState, command: Sync, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """A member asks for its assignment; the leader's question carries everybody's."""
    group = classic_group(state, command.group_id, command.member_id)
    member = member_of_generation(group, command.member_id, command.instance_id, command.generation)
    if (command.protocol_type or group.protocol_type) != group.protocol_type or (
        command.protocol or group.protocol
    ) != group.protocol:
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            f"the group is of type {group.protocol_type!r} and chose {group.protocol!r}",
        )
    if group.state is ClassicState.PREPARING:
        raise Refused(ErrorCode.rebalance_in_progress, "the group rebalances; join again")
    draft = ClassicDraft(group.copy(), settings, now)
    draft.group.unsynced -= {member.member_id}
    if group.state is ClassicState.STABLE:
        draft.reply(command.caller, synced_answer(group, member))
        draft.renew_session(member)
    else:
        draft.group.members[member.member_id] = member._replace(syncing=command.caller)
        if member.syncing is not None:
            again = Refused(ErrorCode.rebalance_in_progress, "asked again since")
            draft.reply(member.syncing, again)
        if member.member_id == group.leader:
            _take_assignment(draft, command)
    if not draft.group.unsynced:
        draft.set_timer(SYNC, "", None)
    return draft.outcome()


def _take_assignment(draft: ClassicDraft, command: Sync) -> None:
    members = draft.group.members
    for member_id, member in tuple(members.items()):
        members[member_id] = member._replace(assignment=command.assignments.get(member_id, b""))
    spread_assignment(draft)


def decide_heartbeat(
    state: GroupsState, command: Heartbeat, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """A member is alive; it is told when it must join again."""
    group = classic_group(state, command.group_id, command.member_id)
    member = member_of_generation(group, command.member_id, command.instance_id, command.generation)
    key = TimerKey(SESSION, group.group_id, member.member_id)
    renewed = TimerSet(key, Millis(now.steady + member.session_timeout_ms))
    body: object = Done()
    if group.state is ClassicState.PREPARING:
        body = Refused(ErrorCode.rebalance_in_progress, "the group rebalances; join again")
    return Outcome(notes=(renewed,), replies=(Reply(command.caller, body),))


def decide_leave(
    state: GroupsState, command: Leave, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Members go: each is answered for itself, and the rest rebalance once."""
    check_group_id(command.group_id)
    known = state.groups.get(command.group_id)
    if not isinstance(known, ClassicGroup):
        nobody = ErrorCode.unknown_member_id
        left = LeaveReply(tuple((member, static, nobody) for member, static in command.members))
        return Outcome(replies=(Reply(command.caller, left),))
    draft = ClassicDraft(known.copy(), settings, now)
    codes = [_let_go(draft, member_id, static) for member_id, static in command.members]
    if ErrorCode.none in codes:
        rebalance_after_loss(draft)
    draft.reply(
        command.caller,
        LeaveReply(tuple((*who, code) for who, code in zip(command.members, codes, strict=True))),
    )
    return draft.outcome()


def _let_go(draft: ClassicDraft, member_id: str, instance_id: str | None) -> ErrorCode:
    group = draft.group
    if instance_id is not None and not member_id:
        # An administrator removes a static member by its name alone.
        member_id = group.static.get(instance_id, "")
    if member_id in group.pending:
        drop_pending(draft, member_id)
        return ErrorCode.none
    try:
        known_member(group, member_id, instance_id)
    except Refused as refusal:
        return refusal.code
    remove_member(draft, member_id, ErrorCode.unknown_member_id)
    return ErrorCode.none
