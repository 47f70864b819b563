"""Joining a classic group: new members, members that come again, and static members that return."""

from penstock.coordination.groups.classic_rebalance import (
    PENDING,
    SESSION,
    ClassicDraft,
    add_member,
    choose_protocol,
    common_protocols,
    complete_join_if_all_came,
    joined_answer,
    members_for_leader,
    prepare_rebalance,
    rebalance_if_settled,
    refuse_waiting,
)
from penstock.coordination.groups.commands import Join, JoinReply
from penstock.coordination.groups.consumer_draft import consumer_tombstones
from penstock.coordination.groups.events import Event
from penstock.coordination.groups.settings import GroupSettings
from penstock.coordination.groups.state import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    ConsumerGroup,
    Group,
    GroupsState,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome
from penstock.model import Moment


def decide_join(
    state: GroupsState, command: Join, settings: GroupSettings, now: Moment
) -> Outcome[Event]:
    """Take a member in, or back. The answer comes when the rebalance completes."""
    check_group_id(command.group_id)
    check_session_timeout(command.session_timeout_ms, settings)
    known = state.groups.get(command.group_id)
    group = _group_to_join(known, command)
    draft = ClassicDraft(group, settings, now)
    if isinstance(known, ConsumerGroup):
        # It is empty: it becomes a classic group and keeps its offsets.
        draft.first = consumer_tombstones(known)
    _check_joinable(group, command, settings)
    if command.member_id:
        _join_known(draft, command)
    elif command.instance_id is not None:
        _join_static(draft, command)
    else:
        _join_new(draft, command)
    return draft.outcome()


def check_session_timeout(session_timeout_ms: int, settings: GroupSettings) -> None:
    """The broker sets limits to the sessions that classic members ask for."""
    least, most = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not least <= session_timeout_ms <= most:
        raise Refused(
            ErrorCode.invalid_session_timeout,
            f"session.timeout.ms must be from {least} to {most}",
        )


def check_group_id(group_id: str) -> None:
    """A group has a name."""
    if not group_id:
        raise Refused(ErrorCode.invalid_group_id, "group.id is empty")


def _group_to_join(group: Group | None, command: Join) -> ClassicGroup:
    if isinstance(group, ClassicGroup):
        return group.copy()
    assert group is None or not group.members, "members of a consumer group are joined elsewhere"
    if command.member_id:
        raise unknown_member(command.group_id, command.member_id)
    return ClassicGroup(command.group_id)


def unknown_member(group_id: str, member_id: str) -> Refused:
    """The member was never here, or its session ended."""
    return Refused(
        ErrorCode.unknown_member_id, f"{group_id!r} has no member {member_id!r}; join anew"
    )


def _check_joinable(group: ClassicGroup, command: Join, settings: GroupSettings) -> None:
    if not command.protocol_type or not command.protocols:
        raise Refused(ErrorCode.inconsistent_group_protocol, "no protocol is offered")
    member = group.members.get(command.member_id)
    offers_anew = member is None or member.protocols != command.protocols
    if group.state is not ClassicState.EMPTY and group.members:
        others = frozenset(name for name, _ in command.protocols)
        if command.protocol_type != group.protocol_type or (
            offers_anew and not others & common_protocols(group)
        ):
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
    if not is_known and len(group.members) + len(group.pending) >= settings.members_max:
        raise Refused(
            ErrorCode.group_max_size_reached, f"the group has {settings.members_max} members"
        )


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
    rebalance_if_settled(draft)
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
        member.member_id if known == old_id else known: member if known == old_id else kept
        for known, kept in group.members.items()
    }
    group.static[member.instance_id or ""] = member.member_id
    if was_leader:
        group.leader = member.member_id
    if old_id in group.unsynced:
        group.unsynced = group.unsynced - {old_id} | {member.member_id}
    draft.set_timer(SESSION, old_id, None)
    draft.renew_session(member)
    if group.state is ClassicState.STABLE and choose_protocol(group) == group.protocol:
        _welcome_back(draft, member, old_id if was_leader else None, command.can_skip_assignment)
    elif group.state is ClassicState.PREPARING:
        complete_join_if_all_came(draft)
    else:
        prepare_rebalance(draft)


def _welcome_back(
    draft: ClassicDraft, member: ClassicMember, led_as: str | None, can_skip_assignment: bool
) -> None:
    """A leader that returns must not assign again: told to skip that, or not that it leads."""
    group = draft.group
    answer = joined_answer(group, member)
    if led_as is not None and can_skip_assignment:
        answer = answer._replace(skip_assignment=True, members=members_for_leader(group))
    elif led_as is not None:
        answer = answer._replace(leader=led_as, members=())
    draft.reply(member.joining, answer)
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
        # The member missed the answer to its join: it gets the same again.
        _answer_again(draft, member, command)
    elif group.state is ClassicState.STABLE and not changed and member.member_id != group.leader:
        _answer_again(draft, member, command)
    else:
        _rejoin(draft, member, command)


def _answer_again(draft: ClassicDraft, member: ClassicMember, command: Join) -> None:
    draft.reply(command.caller, joined_answer(draft.group, member))
    draft.renew_session(member)


def _rejoin(draft: ClassicDraft, member: ClassicMember, command: Join) -> None:
    """A member comes to this rebalance, or starts one."""
    group = draft.group
    if member.joining is not None:
        # The client asked again on another connection; only the last question gets an answer.
        draft.reply(member.joining, Refused(ErrorCode.rebalance_in_progress, "asked again since"))
    group.members[member.member_id] = member._replace(
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=command.protocols,
        client_id=command.client_id,
        client_host=command.client_host,
        joining=command.caller,
    )
    draft.renew_session(group.members[member.member_id])
    rebalance_if_settled(draft)
    complete_join_if_all_came(draft)


def known_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ClassicMember:
    """The member of that id, or a refusal; a static one must be the last that came as it."""
    if instance_id is not None:
        current_id = group.static.get(instance_id)
        if current_id is None:
            raise unknown_member(group.group_id, instance_id)
        if current_id != member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"another process has joined as group.instance.id {instance_id!r}",
            )
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member
