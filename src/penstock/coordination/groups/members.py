"""What all groups check of their members: names, sessions, protocols, and static membership."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from penstock.coordination.groups.commands import Leave, LeaveReply, Sync
from penstock.coordination.groups.settings import GroupSettings
from penstock.errors import ErrorCode, Refused

MemberT = TypeVar("MemberT")
MemberT_co = TypeVar("MemberT_co", covariant=True)


class MembersOf(Protocol[MemberT_co]):
    """A group of either protocol."""

    @property
    def group_id(self) -> str: ...
    @property
    def members(self) -> Mapping[str, MemberT_co]: ...
    @property
    def static(self) -> Mapping[str, str]:
        """Member id by instance id."""


def check_group_id(group_id: str) -> None:
    """A group has a name."""
    if not group_id:
        raise Refused(ErrorCode.invalid_group_id, "group.id is empty")


def check_session_timeout(session_timeout_ms: int, settings: GroupSettings) -> None:
    """The broker limits the sessions that classic members request."""
    minimum, maximum = settings.session_timeout_min_ms, settings.session_timeout_max_ms
    if not minimum <= session_timeout_ms <= maximum:
        raise Refused(
            ErrorCode.invalid_session_timeout,
            f"session.timeout.ms must be from {minimum} to {maximum}",
        )


def check_size(count: int, count_max: int) -> None:
    """Refuse a new member of a group that is full."""
    if count >= count_max:
        raise Refused(ErrorCode.group_max_size_reached, f"the group has {count_max} members")


def check_protocol(command: Sync, protocol_type: str | None, protocol: str | None) -> None:
    """A sync names what the group chose; old clients name nothing."""
    if (command.protocol_type or protocol_type) != protocol_type or (
        command.protocol or protocol
    ) != protocol:
        raise Refused(
            ErrorCode.inconsistent_group_protocol,
            f"the group is of type {protocol_type!r} and the protocol is {protocol!r}",
        )


def known_member(group: MembersOf[MemberT], member_id: str, instance_id: str | None) -> MemberT:
    """The member with that id, or a refusal; of a static one, the last that joined."""
    if instance_id is not None:
        current_id = group.static.get(instance_id)
        if current_id is None:
            raise unknown_member(group.group_id, instance_id)
        if current_id != member_id:
            raise fenced_instance(instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group.group_id, member_id)
    return member


def unknown_member(group_id: str, member_id: str) -> Refused:
    """The member never joined, or was removed."""
    return Refused(
        ErrorCode.unknown_member_id, f"{group_id!r} has no member {member_id!r}; join again"
    )


def fenced_instance(instance_id: str) -> Refused:
    """A newer member has the same static name."""
    return Refused(
        ErrorCode.fenced_instance_id,
        f"another process has joined as group.instance.id {instance_id!r}",
    )


def leave_each(
    command: Leave, static: Mapping[str, str], leave: Callable[[str, str | None], None]
) -> LeaveReply:
    """Let every named member leave; an administrator may name a static one by that name alone."""
    rows: list[tuple[str, str | None, ErrorCode]] = []
    for member_id, instance_id in command.members:
        is_by_instance = instance_id is not None and not member_id
        named_id = static.get(instance_id or "", "") if is_by_instance else member_id
        try:
            leave(named_id, instance_id)
        except Refused as refusal:
            rows.append((member_id, instance_id, refusal.code))
        else:
            rows.append((member_id, instance_id, ErrorCode.none))
    return LeaveReply(tuple(rows))


def names_of(protocols: Iterable[tuple[str, bytes]]) -> frozenset[str]:
    """The protocols that a member supports."""
    return frozenset(name for name, _ in protocols)
