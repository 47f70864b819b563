"""Metadata and DescribeTopicPartitions: where topics are, and who leads their partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler, Packed
from penstock.broker.handlers.replies import controller_of, respond, when_decided
from penstock.broker.metadata_image import INTERNAL_TOPICS, ClusterController, KnownTopic
from penstock.broker.partition import Leadership
from penstock.coordination.controller.commands import CreateTopics
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.events import NO_LEADER
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import TopicId
from penstock.protocol.fields import NO_TOPIC_ID, Node
from penstock.protocol.messages.metadata import (
    METADATA,
    OPERATIONS_UNASKED,
    PartitionAnswer,
    TopicAnswer,
    pack_metadata,
    pack_topic,
)

DESCRIBE_TOPIC_PARTITIONS: Final = 75

# Without an authoriser everybody may do everything: one bit for each operation that there is.
TOPIC_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
PARTITIONS_PER_ANSWER_MAX: Final = 2000
ASKED_BY_ID_FROM: Final = 12


def metadata(context: Context, request: Any) -> Answer:
    """Brokers, controller and the topics asked for; makes missing ones if it may."""
    created = _create_missing(context, request)
    if isinstance(created, Deferred):
        return when_decided(created, lambda _: _metadata(context, request))
    return _metadata(context, request)


def _metadata(context: Context, request: Any) -> Packed:
    cluster = controller_of(context)
    version = context.api_version
    operations = getattr(request, "include_topic_authorized_operations", False)
    cluster_operations = getattr(request, "include_cluster_authorized_operations", False)
    packed = cluster.packed_topics[version, operations]
    topics = [
        packed.get(topic.name) or _pack_known(packed, version, topic, operations=operations)
        if isinstance(topic, KnownTopic)
        else _pack_missing(version, *topic, operations=operations)
        for topic in _wanted(context, cluster, request)
    ]
    return pack_metadata(
        version,
        topics,
        brokers=[Node(*endpoint) for endpoint in cluster.brokers()],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        throttle_ms=context.throttle_ms,
        authorized_operations=CLUSTER_OPERATIONS if cluster_operations else OPERATIONS_UNASKED,
    )


def _pack_known(
    packed: dict[str, bytes], version: int, topic: KnownTopic, *, operations: bool
) -> bytes:
    """A topic's part of the answer, kept until the topic changes."""
    rows = [
        PartitionAnswer(
            ErrorCode.none if row.leader != NO_LEADER else ErrorCode.leader_not_available,
            index,
            row.leader,
            row.leader_epoch,
            row.replicas,
            row.isr,
        )
        for index, row in enumerate(topic.partitions)
    ]
    packed[topic.name] = part = pack_topic(
        version,
        TopicAnswer(
            topic.name,
            rows,
            topic_id=topic.topic_id.bytes,
            is_internal=topic.is_internal,
            authorized_operations=TOPIC_OPERATIONS if operations else OPERATIONS_UNASKED,
        ),
    )
    return part


def _pack_missing(
    version: int,
    name: str | None,
    topic_id: TopicId | None,
    error_code: ErrorCode,
    *,
    operations: bool,
) -> bytes:
    """A topic that is not there; what one may do with it can be told only by its name."""
    return pack_topic(
        version,
        TopicAnswer(
            name,
            (),
            error_code,
            NO_TOPIC_ID if topic_id is None else topic_id.bytes,
            is_internal=name in INTERNAL_TOPICS,
            authorized_operations=(
                TOPIC_OPERATIONS if operations and name is not None else OPERATIONS_UNASKED
            ),
        ),
    )


_Missing = tuple[str | None, TopicId | None, ErrorCode]


def _wanted(
    context: Context, cluster: ClusterController, request: Any
) -> Iterable[KnownTopic | _Missing]:
    """The topics asked for: all of them, or each with what is known of it."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return cluster.topics()
    asked = [(topic.name, getattr(topic, "topic_id", None)) for topic in request.topics]
    if context.api_version < ASKED_BY_ID_FROM:
        return [_found_by_name(cluster, name, topic_id) for name, topic_id in dict.fromkeys(asked)]
    return [_found(cluster, name, topic_id) for name, topic_id in dict.fromkeys(asked)]


def _create_missing(context: Context, request: Any) -> object:
    """The reply of the controller if topics must be created first, or a Deferred of it.

    Topics that are refused are answered as unknown: clients ask again.
    """
    may_create = getattr(request, "allow_auto_topic_creation", True) and (
        context.broker.settings.creates_missing_topics
    )
    if not may_create:
        return None
    cluster = controller_of(context)
    missing = {
        topic.name: None
        for topic in request.topics or ()
        if topic.name
        and getattr(topic, "topic_id", None) is None
        and cluster.topic(topic.name) is None
    }
    if not missing:
        return None
    topics = tuple(cluster.new_topic(name) for name in missing)
    return cluster.submit(lambda caller: CreateTopics(caller, topics))


def _found_by_name(
    cluster: ClusterController, name: str | None, topic_id: TopicId | None
) -> KnownTopic | _Missing:
    """As asked in a version that may tell ids, and has no room for an answer without a name."""
    if name is None or topic_id is not None:
        return (name or "", topic_id, ErrorCode.invalid_request)
    return _found(cluster, name, None)


def _found(
    cluster: ClusterController, name: str | None, topic_id: TopicId | None
) -> KnownTopic | _Missing:
    """A topic by its id if that is given, whatever its name; else by its name."""
    if name is None or topic_id is not None:
        by_id = None if topic_id is None else cluster.topic_by_id(topic_id)
        return by_id or (None, topic_id, ErrorCode.unknown_topic_id)
    try:
        check_topic_name(name)
    except Refused as refusal:
        return (name, None, refusal.code)
    return cluster.topic(name) or (name, None, ErrorCode.unknown_topic_or_partition)


def _topic_fields(topic: KnownTopic | _Missing) -> dict[str, Any]:
    if isinstance(topic, KnownTopic):
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": [
                _partition_fields(index, leadership)
                for index, leadership in enumerate(topic.partitions)
            ],
        }
    name, topic_id, error_code = topic
    return {
        "error_code": error_code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _partition_fields(index: int, leadership: Leadership) -> dict[str, Any]:
    has_leader = leadership.leader != NO_LEADER
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": index,
        "leader_id": leadership.leader,
        "leader_epoch": leadership.leader_epoch,
        "replica_nodes": leadership.replicas,
        "isr_nodes": leadership.isr,
    }


def describe_topic_partitions(context: Context, request: Any) -> Answer:
    """Topics by name, a page of partitions at a time."""
    cluster = controller_of(context)
    cursor = request.cursor
    first_name = "" if cursor is None else cursor.topic_name
    first_index = 0 if cursor is None else cursor.partition_index
    asked = {topic.name for topic in request.topics}
    if first_index < 0 or (cursor is not None and asked and first_name not in asked):
        return _refuse_cursor(context, request)
    names = sorted(asked or {topic.name for topic in cluster.topics()})
    left = min(max(request.response_partition_limit, 1), PARTITIONS_PER_ANSWER_MAX)
    topics: list[dict[str, Any]] = []
    next_cursor = None
    for name in names:
        if name < first_name:
            continue
        fields = _topic_fields(_found(cluster, name, None))
        start = first_index if name == first_name else 0
        rows = fields["partitions"][start : start + left]
        if (fields["partitions"] and not rows and start == 0) or left == 0:
            next_cursor = {"topic_name": name, "partition_index": start}
            break
        left -= len(rows)
        is_cut = start + len(rows) < len(fields["partitions"])
        topics.append(_described({**fields, "partitions": rows}))
        if is_cut:
            next_cursor = {"topic_name": name, "partition_index": start + len(rows)}
            break
    return respond(
        context,
        topics=topics,
        next_cursor=next_cursor,
    )


def _refuse_cursor(context: Context, request: Any) -> Answer:
    """The answer to a cursor that no page of this question ended in: each topic says so."""
    refused = {"error_code": ErrorCode.invalid_request, "topic_id": None, "partitions": ()}
    rows = [{"name": topic.name, **refused} for topic in request.topics]
    return respond(context, topics=rows, next_cursor=None)


def _described(fields: dict[str, Any]) -> dict[str, Any]:
    none: dict[str, Any] = {"eligible_leader_replicas": (), "last_known_elr": ()}
    rows = [{**row, **none} for row in fields["partitions"]]
    return {**fields, "partitions": rows, "topic_authorized_operations": TOPIC_OPERATIONS}


HANDLERS = (
    Handler(METADATA, versions=(0, 13), handle=metadata),
    Handler(DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), handle=describe_topic_partitions),
)
