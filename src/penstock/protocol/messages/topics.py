"""Topics: CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, WireName, bind

DEFAULT_TIMEOUT_MS: Final = 60_000

# CreateTopics.


class ReplicaAssignment(NamedTuple):
    """The brokers of one partition, the preferred leader first."""

    partition_index: int
    broker_ids: Sequence[int]


class NewTopicConfig(NamedTuple):
    """A setting of a new topic."""

    name: str
    value: str | None


class CreatableTopic(NamedTuple):
    """A topic to create."""

    name: str
    num_partitions: int = -1  # the broker's default
    replication_factor: int = -1  # the broker's default
    assignments: Sequence[ReplicaAssignment] = ()
    configs: Sequence[NewTopicConfig] = ()


class CreateTopicsRequest(NamedTuple):
    topics: Sequence[CreatableTopic]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    validate_only: bool = False


class CreateTopicsConfig(NamedTuple):
    """A setting that a new topic has."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool


class CreateTopicsResult(NamedTuple):
    """One topic of the response. After an error, the code and message only."""

    name: str
    topic_id: UUID | None = None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Sequence[CreateTopicsConfig] | None = ()


class CreateTopicsResponse(NamedTuple):
    topics: Sequence[CreateTopicsResult]


def _refuse_create(request: CreateTopicsRequest, refusal: Refused) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        [
            CreateTopicsResult(name, error_code=refusal.code, error_message=refusal.message)
            for name in names
        ]
    )


CREATE_TOPICS: Final = bind(
    Api.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, refuse=_refuse_create
)

# DeleteTopics.


class TopicToDelete(NamedTuple):
    """By name or by id."""

    name: str | None = None
    topic_id: UUID | None = None


class DeleteTopicsRequest(NamedTuple):
    topics: Sequence[TopicToDelete]
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class _DeleteTopicsByName(NamedTuple):
    topic_names: Sequence[str]
    timeout_ms: int


class DeletedTopic(NamedTuple):
    """One topic of the response, by name, by id or both."""

    name: str | None
    topic_id: UUID | None = None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteTopicsResponse(NamedTuple):
    responses: Sequence[DeletedTopic]


def _refuse_delete(request: DeleteTopicsRequest, refusal: Refused) -> DeleteTopicsResponse:
    keys = dict.fromkeys(request.topics)
    return DeleteTopicsResponse(
        [DeletedTopic(*topic, refusal.code, refusal.message) for topic in keys]
    )


DELETE_TOPICS: Final = bind(
    Api.DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    refuse=_refuse_delete,
    older_request=Older(
        5,
        _DeleteTopicsByName,
        lambda old: DeleteTopicsRequest(
            tuple([TopicToDelete(name) for name in old.topic_names]), old.timeout_ms
        ),
        lambda new: _DeleteTopicsByName([topic.name or "" for topic in new.topics], new.timeout_ms),
    ),
)

# CreatePartitions.


class NewPartition(NamedTuple):
    """The brokers of one new partition, the preferred leader first."""

    broker_ids: Sequence[int]


class MorePartitionsTopic(NamedTuple):
    """A topic that is to have more partitions."""

    name: str
    partition_count: Annotated[int, WireName("count")]  # in all
    assignments: Sequence[NewPartition] | None = None  # None: the controller assigns


class CreatePartitionsRequest(NamedTuple):
    topics: Sequence[MorePartitionsTopic]
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    validate_only: bool = False


class CreatePartitionsResult(NamedTuple):
    """One topic of the response."""

    name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    results: Sequence[CreatePartitionsResult]


def _refuse_partitions(
    request: CreatePartitionsRequest, refusal: Refused
) -> CreatePartitionsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        [CreatePartitionsResult(name, refusal.code, refusal.message) for name in names]
    )


CREATE_PARTITIONS: Final = bind(
    Api.CREATE_PARTITIONS,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    refuse=_refuse_partitions,
)

# DeleteRecords.


class RecordsToDelete(NamedTuple):
    """The records of one partition below an offset; -1: below the high watermark."""

    partition_index: int
    offset: int


class DeleteRecordsTopic(NamedTuple):
    name: str
    partitions: Sequence[RecordsToDelete]


class DeleteRecordsRequest(NamedTuple):
    topics: Sequence[DeleteRecordsTopic]
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class DeletedRecords(NamedTuple):
    """Where the log of one partition starts now."""

    partition_index: int
    low_watermark: int = -1
    error_code: ErrorCode = ErrorCode.none


class DeletedRecordsTopic(NamedTuple):
    name: str
    partitions: Sequence[DeletedRecords]


class DeleteRecordsResponse(NamedTuple):
    topics: Sequence[DeletedRecordsTopic]


def _refuse_delete_records(
    request: DeleteRecordsRequest, refusal: Refused
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        [
            DeletedRecordsTopic(
                topic.name,
                [
                    DeletedRecords(partition.partition_index, error_code=refusal.code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


DELETE_RECORDS: Final = bind(
    Api.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, refuse=_refuse_delete_records
)
