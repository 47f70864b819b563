"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, bind

# JoinGroup.


class GroupProtocol(NamedTuple):
    """An assignment protocol that a member supports, and its metadata for it."""

    name: str
    metadata: bytes


class JoinGroupRequest(NamedTuple):
    group_id: str
    session_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: Sequence[GroupProtocol]
    rebalance_timeout_ms: int = -1  # as the session timeout
    group_instance_id: str | None = None
    reason: str | None = None


class JoinGroupMember(NamedTuple):
    """A member, as the leader learns of it."""

    member_id: str
    metadata: bytes
    group_instance_id: str | None = None


class JoinGroupResponse(NamedTuple):
    """Only the leader gets the members."""

    error_code: ErrorCode
    member_id: str = ""
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinGroupMember] = ()


def _refuse_join(request: JoinGroupRequest, refusal: Refused) -> JoinGroupResponse:
    return JoinGroupResponse(refusal.code, request.member_id)


JOIN_GROUP: Final = bind(
    Api.JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupResponse,
    refuse=_refuse_join,
    older_response=Older(
        6,
        JoinGroupResponse,
        lambda old: old,
        # no null there: clients know an empty name
        lambda new: new._replace(protocol_name=new.protocol_name or ""),
    ),
)

# SyncGroup.


class MemberAssignment(NamedTuple):
    member_id: str
    assignment: bytes


class SyncGroupRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[MemberAssignment] = ()


class SyncGroupResponse(NamedTuple):
    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


SYNC_GROUP: Final = bind(Api.SYNC_GROUP, SyncGroupRequest, SyncGroupResponse)

# Heartbeat.


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none


HEARTBEAT: Final = bind(Api.HEARTBEAT, HeartbeatRequest, HeartbeatResponse)

# LeaveGroup.


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(NamedTuple):
    group_id: str
    members: Sequence[LeavingMember]  # exactly one before version 3


class _LeaveOneMember(NamedTuple):
    group_id: str
    member_id: str


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: ErrorCode = ErrorCode.none


class LeaveGroupResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    members: Sequence[LeftMember] = ()


class _LeaveOneResponse(NamedTuple):
    error_code: ErrorCode


def _downgrade_left(new: LeaveGroupResponse) -> _LeaveOneResponse:
    """The one member's error is the response's."""
    errors = [new.error_code, *(member.error_code for member in new.members)]
    return _LeaveOneResponse(next((code for code in errors if code), ErrorCode.none))


LEAVE_GROUP: Final = bind(
    Api.LEAVE_GROUP,
    LeaveGroupRequest,
    LeaveGroupResponse,
    older_request=Older(
        2,
        _LeaveOneMember,
        lambda old: LeaveGroupRequest(old.group_id, (LeavingMember(old.member_id),)),
        lambda new: _LeaveOneMember(new.group_id, new.members[0].member_id),
    ),
    older_response=Older(
        2, _LeaveOneResponse, lambda old: LeaveGroupResponse(old.error_code), _downgrade_left
    ),
)
