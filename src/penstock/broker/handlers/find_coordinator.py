"""FindCoordinator: the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Final

from penstock.broker.coordinators import partition_of
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.new_topics import create_internal
from penstock.broker.permissions import PER_ITEM, AnyOf, Operation, Permission, ResourceType
from penstock.broker.replies import when_replied
from penstock.errors import ErrorCode, Refused
from penstock.protocol.messages.find_coordinator import (
    FIND_COORDINATOR,
    GROUP,
    SHARE,
    TRANSACTION,
    CoordinatorEndpoint,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_TOPICS: Final = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}


def find_coordinator(
    context: Context, request: FindCoordinatorRequest
) -> Answer[FindCoordinatorResponse]:
    """The leader of the partition with the state of each key; creates the topic when needed."""

    def respond(_created: object) -> FindCoordinatorResponse:
        coordinators = []
        for key in request.coordinator_keys:
            try:
                coordinators.append(_coordinator(context, request.key_type, key))
            except Refused as refusal:
                coordinators.append(CoordinatorEndpoint(key, refusal.code, refusal.message))
        return FindCoordinatorResponse(coordinators)

    topic = _TOPICS.get(request.key_type)
    created = None if topic is None else create_internal(context.broker, topic)
    return when_replied(created, respond)


def _coordinator(context: Context, key_type: int, key: str) -> CoordinatorEndpoint:
    if key_type == SHARE:
        raise Refused(ErrorCode.invalid_request, "share groups are not supported")
    if key_type not in _TOPICS:
        raise Refused(ErrorCode.invalid_request, f"there is no coordinator type {key_type}")
    if key_type == GROUP and not key:
        raise Refused(ErrorCode.invalid_group_id, "group.id is empty")
    topic = context.broker.cluster.topic(_TOPICS[key_type])
    if topic is None:
        raise Refused(ErrorCode.coordinator_not_available, "its topic is being created; retry")
    leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
    for node_id, host, port, _ in context.broker.cluster.brokers():
        if node_id == leader:
            return CoordinatorEndpoint(key, node_id=node_id, host=host, port=port)
    raise Refused(ErrorCode.coordinator_not_available, "its broker is not available; retry")


HANDLERS = (
    Handler(
        FIND_COORDINATOR,
        versions=(0, 6),
        handle=find_coordinator,
        allow=AnyOf(
            Permission(Operation.DESCRIBE, ResourceType.GROUP, PER_ITEM),
            Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, PER_ITEM),
        ),
    ),
)
