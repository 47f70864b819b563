"""Topics that this broker creates itself: internal ones when they are first needed, missing ones.

The active controller decides, wherever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.broker.metadata_image import INTERNAL_VIEWS, kafka_id
from penstock.broker.replies import when_replied
from penstock.broker.settings import TransactionTopicSettings
from penstock.config.broker_keys import broker_values
from penstock.config.resolve import view
from penstock.errors import ErrorCode, Refused
from penstock.model import TopicId
from penstock.protocol.messages.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    NewTopicConfig,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.broker.broker import Broker

RESERVED_IDS = 100


def new_topic_id() -> TopicId:
    """An id for a new topic. Tools that take it as an argument stumble over a leading dash."""
    while True:
        topic_id = uuid4()
        if topic_id.int > RESERVED_IDS and not kafka_id(topic_id).startswith("-"):
            return TopicId(topic_id)


def create_missing(broker: Broker, names: Iterable[str]) -> Any:
    """Create topics with the defaults; the response, or a Deferred of it."""
    topics = []
    for name in names:
        try:
            internal = _internal(broker, name) if name in INTERNAL_VIEWS else None
        except Refused:
            continue  # too few brokers: it stays unknown, and clients try again
        topics.append(internal or CreatableTopic(name))
    return broker.controller_client.request(CREATE_TOPICS, CreateTopicsRequest(topics))


def create_internal(broker: Broker, name: str) -> Any:
    """Create a topic that brokers keep their state in.

    None if it exists; else the Refused that says why it does not, None, or a Deferred of that.
    """
    if broker.cluster.topic(name) is not None:
        return None
    try:
        topic = _internal(broker, name)
    except Refused as refusal:
        return refusal
    request = CreateTopicsRequest([topic])
    return when_replied(broker.controller_client.request(CREATE_TOPICS, request), _refusal_in)


def _refusal_in(response: CreateTopicsResponse) -> Refused | None:
    (row,) = response.topics
    if row.error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
        return None
    return Refused(row.error_code, row.error_message or "")


def _internal(broker: Broker, name: str) -> CreatableTopic:
    """As many replicas as configured, but no more than the cluster shall have brokers."""
    settings = view(INTERNAL_VIEWS[name], broker_values(broker.cluster.layers))
    expected = max(len(broker.quorum.raft.voters.voters), len(broker.cluster.state.brokers))
    factor = min(settings.replication_factor, expected)
    live = len(broker.cluster.brokers())
    if live < factor:
        raise Refused(
            ErrorCode.coordinator_not_available,
            f"{name} needs {factor} brokers, and {live} are live; try again",
        )
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.segment_bytes),
    }
    if isinstance(settings, TransactionTopicSettings):
        overrides["min.insync.replicas"] = str(settings.min_insync_replicas)
    configs = [NewTopicConfig(key, value) for key, value in overrides.items()]
    return CreatableTopic(name, settings.partition_count, factor, (), configs)
