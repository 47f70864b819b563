"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from penstock.broker.handler import Answer, Answered, Context, Handler
from penstock.broker.handlers.classic_groups import ALL_OPERATIONS, NOT_ASKED
from penstock.broker.handlers.replies import respond, when_all, when_decided
from penstock.coordination.groups.codec_consumer import Assignment
from penstock.coordination.groups.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeGroup,
)
from penstock.coordination.groups.consumer_draft import chosen_assignor
from penstock.coordination.groups.state import ConsumerGroup, ConsumerMember, free_of
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.consumer_groups import AssignedTopic, pack_consumer_group_heartbeat

CONSUMER_GROUP_HEARTBEAT: Final = 68
CONSUMER_GROUP_DESCRIBE: Final = 69

_MILLISECOND: Final = timedelta(milliseconds=1)
_OWN_IDS_FROM: Final = 1  # members make their own ids; before, an empty one asks for one
_CONSUMER, _CLASSIC = 1, 0  # what protocol a member speaks, as ConsumerGroupDescribe says it


def consumer_group_heartbeat(context: Context, request: Any) -> Answer:
    """Join, live, change, reconcile or leave."""
    groups = context.broker.groups
    member_id = request.member_id
    if not member_id and context.api_version < _OWN_IDS_FROM and request.member_epoch == 0:
        member_id = str(uuid4())
    names = request.subscribed_topic_names
    rules = groups.config_of(request.group_id)
    decided = groups.submit(
        request.group_id,
        lambda caller: ConsumerHeartbeat(
            caller,
            request.group_id,
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout // _MILLISECOND,
            None if names is None else tuple(names),
            getattr(request, "subscribed_topic_regex", None),
            request.server_assignor,
            _owned(request.topic_partitions),
            context.client_id or "",
            f"/{context.host}",
            groups.catalogue(),
            rules.session_timeout_ms,
            rules.heartbeat_interval_ms,
        ),
    )
    return when_decided(decided, lambda result: _beaten(context, result))


def _owned(topics: Any) -> dict[UUID, tuple[int, ...]] | None:
    if topics is None:
        return None
    return {topic.topic_id: tuple(topic.partitions) for topic in topics if topic.partitions}


def _beaten(context: Context, result: ConsumerHeartbeatReply | Refused) -> Answered:
    if isinstance(result, Refused):
        packed = pack_consumer_group_heartbeat(
            member_id=None,
            member_epoch=0,
            heartbeat_interval_ms=0,
            error_code=result.code,
            error_message=result.message,
            throttle_ms=context.throttle_ms,
        )
        return [packed]
    assignment = None
    if result.assignment is not None:
        assignment = [
            AssignedTopic(topic_id.bytes, partitions)
            for topic_id, partitions in result.assignment.items()
        ]
    packed = pack_consumer_group_heartbeat(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
        throttle_ms=context.throttle_ms,
    )
    return [packed]


def consumer_group_describe(context: Context, request: Any) -> Answer:
    """Groups of the consumer protocol, with what each member has and shall have."""
    groups = context.broker.groups
    asked = [
        groups.submit(name, lambda caller, name=name: DescribeGroup(caller, name))  # type: ignore[misc]  # a default binds the name now
        for name in request.group_ids
    ]
    operations = ALL_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    def answer(results: list[Any]) -> Answered:
        names = groups.catalogue().names
        rows = [
            {**_described(context, name, result, names), "authorized_operations": operations}
            for name, result in zip(request.group_ids, results, strict=True)
        ]
        return respond(context, groups=rows)

    return when_all(asked, answer)


def _described(
    context: Context, group_id: str, result: Any, names: Mapping[UUID, str]
) -> dict[str, Any]:
    if not isinstance(result, ConsumerGroup):
        code, message = ErrorCode.group_id_not_found, f"{group_id!r} is not a consumer group"
        if isinstance(result, Refused):
            code, message = result.code, result.message
        return {
            "error_code": code,
            "error_message": message,
            "group_id": group_id,
            "group_state": "",
            "group_epoch": 0,
            "assignment_epoch": 0,
            "assignor_name": "",
            "members": [],
        }
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": result.state_name,
        "group_epoch": result.epoch,
        "assignment_epoch": result.target_epoch,
        "assignor_name": chosen_assignor(result, context.broker.groups.settings),
        "members": [_described_member(result, m, names) for m in result.members.values()],
    }


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, names: Mapping[UUID, str]
) -> dict[str, Any]:
    told = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": told.instance_id,
        "rack_id": told.rack_id,
        "member_epoch": member.current.member_epoch,
        "client_id": told.client_id,
        "client_host": told.client_host,
        "subscribed_topic_names": list(told.topic_names),
        "subscribed_topic_regex": told.topic_regex,
        "assignment": _parts(free_of(member.current.assigned), names),
        "target_assignment": _parts(group.targets.get(member.member_id, {}), names),
        "member_type": _CONSUMER if told.classic is None else _CLASSIC,
    }


def _parts(assignment: Assignment, names: Mapping[UUID, str]) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {
                "topic_id": topic_id,
                "topic_name": names[topic_id],
                "partitions": list(partitions),
            }
            for topic_id, partitions in assignment.items()
            if topic_id in names  # of a deleted topic nothing is shown
        ]
    }


HANDLERS = (
    Handler(CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), handle=consumer_group_heartbeat),
    Handler(CONSUMER_GROUP_DESCRIBE, versions=(0, 1), handle=consumer_group_describe),
)
