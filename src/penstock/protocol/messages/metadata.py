"""Metadata and DescribeTopicPartitions: brokers, topics, and the leaders of partitions."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, bind
from penstock.protocol.field_codecs import WrittenOnce
from penstock.protocol.fields import NodeEndpoint

OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)
TOPIC_IDS_FROM: Final = 12  # Metadata requests by topic id

# Metadata.


class MetadataRequestTopic(NamedTuple):
    """A topic by name, or by id."""

    name: str | None = None
    topic_id: UUID | None = None


class MetadataRequest(NamedTuple):
    topics: Sequence[MetadataRequestTopic] | None  # None: all
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class _OldestMetadataRequest(NamedTuple):
    topics: Sequence[MetadataRequestTopic]  # empty: all


class MetadataPartition(NamedTuple):
    """Leader and replicas of one partition."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int  # -1: none
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    offline_replicas: Sequence[int] = ()


class MetadataTopic(NamedTuple):
    """One topic. An unknown id has no name."""

    name: str | None
    partitions: Sequence[MetadataPartition] = ()
    error_code: ErrorCode = ErrorCode.none
    topic_id: UUID | None = None
    is_internal: bool = False
    topic_authorized_operations: int = OPERATIONS_NOT_REQUESTED


class MetadataResponse(NamedTuple):
    brokers: Sequence[NodeEndpoint] = ()
    topics: Sequence[MetadataTopic | WrittenOnce[MetadataTopic]] = ()
    cluster_id: str | None = None
    controller_id: int = -1
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED
    error_code: ErrorCode = ErrorCode.none


def _refuse_metadata(request: MetadataRequest, refusal: Refused) -> MetadataResponse:
    topics = [
        MetadataTopic(topic.name, (), refusal.code, topic.topic_id)
        for topic in request.topics or ()
    ]
    return MetadataResponse(topics=topics, error_code=refusal.code)


METADATA: Final = bind(
    Api.METADATA,
    MetadataRequest,
    MetadataResponse,
    refuse=_refuse_metadata,
    older_request=Older(
        0,
        _OldestMetadataRequest,
        lambda old: MetadataRequest(old.topics or None),
        lambda new: _OldestMetadataRequest(new.topics or ()),
    ),
)

# DescribeTopicPartitions.


class TopicCursor(NamedTuple):
    """Where the next page begins."""

    topic_name: str
    partition_index: int


class NamedTopic(NamedTuple):
    name: str


class DescribeTopicPartitionsRequest(NamedTuple):
    topics: Sequence[NamedTopic]  # none: all
    response_partition_limit: int = 2000
    cursor: TopicCursor | None = None


class DescribedTopicPartition(NamedTuple):
    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int = -1
    replica_nodes: Sequence[int] = ()
    isr_nodes: Sequence[int] = ()
    eligible_leader_replicas: Sequence[int] | None = None
    last_known_elr: Sequence[int] | None = None
    offline_replicas: Sequence[int] = ()


class DescribedTopic(NamedTuple):
    error_code: ErrorCode
    name: str | None
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: Sequence[DescribedTopicPartition] = ()
    topic_authorized_operations: int = OPERATIONS_NOT_REQUESTED


class DescribeTopicPartitionsResponse(NamedTuple):
    topics: Sequence[DescribedTopic]
    next_cursor: TopicCursor | None = None


def _refuse_describe(
    request: DescribeTopicPartitionsRequest, refusal: Refused
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        [DescribedTopic(refusal.code, topic.name) for topic in request.topics]
    )


DESCRIBE_TOPIC_PARTITIONS: Final = bind(
    Api.DESCRIBE_TOPIC_PARTITIONS,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    refuse=_refuse_describe,
)
