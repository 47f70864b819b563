"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.permissions import Operation, on_group
from penstock.broker.replies import code_of, when_decided, when_replied
from penstock.coordination.groups.commands import (
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    Sync,
    SyncReply,
)
from penstock.errors import ErrorCode
from penstock.protocol.messages.classic_groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

_KNOWN_ID_FROM: Final = 4  # JoinGroup: the first join only gets a member id
_SKIP_FROM: Final = 9  # JoinGroup: a returning leader may skip the assignment


def join_group(context: Context, request: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    """Become a member; the response follows when all members have joined."""
    version = context.api_version
    client_id = context.client_id or ""
    instance_id = request.group_instance_id
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:  # version 0 has none
        rebalance_timeout_ms = request.session_timeout_ms
    decided = context.broker.groups.submit(
        request.group_id,
        lambda caller: Join(
            caller=caller,
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=instance_id,
            new_member_id=f"{instance_id or client_id}-{uuid4()}",
            client_id=client_id,
            client_host=f"/{context.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((name, metadata) for name, metadata in request.protocols),
            requires_member_id=version >= _KNOWN_ID_FROM,
            can_skip_assignment=version >= _SKIP_FROM,
            topics=context.broker.groups.catalogue(),
        ),
    )

    def respond(joined: JoinReply) -> JoinGroupResponse:
        members = [
            JoinGroupMember(member_id, metadata, instance_id)
            for member_id, instance_id, metadata in joined.members
        ]
        return JoinGroupResponse(*joined[:-1], members)

    return when_decided(context, request, decided, respond)


def sync_group(context: Context, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    """Get the assignment; the response follows when the leader has sent it."""
    decided = context.broker.groups.submit(
        request.group_id,
        lambda caller: Sync(
            caller,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
            dict(request.assignments),
            context.broker.groups.catalogue(),
        ),
    )

    def respond(synced: SyncReply) -> SyncGroupResponse:
        return SyncGroupResponse(
            ErrorCode.none, synced.protocol_type, synced.protocol, synced.assignment
        )

    return when_decided(context, request, decided, respond)


def heartbeat(context: Context, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    """A member is alive."""
    decided = context.broker.groups.submit(
        request.group_id,
        lambda caller: Heartbeat(
            caller,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
        ),
    )
    return when_replied(decided, lambda result: HeartbeatResponse(code_of(result)))


def leave_group(context: Context, request: LeaveGroupRequest) -> Answer[LeaveGroupResponse]:
    """Members leave, each on its own."""
    members = tuple((member_id, instance_id) for member_id, instance_id, _ in request.members)
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: Leave(caller, request.group_id, members)
    )

    def respond(left: LeaveReply) -> LeaveGroupResponse:
        return LeaveGroupResponse(members=[LeftMember(*member) for member in left.members])

    return when_decided(context, request, decided, respond)


HANDLERS = (
    Handler(JOIN_GROUP, versions=(0, 9), handle=join_group, allow=on_group(Operation.READ)),
    Handler(HEARTBEAT, versions=(0, 4), handle=heartbeat, allow=on_group(Operation.READ)),
    Handler(LEAVE_GROUP, versions=(0, 5), handle=leave_group, allow=on_group(Operation.READ)),
    Handler(SYNC_GROUP, versions=(0, 5), handle=sync_group, allow=on_group(Operation.READ)),
)
