"""Metadata and DescribeTopicPartitions: topics, and the leaders of their partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.controller_client import controller_id
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.metadata_image import INTERNAL_TOPICS, KnownTopic, MetadataImage
from penstock.broker.new_topics import create_missing
from penstock.broker.permissions import (
    AllOf,
    Operation,
    ResourceType,
    all_operations,
    on_each_topic,
    requested_operations,
)
from penstock.broker.replies import when_replied
from penstock.coordination.controller.decide_topics import check_topic_name
from penstock.coordination.controller.events import NO_LEADER
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import TopicId
from penstock.protocol.field_codecs import WrittenOnce
from penstock.protocol.fields import NodeEndpoint
from penstock.protocol.messages.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    TOPIC_IDS_FROM,
    DescribedTopic,
    DescribedTopicPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    TopicCursor,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from penstock.broker.leadership import Leadership

PARTITIONS_PER_RESPONSE_MAX: Final = 2000
SETTLE_S: Final = 0.005


class _Missing(NamedTuple):
    """A topic that does not exist, as it was requested."""

    name: str | None
    topic_id: TopicId | None
    error_code: ErrorCode


def metadata(context: Context, request: MetadataRequest) -> Answer[MetadataResponse]:
    """Brokers, controller and the requested topics; creates missing ones if that is allowed."""
    reply = _create_missing(context, request)
    if reply is None and request.topics != []:
        reply = settled(context.broker.cluster)
    return when_replied(reply, lambda _: _metadata(context, request))


def settled(cluster: MetadataImage) -> Deferred[None] | None:
    """In a cluster, wait for news of other brokers that is on its way.

    A client that loses its leader asks at once. This broker's own connection to that leader ends
    at the same moment, and the response must not name a leader that is about to be suspected.
    """
    if len(cluster.state.brokers) == 1:
        return None
    settled: Deferred[None] = Deferred(lambda: timer.cancel())
    timer = asyncio.get_running_loop().call_later(SETTLE_S, settled.resolve, None)
    return settled


def _create_missing(context: Context, request: MetadataRequest) -> object:
    """The controller's reply if topics must be created first, or a Deferred of it.

    Topics that it refuses are unknown in the response: clients retry.
    """
    if not (request.allow_auto_topic_creation and context.broker.settings.creates_missing_topics):
        return None
    cluster = context.broker.cluster
    missing = dict.fromkeys(
        name
        for name, topic_id in request.topics or ()
        if name and topic_id is None and cluster.topic(name) is None
    )
    if not missing:
        return None
    return create_missing(context.broker, missing)


def _metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    cluster = context.broker.cluster
    with_operations = request.include_topic_authorized_operations
    suspected = context.broker.suspected_leaders.current()
    cached = {} if suspected else cluster.described_topics[with_operations]
    live = {broker.node_id for broker in cluster.brokers()} - suspected
    topics = [
        cached.get(topic.name) or _describe(cached, topic, live, with_operations=with_operations)
        if isinstance(topic, KnownTopic)
        else _describe_missing(topic, with_operations=with_operations)
        for topic in _requested(context, cluster, request)
    ]
    operations = requested_operations(
        ResourceType.CLUSTER, request.include_cluster_authorized_operations
    )
    return MetadataResponse(
        [NodeEndpoint(*endpoint) for endpoint in cluster.listed_brokers()],
        topics,
        cluster.cluster_id,
        controller_id(context.broker),
        operations,
    )


def _leader(row: Leadership, live: Container[int]) -> tuple[ErrorCode, int]:
    """The leader if it is live."""
    if row.leader in live:
        return ErrorCode.none, row.leader
    return ErrorCode.leader_not_available, NO_LEADER


def _offline(row: Leadership, live: Container[int]) -> Sequence[int]:
    """The replicas that no broker serves: it is not live, or the log cannot be used there."""
    return [node for node in row.replicas if node not in live or node in row.offline]


def _describe(
    cached: dict[str, WrittenOnce[MetadataTopic]],
    topic: KnownTopic,
    live: Container[int],
    *,
    with_operations: bool,
) -> WrittenOnce[MetadataTopic]:
    """A topic of the response, kept until the topic changes."""
    partitions = [
        MetadataPartition(
            error_code,
            index,
            leader,
            row.leader_epoch,
            row.replicas,
            row.isr,
            _offline(row, live),
        )
        for index, row in enumerate(topic.partitions)
        for error_code, leader in (_leader(row, live),)
    ]
    described = cached[topic.name] = WrittenOnce(
        MetadataTopic(
            topic.name,
            partitions,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            topic_authorized_operations=requested_operations(ResourceType.TOPIC, with_operations),
        )
    )
    return described


def _describe_missing(topic: _Missing, *, with_operations: bool) -> MetadataTopic:
    """Operations on a topic that does not exist are known by its name only."""
    name, topic_id, error_code = topic
    operations = requested_operations(ResourceType.TOPIC, with_operations and name is not None)
    return MetadataTopic(name, (), error_code, topic_id, name in INTERNAL_TOPICS, operations)


def _requested(
    context: Context, cluster: MetadataImage, request: MetadataRequest
) -> Iterable[KnownTopic | _Missing]:
    """All topics, or each requested one with what is known of it."""
    if request.topics is None:
        return cluster.topics()
    keys = dict.fromkeys(request.topics)
    find = _find_by_name if context.api_version < TOPIC_IDS_FROM else _find
    return [
        find(cluster, name, None if topic_id is None else TopicId(topic_id))
        for name, topic_id in keys
    ]


def _find_by_name(
    cluster: MetadataImage, name: str | None, topic_id: TopicId | None
) -> KnownTopic | _Missing:
    """For versions that may have ids in requests, but no response without a name."""
    if name is None or topic_id is not None:
        return _Missing(name or "", topic_id, ErrorCode.invalid_request)
    return _find(cluster, name, None)


def _find(
    cluster: MetadataImage, name: str | None, topic_id: TopicId | None
) -> KnownTopic | _Missing:
    """A topic by its id if that is given, whatever its name; else by its name."""
    if name is None or topic_id is not None:
        by_id = None if topic_id is None else cluster.topic_by_id(topic_id)
        return by_id or _Missing(None, topic_id, ErrorCode.unknown_topic_id)
    try:
        check_topic_name(name)
    except Refused as refusal:
        return _Missing(name, None, refusal.code)
    return cluster.topic(name) or _Missing(name, None, ErrorCode.unknown_topic_or_partition)


# DescribeTopicPartitions.


def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics by name, a page of partitions at a time."""
    cluster = context.broker.cluster
    cursor = request.cursor or TopicCursor("", 0)
    requested = {topic.name for topic in request.topics}
    if cursor.partition_index < 0 or (
        request.cursor is not None and requested and cursor.topic_name not in requested
    ):
        raise Refused(ErrorCode.invalid_request, "the cursor is not from this request's pages")
    names = sorted(requested or {topic.name for topic in cluster.topics()})
    left = min(max(request.response_partition_limit, 1), PARTITIONS_PER_RESPONSE_MAX)
    topics: list[DescribedTopic] = []
    live = {broker.node_id for broker in cluster.brokers()}
    live -= context.broker.suspected_leaders.current()
    for name in names:
        if name < cursor.topic_name:
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        topic = _described(_find(cluster, name, None), live)
        rows = topic.partitions[start : start + left]
        if left == 0:
            return DescribeTopicPartitionsResponse(topics, TopicCursor(name, start))
        left -= len(rows)
        topics.append(topic._replace(partitions=rows))
        if start + len(rows) < len(topic.partitions):
            return DescribeTopicPartitionsResponse(topics, TopicCursor(name, start + len(rows)))
    return DescribeTopicPartitionsResponse(topics)


def _described(topic: KnownTopic | _Missing, live: Container[int]) -> DescribedTopic:
    operations = all_operations(ResourceType.TOPIC)
    if isinstance(topic, _Missing):
        name, topic_id, error_code = topic
        is_internal = name in INTERNAL_TOPICS
        return DescribedTopic(error_code, name, topic_id, is_internal, (), operations)
    partitions = [
        DescribedTopicPartition(
            error_code,
            index,
            leader,
            row.leader_epoch,
            row.replicas,
            row.isr,
            eligible_leader_replicas=row.elr,
            last_known_elr=row.last_known_elr,
            offline_replicas=_offline(row, live),
        )
        for index, row in enumerate(topic.partitions)
        for error_code, leader in (_leader(row, live),)
    ]
    return DescribedTopic(
        ErrorCode.none, topic.name, topic.topic_id, topic.is_internal, partitions, operations
    )


HANDLERS = (
    Handler(
        METADATA,
        versions=(0, 13),
        handle=metadata,
        # Topics are created with CREATE on the cluster or on the topic; else they stay unknown.
        allow=AllOf(on_each_topic(Operation.DESCRIBE), on_each_topic(Operation.CREATE)),
    ),
    Handler(
        DESCRIBE_TOPIC_PARTITIONS,
        versions=(0, 0),
        handle=describe_topic_partitions,
        allow=on_each_topic(Operation.DESCRIBE),
    ),
)
