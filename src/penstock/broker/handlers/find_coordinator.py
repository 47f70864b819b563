"""FindCoordinator: which broker has a group or a transactional id."""

from __future__ import annotations

from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.broker import Endpoint
from penstock.broker.coordinators import partition_of
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import controller_of, respond, when_decided
from penstock.errors import ErrorCode, Refused

FIND_COORDINATOR: Final = 10

_BATCHES_FROM: Final = 4
_TOPIC_OF: Final = {0: "__consumer_offsets", 1: "__transaction_state"}  # by type of the key
_SHARE: Final = 2


def find_coordinator(context: Context, request: Any) -> Answer:
    """The leader of the partition that a key's state is kept in; the topic is made when needed."""
    key_type = getattr(request, "key_type", 0)
    topic = _TOPIC_OF.get(key_type)
    made = None if topic is None else controller_of(context).make_internal_topic(topic)
    return when_decided(made, lambda _: _respond(context, key_type, request))


def _respond(context: Context, key_type: int, request: Any) -> Entity:
    if context.api_version < _BATCHES_FROM:
        return respond(context, **_found(context, key_type, request.key))
    found = [{"key": key, **_found(context, key_type, key)} for key in request.coordinator_keys]
    return respond(context, coordinators=found)


def _found(context: Context, key_type: int, key: str) -> dict[str, Any]:
    try:
        coordinator = _coordinator(context, key_type, key)
    except Refused as refusal:
        return {
            "error_code": refusal.code,
            "error_message": refusal.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    return {
        "error_code": ErrorCode.none,
        "error_message": "",
        "node_id": coordinator.node_id,
        "host": coordinator.host,
        "port": coordinator.port,
    }


def _coordinator(context: Context, key_type: int, key: str) -> Endpoint:
    if key_type == _SHARE:
        raise Refused(ErrorCode.invalid_request, "share groups are not served")
    if key_type not in _TOPIC_OF:
        raise Refused(ErrorCode.invalid_request, f"{key_type} is not a type of coordinator")
    if key_type == 0 and not key:
        raise Refused(ErrorCode.invalid_group_id, "group.id is empty")
    topic = context.broker.cluster.topic(_TOPIC_OF[key_type])
    if topic is None:
        raise Refused(ErrorCode.coordinator_not_available, "its topic is being made; try again")
    leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
    for broker in context.broker.cluster.brokers():
        if broker.node_id == leader:
            return broker
    raise Refused(ErrorCode.coordinator_not_available, "its broker is not there; try again")


HANDLERS = (Handler(FIND_COORDINATOR, versions=(0, 6), handle=find_coordinator),)
