"""Joining a classic group: new members, members that rejoin, and static members that return."""

from penstock.coordination.groups.classic_rebalance import (
    ClassicDraft,
    add_member,
    choose_protocol,
    common_protocols,
    complete_join_if_all_came,
    join_reply,
    members_for_leader,
    prepare_rebalance,
    rebalance_unless_preparing,
    refuse_waiting,
)
from penstock.coordination.groups.commands import Join, JoinReply
from penstock.coordination.groups.consumer_draft import consumer_tombstones
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.group_moves import ClassicState
from penstock.coordination.groups.members import (
    check_group_id,
    check_session_timeout,
    check_size,
    known_member,
    names_of,
    unknown_member,
)
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    Group,
    GroupsState,
)
from penstock.coordination.groups.timers import PENDING, SESSION
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome
from penstock.model import Moment


def decide_join(
    state: GroupsState, command: Join, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Let a member join or rejoin. The reply comes when the rebalance completes."""
    check_group_id(command.group_id)
    check_session_timeout(command.session_timeout_ms, settings)
    known = state.groups.get(command.group_id)
    group = _group_to_join(known, command)
    draft = ClassicDraft(group, settings, now)
    if isinstance(known, ConsumerGroup):
        # It has no members: it becomes a classic group and keeps its offsets.
        draft.first = consumer_tombstones(known)
    _check_joinable(group, command, settings)
    if command.member_id:
        _join_known(draft, command)
    elif command.instance_id is not None:
        _join_static(draft, command)
    else:
        _join_new(draft, command)
    return draft.outcome()


def _group_to_join(group: Group | None, command: Join) -> ClassicGroup:
    if isinstance(group, ClassicGroup):
        return group.copy()
    assert group is None or not group.members, "see decide_bridged"
    if command.member_id:
        raise unknown_member(command.group_id, command.member_id)
    return ClassicGroup(command.group_id)


def _check_joinable(group: ClassicGroup, command: Join, settings: GroupSettings) -> None:
    if not command.protocol_type or not command.protocols:
        raise Refused(ErrorCode.inconsistent_group_protocol, "the member supports no protocol")
    member = group.members.get(command.member_id)
    has_changed = member is None or member.protocols != command.protocols
    is_consistent = command.protocol_type == group.protocol_type and (
        not has_changed or names_of(command.protocols) & common_protocols(group)
    )
    if group.state is not ClassicState.EMPTY and group.members and not is_consistent:
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            f"the group is of type {group.protocol_type!r} and its members support "
            f"{', '.join(sorted(common_protocols(group)))}",
        )
    is_known = (
        command.member_id in group.members
        or command.member_id in group.pending
        or (command.instance_id is not None and command.instance_id in group.static)
    )
    if not is_known:
        check_size(len(group.members) + len(group.pending), settings.members_max)


def _member(command: Join, member_id: str) -> ClassicMember:
    return ClassicMember(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        command.protocols,
        joining=command.caller,
        is_new=True,
    )


def _join_new(draft: ClassicDraft, command: Join) -> None:
    if not command.requires_member_id:
        _add_and_rebalance(draft, command, command.new_member_id)
        return
    draft.group.pending |= {command.new_member_id}
    draft.set_timer(PENDING, command.new_member_id, command.session_timeout_ms)
    draft.reply(command.caller, JoinReply(ErrorCode.member_id_required, command.new_member_id))


def _add_and_rebalance(draft: ClassicDraft, command: Join, member_id: str) -> None:
    group = draft.group
    if not group.members:
        group.protocol_type = command.protocol_type
    add_member(draft, _member(command, member_id))
    rebalance_unless_preparing(draft)
    complete_join_if_all_came(draft)


def _join_static(draft: ClassicDraft, command: Join) -> None:
    """A static member without an id is new, or it is its own successor after a restart."""
    assert command.instance_id is not None
    old_id = draft.group.static.get(command.instance_id)
    if old_id is None:
        _add_and_rebalance(draft, command, command.new_member_id)
    else:
        _replace_static(draft, command, old_id)


def _replace_static(draft: ClassicDraft, command: Join, old_id: str) -> None:
    """The old incarnation is fenced. A stable group goes on without a rebalance."""
    group = draft.group
    old, was_leader = group.members[old_id], group.leader == old_id
    refuse_waiting(draft, old, ErrorCode.fenced_instance_id)
    member = _member(command, command.new_member_id)._replace(
        assignment=old.assignment, is_new=False
    )
    group.members = {
        member.member_id if member_id == old_id else member_id: (
            member if member_id == old_id else other
        )
        for member_id, other in group.members.items()
    }
    group.static[member.instance_id or ""] = member.member_id
    if was_leader:
        group.leader = member.member_id
    if old_id in group.unsynced:
        group.unsynced = group.unsynced - {old_id} | {member.member_id}
    draft.set_timer(SESSION, old_id, None)
    draft.renew_session(member)
    draft.record("member {} replaces {}: both are {}", member.member_id, old_id, member.instance_id)
    if group.state is ClassicState.STABLE and choose_protocol(group) == group.protocol:
        _keep_generation(draft, member, old_id if was_leader else None, command.can_skip_assignment)
    elif group.state is ClassicState.PREPARING:
        complete_join_if_all_came(draft)
    else:
        prepare_rebalance(draft)


def _keep_generation(
    draft: ClassicDraft, member: ClassicMember, led_as: str | None, can_skip_assignment: bool
) -> None:
    """A leader that returns must not assign again: skip that, or do not let it know it leads."""
    group = draft.group
    reply = join_reply(group, member)
    if led_as is not None and can_skip_assignment:
        reply = reply._replace(skip_assignment=True, members=members_for_leader(group))
    elif led_as is not None:
        reply = reply._replace(leader=led_as, members=())
    draft.reply(member.joining, reply)
    group.members[member.member_id] = member._replace(joining=None)
    draft.is_stored = True


def _join_known(draft: ClassicDraft, command: Join) -> None:
    group = draft.group
    if command.member_id in group.pending and command.instance_id is None:
        _add_and_rebalance(draft, command, command.member_id)
        return
    member = known_member(group, command.member_id, command.instance_id)
    changed = member.protocols != command.protocols
    if group.state is ClassicState.PREPARING:
        _rejoin(draft, member, command)
    elif group.state is ClassicState.COMPLETING and not changed:
        # The member missed the reply to its join: it gets the same again.
        _reply_again(draft, member, command)
    elif group.state is ClassicState.STABLE and not changed and member.member_id != group.leader:
        _reply_again(draft, member, command)
    else:
        _rejoin(draft, member, command)


def _reply_again(draft: ClassicDraft, member: ClassicMember, command: Join) -> None:
    draft.reply(command.caller, join_reply(draft.group, member))
    draft.renew_session(member)


def _rejoin(draft: ClassicDraft, member: ClassicMember, command: Join) -> None:
    """A member joins this rebalance, or starts one."""
    group = draft.group
    if member.joining is not None:
        # The client sent another join on another connection; only the last one gets a reply.
        refusal = Refused(ErrorCode.rebalance_in_progress, "a later join replaced this one")
        draft.reply(member.joining, refusal)
    group.members[member.member_id] = member._replace(
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=command.protocols,
        client_id=command.client_id,
        client_host=command.client_host,
        joining=command.caller,
    )
    draft.renew_session(group.members[member.member_id])
    rebalance_unless_preparing(draft)
    complete_join_if_all_came(draft)
