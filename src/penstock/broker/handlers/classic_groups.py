"""The classic group protocol, and what administrators ask about groups of any protocol."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from penstock.broker.handler import Answer, Answered, Context, Handler
from penstock.broker.handlers.replies import respond, when_all, when_decided
from penstock.coordination.groups.commands import (
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    ListReply,
    Sync,
)
from penstock.coordination.groups.state import ClassicGroup, ClassicState
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.classic_groups import (
    JoinAnswer,
    MemberAnswer,
    pack_heartbeat,
    pack_join_group,
    pack_sync_group,
)

JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DELETE_GROUPS: Final = 42

_MILLISECOND: Final = timedelta(milliseconds=1)
_KNOWN_ID_FROM: Final = 4  # JoinGroup: the first join only fetches a member id
_SKIP_FROM: Final = 9  # JoinGroup: a leader that returns may be told to assign nothing
_BATCH_LEAVE_FROM: Final = 3
_NOT_FOUND_FROM: Final = 6  # DescribeGroups: an unknown group is an error
# read, delete, describe, describe and alter configs: what may be done to a group
ALL_OPERATIONS: Final = 0b1101_0100_1000
NOT_ASKED: Final = -(2**31)


def join_group(context: Context, request: Any) -> Answer:
    """Become a member; answered when everybody has joined."""
    version = context.api_version
    client_id = context.client_id or ""
    instance_id = getattr(request, "group_instance_id", None)
    session_timeout = request.session_timeout
    command = Join(
        caller=_NOBODY,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=instance_id,
        new_member_id=f"{instance_id or client_id}-{uuid4()}",
        client_id=client_id,
        client_host=f"/{context.host}",
        session_timeout_ms=session_timeout // _MILLISECOND,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout", session_timeout) // _MILLISECOND,
        protocol_type=request.protocol_type,
        protocols=tuple((offer.name, bytes(offer.metadata)) for offer in request.protocols),
        requires_member_id=version >= _KNOWN_ID_FROM,
        can_skip_assignment=version >= _SKIP_FROM,
        topics=context.broker.groups.catalogue(),
    )
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: command._replace(caller=caller)
    )
    return when_decided(decided, lambda result: _joined(context, request, result))


_NOBODY: Any = None  # replaced by the caller when the command is submitted


def _joined(context: Context, request: Any, result: JoinReply | Refused) -> bytes:
    if isinstance(result, Refused):
        result = JoinReply(result.code, request.member_id)
    members = [MemberAnswer(*member) for member in result.members]
    joined = JoinAnswer(*result[:-1], members)
    return pack_join_group(context.api_version, joined, throttle_ms=context.throttle_ms)


def sync_group(context: Context, request: Any) -> Answer:
    """Ask for the assignment; answered when the leader has brought it."""
    assignments = {part.member_id: bytes(part.assignment) for part in request.assignments}
    decided = context.broker.groups.submit(
        request.group_id,
        lambda caller: Sync(
            caller,
            request.group_id,
            request.generation_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
            getattr(request, "protocol_type", None),
            getattr(request, "protocol_name", None),
            assignments,
            context.broker.groups.catalogue(),
        ),
    )

    def answer(result: Any) -> Answered:
        version, throttle_ms = context.api_version, context.throttle_ms
        if isinstance(result, Refused):
            return pack_sync_group(version, result.code, throttle_ms=throttle_ms)
        return pack_sync_group(
            version,
            ErrorCode.none,
            result.assignment,
            protocol_type=result.protocol_type,
            protocol=result.protocol,
            throttle_ms=throttle_ms,
        )

    return when_decided(decided, answer)


def heartbeat(context: Context, request: Any) -> Answer:
    """A member is alive."""
    decided = context.broker.groups.submit(
        request.group_id,
        lambda caller: Heartbeat(
            caller,
            request.group_id,
            request.generation_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
        ),
    )

    def answer(result: Any) -> Answered:
        code = result.code if isinstance(result, Refused) else ErrorCode.none
        return pack_heartbeat(context.api_version, code, throttle_ms=context.throttle_ms)

    return when_decided(decided, answer)


def leave_group(context: Context, request: Any) -> Answer:
    """Members go: one of them up to version 2, any number from 3 on."""
    is_batch = context.api_version >= _BATCH_LEAVE_FROM
    members: tuple[tuple[str, str | None], ...] = ((getattr(request, "member_id", ""), None),)
    if is_batch:
        members = tuple((member.member_id, member.group_instance_id) for member in request.members)
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: Leave(caller, request.group_id, members)
    )

    def answer(result: LeaveReply | Refused) -> Answered:
        if isinstance(result, Refused):
            return respond(context, error_code=result.code)
        if not is_batch:
            return respond(context, error_code=result.members[0][2])
        rows = [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": code}
            for member_id, instance_id, code in result.members
        ]
        return respond(context, error_code=ErrorCode.none, members=rows)

    return when_decided(decided, answer)


def describe_groups(context: Context, request: Any) -> Answer:
    """Groups of the classic protocol, with their members."""
    groups = context.broker.groups
    asked = [
        groups.submit(name, lambda caller, name=name: DescribeGroup(caller, name))  # type: ignore[misc]  # a default binds the name now
        for name in request.groups
    ]
    operations = NOT_ASKED
    if getattr(request, "include_authorized_operations", False):
        operations = ALL_OPERATIONS

    def answer(results: list[Any]) -> Answered:
        rows = [
            {**_described(context, name, result), "authorized_operations": operations}
            for name, result in zip(request.groups, results, strict=True)
        ]
        return respond(context, groups=rows)

    return when_all(asked, answer)


def _described(context: Context, group_id: str, result: Any) -> dict[str, Any]:
    if isinstance(result, ClassicGroup):
        return _described_group(result)
    code, message = ErrorCode.group_id_not_found, f"{group_id!r} is not a classic group"
    if isinstance(result, Refused):
        code, message = result.code, result.message
    if code is ErrorCode.group_id_not_found and context.api_version < _NOT_FOUND_FROM:
        code = ErrorCode.none
    return {
        "error_code": code,
        "error_message": message,
        "group_id": group_id,
        "group_state": ClassicState.DEAD.value,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def _described_group(group: ClassicGroup) -> dict[str, Any]:
    is_stable = group.state is ClassicState.STABLE
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in group.members.values()
        ],
    }


def list_groups(context: Context, request: Any) -> Answer:
    """The groups of this broker, by state and type if asked."""
    states = {name.lower() for name in getattr(request, "states_filter", ())}
    types = {name.lower() for name in getattr(request, "types_filter", ())}

    def answer(results: list[Any]) -> Answered:
        rows = [
            {
                "group_id": row.group_id,
                "protocol_type": row.protocol_type,
                "group_state": row.state,
                "group_type": row.group_type,
            }
            for listed in results
            if isinstance(listed, ListReply)
            for row in listed.groups
            if (not states or row.state.lower() in states)
            and (not types or row.group_type in types)
        ]
        refused = next((listed.code for listed in results if isinstance(listed, Refused)), None)
        return respond(context, error_code=refused or ErrorCode.none, groups=rows)

    return when_all(context.broker.groups.list_groups(), answer)


def delete_groups(context: Context, request: Any) -> Answer:
    """Forget groups that nobody is in."""
    groups = context.broker.groups
    asked = [
        groups.submit(name, lambda caller, name=name: DeleteGroup(caller, name))  # type: ignore[misc]  # a default binds the name now
        for name in request.groups_names
    ]

    def answer(results: list[Any]) -> Answered:
        rows = [
            {
                "group_id": name,
                "error_code": result.code if isinstance(result, Refused) else ErrorCode.none,
            }
            for name, result in zip(request.groups_names, results, strict=True)
        ]
        return respond(context, results=rows)

    return when_all(asked, answer)


HANDLERS = (
    Handler(JOIN_GROUP, versions=(0, 9), handle=join_group),
    Handler(HEARTBEAT, versions=(0, 4), handle=heartbeat),
    Handler(LEAVE_GROUP, versions=(0, 5), handle=leave_group),
    Handler(SYNC_GROUP, versions=(0, 5), handle=sync_group),
    Handler(DESCRIBE_GROUPS, versions=(0, 6), handle=describe_groups),
    Handler(LIST_GROUPS, versions=(0, 5), handle=list_groups),
    Handler(DELETE_GROUPS, versions=(0, 2), handle=delete_groups),
)
