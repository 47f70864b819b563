"""Members of a classic group after the join: sync, heartbeat, leave."""

from penstock.coordination.groups.classic_rebalance import (
    ClassicDraft,
    distribute_assignment,
    drop_pending,
    rebalance_after_loss,
    remove_member,
    sync_reply,
)
from penstock.coordination.groups.commands import Done, Heartbeat, Leave, LeaveReply, Sync
from penstock.coordination.groups.events import Event, timer_set
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.members import (
    check_group_id,
    check_protocol,
    known_member,
    leave_each,
    unknown_member,
)
from penstock.coordination.groups.removal_step import LEFT
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import ClassicGroup, ClassicMember, GroupsState
from penstock.coordination.groups.timers import SESSION, SYNC
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import Moment


def classic_group(state: GroupsState, group_id: str, member_id: str) -> ClassicGroup:
    """The group that a member names."""
    check_group_id(group_id)
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        raise unknown_member(group_id, member_id)
    return group


def member_of_generation(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMember:
    """A member of the current generation, or a refusal."""
    member: ClassicMember = known_member(group, member_id, instance_id)
    if generation != group.generation:
        raise Refused(
            ErrorCode.illegal_generation, f"the group is at generation {group.generation}"
        )
    return member


def decide_sync(
    state: GroupsState, command: Sync, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """A member requests its assignment; the leader's request carries that of all members."""
    group = classic_group(state, command.group_id, command.member_id)
    member = member_of_generation(group, command.member_id, command.instance_id, command.generation)
    check_protocol(command, group.protocol_type, group.protocol)
    if group.state is ClassicState.PREPARING:
        raise Refused(ErrorCode.rebalance_in_progress, "the group rebalances; join again")
    draft = ClassicDraft(group.copy(), settings, now)
    draft.group.unsynced -= {member.member_id}
    if group.state is ClassicState.STABLE:
        draft.reply(command.caller, sync_reply(group, member))
        draft.renew_session(member)
    else:
        draft.group.members[member.member_id] = member._replace(syncing=command.caller)
        refusal = Refused(ErrorCode.rebalance_in_progress, "a later sync replaced this one")
        draft.reply(member.syncing, refusal)
        if member.member_id == group.leader:
            _take_assignment(draft, command)
    if not draft.group.unsynced:
        draft.set_timer(SYNC, "", None)
    return draft.outcome()


def _take_assignment(draft: ClassicDraft, command: Sync) -> None:
    members = draft.group.members
    for member_id, member in tuple(members.items()):
        members[member_id] = member._replace(assignment=command.assignments.get(member_id, b""))
    distribute_assignment(draft)


def decide_heartbeat(state: GroupsState, command: Heartbeat, now: Moment) -> Outcome[Event]:
    """A member is alive; the reply says when it must join again."""
    group = classic_group(state, command.group_id, command.member_id)
    member = member_of_generation(group, command.member_id, command.instance_id, command.generation)
    session = timer_set(SESSION, group.group_id, member.member_id, now, member.session_timeout_ms)
    body: object = Done()
    if group.state is ClassicState.PREPARING:
        body = Refused(ErrorCode.rebalance_in_progress, "the group rebalances; join again")
    return Outcome(notes=(session,), replies=(Reply(command.caller, body),))


def decide_leave(
    state: GroupsState, command: Leave, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Members leave: each has its own result, and the rest rebalance once."""
    check_group_id(command.group_id)
    known = state.groups.get(command.group_id)
    if not isinstance(known, ClassicGroup):
        code = ErrorCode.unknown_member_id
        rows = tuple((member_id, instance_id, code) for member_id, instance_id in command.members)
        return Outcome(replies=(Reply(command.caller, LeaveReply(rows)),))
    draft = ClassicDraft(known.copy(), settings, now)
    group = draft.group

    def leave(member_id: str, instance_id: str | None) -> None:
        if member_id in group.pending:
            drop_pending(draft, member_id)
        else:
            known_member(group, member_id, instance_id)
            remove_member(draft, member_id, LEFT)

    reply = leave_each(command, group.static, leave)
    if any(code is ErrorCode.none for _, _, code in reply.members):
        rebalance_after_loss(draft)
    draft.reply(command.caller, reply)
    return draft.outcome()
