"""Operations on topics: describe, create, change, delete.

None creates a topic that it only reads. A topic that does not exist is refused without a retry.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.errors import ErrorCode, Refused
from penstock.link.operation import Steps, request_of
from penstock.link.routing import Routes, operation
from penstock.protocol.messages.configs import (
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    ConfigOperation,
    ConfigsToChange,
    ConfigsToDescribe,
    DescribeConfigsRequest,
    DescribedConfig,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataTopic,
)
from penstock.protocol.messages.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MorePartitionsTopic,
    NewTopicConfig,
    TopicToDelete,
)

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")
TOPIC: Final = 2  # resource types
BROKER: Final = 4
_UNKNOWN: Final = (ErrorCode.unknown_topic_or_partition,)
SET: Final = 0  # operations on configs
DELETE: Final = 1


class PartitionDescription(NamedTuple):
    """One partition: its leader (-1: none) and replicas."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()
    leader_epoch: int = -1


class TopicDescription(NamedTuple):
    """One topic as the cluster describes it."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@operation
def describe_topics(
    routes: Routes, names: Sequence[str] | None = None
) -> Steps[list[TopicDescription]]:
    """These topics by name; Refused if one does not exist. Or all that can be described."""

    def attempt() -> Steps[list[TopicDescription]]:
        rows = None if names is None else [MetadataRequestTopic(name) for name in names]
        body = MetadataRequest(rows, allow_auto_topic_creation=False)
        response = yield from routes.send_to_any(request_of(METADATA, body, version_min=4))
        routes.remember(response)
        topics = []
        for row in response.topics:
            assert isinstance(row, MetadataTopic), "as read, topics are not shared"
            if names is not None:
                _accept(row.error_code, None, row.name or "", "describe")
            if row.error_code is ErrorCode.none:
                topics.append(_description(row))
        return sorted(topics)

    return (yield from _with_retries(routes, "describe topics", attempt))


@operation
def partition_count(routes: Routes, topic: str) -> Steps[int]:
    """How many partitions a topic has, as far as metadata that is not old says."""

    def attempt() -> Steps[int]:
        topics = yield from routes.topic_metadata([topic])
        return len(topics[topic].partitions)

    return (yield from _with_retries(routes, f"describe topic {topic}", attempt))


@operation
def create_topic(
    routes: Routes,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
) -> Steps[None]:
    """Create a topic; -1 is the broker's default."""
    rows = [NewTopicConfig(*row) for row in (configs or {}).items()]
    topic = CreatableTopic(name, partitions, replication_factor, configs=rows)
    request = request_of(CREATE_TOPICS, CreateTopicsRequest([topic], validate_only=validate_only))

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_controller(request)
        for row in response.topics:
            _accept(row.error_code, row.error_message, name, "create")

    yield from _with_retries(routes, f"create topic {name}", attempt)
    routes.invalidate_topics([name])


@operation
def add_partitions(
    routes: Routes, name: str, partitions: int, *, validate_only: bool = False
) -> Steps[None]:
    """Give a topic so many partitions in all."""
    body = CreatePartitionsRequest(
        [MorePartitionsTopic(name, partitions)], validate_only=validate_only
    )
    request = request_of(CREATE_PARTITIONS, body)

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_controller(request)
        for row in response.results:
            _accept(row.error_code, row.error_message, name, "add partitions to")

    yield from _with_retries(routes, f"add partitions to {name}", attempt)
    routes.invalidate_topics([name])


@operation
def delete_topic(routes: Routes, name: str) -> Steps[None]:
    """Delete a topic; Refused if it does not exist."""
    request = request_of(DELETE_TOPICS, DeleteTopicsRequest([TopicToDelete(name)]))

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_controller(request)
        for row in response.responses:
            _accept(row.error_code, row.error_message, name, "delete")

    yield from _with_retries(routes, f"delete topic {name}", attempt)
    routes.invalidate_topics([name])


@operation
def describe_configs(
    routes: Routes,
    names: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    documented: bool = False,
) -> Steps[dict[str, Sequence[DescribedConfig]]]:
    """The settings of these topics, all or some of them."""
    resources = [ConfigsToDescribe(TOPIC, name, keys) for name in names]
    body = DescribeConfigsRequest(resources, True, include_documentation=documented)

    def attempt() -> Steps[dict[str, Sequence[DescribedConfig]]]:
        request = request_of(DESCRIBE_CONFIGS, body, version_min=1)
        response = yield from routes.send_to_any(request)
        for row in response.results:
            _accept(row.error_code, row.error_message, row.resource_name, "describe")
        return {row.resource_name: row.configs for row in response.results}

    return (yield from _with_retries(routes, "describe configs", attempt))


@operation
def alter_configs(
    routes: Routes,
    name: str,
    changes: Mapping[str, str | None],
    *,
    resource_type: int = TOPIC,
    validate_only: bool = False,
) -> Steps[None]:
    """Set settings of a topic, or of brokers; None returns one to its default."""
    rows = [
        ConfigOperation(key, DELETE if value is None else SET, value)
        for key, value in changes.items()
    ]
    body = IncrementalAlterConfigsRequest(
        [ConfigsToChange(resource_type, name, rows)], validate_only
    )
    request = request_of(INCREMENTAL_ALTER_CONFIGS, body)

    def attempt() -> Steps[None]:
        response = yield from routes.send_to_controller(request)
        for row in response.responses:
            _accept(row.error_code, row.error_message, name, "change")

    yield from _with_retries(routes, f"change topic {name}", attempt)


def _description(row: MetadataTopic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            each.partition_index,
            each.leader_id,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            tuple(each.offline_replicas),
            each.leader_epoch,
        )
        for each in row.partitions
    ]
    return TopicDescription(row.name or "", row.is_internal, tuple(sorted(partitions)))


def _with_retries(routes: Routes, what: str, attempt: Callable[[], Steps[T]]) -> Steps[T]:
    return (
        yield from routes.with_retries(what, attempt, routes.invalidate_controller, final=_UNKNOWN)
    )


def _accept(code: ErrorCode, message: str | None, topic: str, verb: str) -> None:
    if code is ErrorCode.unknown_topic_or_partition:
        raise Refused(code, f"there is no topic {topic!r}: check the name, or create it")
    if code is not ErrorCode.none:
        raise Refused(code, f"{verb} topic {topic}: {message or code.name}")
