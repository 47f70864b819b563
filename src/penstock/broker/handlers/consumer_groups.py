"""The consumer group protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.permissions import (
    AllOf,
    Operation,
    Permission,
    ResourceType,
    on_each_group,
    on_each_topic,
    on_group,
    requested_operations,
)
from penstock.broker.replies import when_all, when_decided
from penstock.coordination.groups.commands import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeGroup,
)
from penstock.coordination.groups.consumer_draft import chosen_assignor
from penstock.coordination.groups.state import ConsumerGroup, ConsumerMember, without_epochs
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.consumer_groups import (
    CLASSIC_MEMBER,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CONSUMER_MEMBER,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    HeartbeatAssignment,
    NamedTopicPartitions,
    TopicIdPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.coordination.groups.codec_consumer import Assignment

_OWN_IDS_FROM: Final = 1  # members generate their ids; before, an empty one requests one


def consumer_group_heartbeat(
    context: Context, request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    """Join, stay, change the subscription, reconcile or leave."""
    groups = context.broker.groups
    member_id = request.member_id
    if not member_id and context.api_version < _OWN_IDS_FROM and request.member_epoch == 0:
        member_id = str(uuid4())
    names = request.subscribed_topic_names
    config = groups.config_of(request.group_id)
    decided = groups.submit(
        request.group_id,
        lambda caller: ConsumerHeartbeat(
            caller,
            request.group_id,
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            None if names is None else tuple(names),
            request.subscribed_topic_regex,
            request.server_assignor,
            _owned(request.topic_partitions),
            context.client_id or "",
            f"/{context.host}",
            groups.catalogue(),
            config.session_timeout_ms,
            config.heartbeat_interval_ms,
        ),
    )
    return when_decided(context, request, decided, _heartbeat_response)


def _owned(topics: Sequence[TopicIdPartitions] | None) -> dict[UUID, tuple[int, ...]] | None:
    if topics is None:
        return None
    return {
        topic_id: tuple(partitions)
        for topic_id, partitions in topics
        if topic_id is not None and partitions
    }


def _heartbeat_response(reply: ConsumerHeartbeatReply) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        rows = [TopicIdPartitions(*row) for row in reply.assignment.items()]
        assignment = HeartbeatAssignment(rows)
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )


def consumer_group_describe(
    context: Context, request: ConsumerGroupDescribeRequest
) -> Answer[ConsumerGroupDescribeResponse]:
    """Groups of the consumer protocol, with the current and target assignment of each member."""
    groups = context.broker.groups
    decided = [
        groups.submit(name, partial(DescribeGroup, group_id=name)) for name in request.group_ids
    ]
    operations = requested_operations(ResourceType.GROUP, request.include_authorized_operations)

    def respond(results: list[Any]) -> ConsumerGroupDescribeResponse:
        names = groups.catalogue().names
        rows = [
            _described(context, group_id, result, names)._replace(authorized_operations=operations)
            for group_id, result in zip(request.group_ids, results, strict=True)
        ]
        return ConsumerGroupDescribeResponse(rows)

    return when_all(decided, respond)


def _described(
    context: Context, group_id: str, result: object, names: Mapping[UUID, str]
) -> DescribedConsumerGroup:
    if isinstance(result, Refused):
        return DescribedConsumerGroup(group_id, result.code, result.message)
    if not isinstance(result, ConsumerGroup):
        message = f"{group_id!r} is not a consumer group"
        return DescribedConsumerGroup(group_id, ErrorCode.group_id_not_found, message)
    return DescribedConsumerGroup(
        group_id,
        group_state=result.state.value,
        group_epoch=result.epoch,
        assignment_epoch=result.target_epoch,
        assignor_name=chosen_assignor(result, context.broker.groups.settings),
        members=[_described_member(result, member, names) for member in result.members.values()],
    )


def _described_member(
    group: ConsumerGroup, member: ConsumerMember, names: Mapping[UUID, str]
) -> DescribedConsumerMember:
    subscription = member.subscription
    return DescribedConsumerMember(
        member.member_id,
        subscription.instance_id,
        subscription.rack_id,
        member.current.member_epoch,
        subscription.client_id,
        subscription.client_host,
        subscription.topic_names,
        subscription.topic_regex,
        _described_assignment(without_epochs(member.current.assigned), names),
        _described_assignment(group.targets.get(member.member_id, {}), names),
        CONSUMER_MEMBER if subscription.classic is None else CLASSIC_MEMBER,
    )


def _described_assignment(assignment: Assignment, names: Mapping[UUID, str]) -> DescribedAssignment:
    """Without deleted topics, which have no name."""
    return DescribedAssignment(
        [
            NamedTopicPartitions(topic_id, names[topic_id], partitions)
            for topic_id, partitions in assignment.items()
            if topic_id in names
        ]
    )


def _subscribed_topics(request: ConsumerGroupHeartbeatRequest) -> Iterable[str]:
    return request.subscribed_topic_names or ()


HANDLERS = (
    Handler(
        CONSUMER_GROUP_HEARTBEAT,
        versions=(0, 1),
        handle=consumer_group_heartbeat,
        allow=AllOf(
            on_group(Operation.READ),
            Permission(Operation.DESCRIBE, ResourceType.TOPIC, _subscribed_topics),
        ),
    ),
    Handler(
        CONSUMER_GROUP_DESCRIBE,
        versions=(0, 1),
        handle=consumer_group_describe,
        allow=AllOf(on_each_group(Operation.DESCRIBE), on_each_topic(Operation.DESCRIBE)),
    ),
)
