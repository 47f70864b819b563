"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.described_configs import described_configs
from penstock.broker.handler import Answer, Context, Forwards, Handler
from penstock.broker.new_topics import new_topic_id
from penstock.broker.partition_lookup import find_leader
from penstock.broker.permissions import AnyOf, Operation, on_cluster, on_each_topic
from penstock.broker.replies import error_of, when_controller_decided
from penstock.config.resolve import ConfigSource
from penstock.config.topic_keys import TOPIC_KEYS
from penstock.coordination.controller.commands import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import Offset, TopicId
from penstock.protocol.messages.topics import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResult,
    CreateTopicsConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResult,
    DeletedRecords,
    DeletedRecordsTopic,
    DeletedTopic,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.broker.partition import Partition

DEFAULT: Final = -1  # partitions or replicas of a new topic: as the broker is configured
TO_HIGH_WATERMARK: Final = -1
SETTINGS_FROM: Final = 5  # CreateTopics: the response has the settings of each topic


def create_topics(context: Context, request: CreateTopicsRequest) -> Answer[CreateTopicsResponse]:
    """Create topics; each is created or refused on its own."""
    requested = tuple(_new_topic(topic, new_topic_id()) for topic in request.topics)
    decided = context.broker.controller.submit(
        lambda caller: CreateTopics(caller, requested, validate_only=request.validate_only)
    )

    def respond(results: Sequence[CreatedTopic | Refused]) -> CreateTopicsResponse:
        settings: _Settings = {}
        rows = {}
        for topic, result in zip(requested, results, strict=True):
            if topic.name not in rows:  # a name given twice has one row
                rows[topic.name] = _created(context, topic, result, settings)
        return CreateTopicsResponse([*rows.values()])

    return when_controller_decided(context, request, decided, respond)


def _new_topic(topic: CreatableTopic, topic_id: TopicId) -> NewTopic:
    return NewTopic(
        topic.name,
        topic_id,
        None if topic.num_partitions == DEFAULT else topic.num_partitions,
        None if topic.replication_factor == DEFAULT else topic.replication_factor,
        tuple((row.partition_index, tuple(row.broker_ids)) for row in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


_Settings = dict[tuple[tuple[str, str | None], ...], list[CreateTopicsConfig]]


def _created(
    context: Context, topic: NewTopic, result: CreatedTopic | Refused, settings: _Settings
) -> CreateTopicsResult:
    """The result for one topic; `settings` are those of other topics with the same overrides."""
    if isinstance(result, Refused):
        return CreateTopicsResult(topic.name, error_code=result.code, error_message=result.message)
    configs: list[CreateTopicsConfig] = []
    if context.api_version >= SETTINGS_FROM:
        if topic.overrides not in settings:
            settings[topic.overrides] = _settings_of(context, topic)
        configs = settings[topic.overrides]
    return CreateTopicsResult(
        topic.name,
        result.topic_id,
        num_partitions=result.partition_count,
        replication_factor=result.replication_factor,
        configs=configs,
    )


def _settings_of(context: Context, topic: NewTopic) -> list[CreateTopicsConfig]:
    own = {name: value for name, value in topic.overrides if value is not None}
    layers = context.broker.cluster.layers
    rows = described_configs(TOPIC_KEYS, own, ConfigSource.TOPIC, layers)
    return [CreateTopicsConfig(*row[:5]) for row in rows]


def delete_topics(context: Context, request: DeleteTopicsRequest) -> Answer[DeleteTopicsResponse]:
    """Delete topics by name or by id."""
    if not context.broker.settings.can_delete_topics:
        raise Refused(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
    requested: list[str | TopicId] = []
    invalid = []
    for name, topic_id in request.topics:
        if name is not None and topic_id is None:
            requested.append(name)
        elif name is None and topic_id is not None:
            requested.append(TopicId(topic_id))
        else:
            reason = "give either the name of a topic or its id"
            invalid.append(DeletedTopic(name, topic_id, ErrorCode.invalid_request, reason))
    keys = tuple(requested)
    decided = context.broker.controller.submit(lambda caller: DeleteTopics(caller, keys))

    def respond(results: Sequence[tuple[str, TopicId] | Refused]) -> DeleteTopicsResponse:
        rows = dict(zip(keys, results, strict=True))  # a topic given twice has one row
        return DeleteTopicsResponse([*invalid, *[_deleted(*row) for row in rows.items()]])

    return when_controller_decided(context, request, decided, respond)


def _deleted(key: str | TopicId, result: tuple[str, TopicId] | Refused) -> DeletedTopic:
    if not isinstance(result, Refused):
        return DeletedTopic(*result)
    name, topic_id = (key, None) if isinstance(key, str) else (None, key)
    return DeletedTopic(name, topic_id, result.code, result.message)


def create_partitions(
    context: Context, request: CreatePartitionsRequest
) -> Answer[CreatePartitionsResponse]:
    """Add partitions to topics; each topic is changed or refused on its own."""
    requested = tuple(
        NewPartitions(
            topic.name,
            topic.partition_count,
            None
            if topic.assignments is None
            else tuple(tuple(row.broker_ids) for row in topic.assignments),
        )
        for topic in request.topics
    )
    decided = context.broker.controller.submit(
        lambda caller: CreatePartitions(caller, requested, validate_only=request.validate_only)
    )

    def respond(results: Sequence[Refused | None]) -> CreatePartitionsResponse:
        names = [topic.name for topic in requested]
        rows = dict(zip(names, results, strict=True))  # a name given twice has one row
        return CreatePartitionsResponse(
            [CreatePartitionsResult(name, *error_of(result)) for name, result in rows.items()]
        )

    return when_controller_decided(context, request, decided, respond)


def delete_records(
    context: Context, request: DeleteRecordsRequest
) -> Answer[DeleteRecordsResponse]:
    """Delete all records below each given offset, on all replicas that are in sync."""
    return _Deletion(context, request).deferred


class _Deletion:
    """A request to delete records, until it was carried out everywhere or its time is over."""

    def __init__(self, context: Context, request: DeleteRecordsRequest) -> None:
        self.deferred: Deferred[DeleteRecordsResponse] = Deferred(self._on_cancel)
        self._context = context
        self._rows = [
            (topic.name, row.partition_index, row.offset)
            for topic in request.topics
            for row in topic.partitions
        ]
        self._results: dict[tuple[str, int], DeletedRecords] = {}
        timeout_s = max(request.timeout_ms, 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._on_timeout)
        for topic, index, offset in self._rows:
            try:
                partition, target = _delete(context, topic, index, offset)
            except Refused as refusal:
                self._resolve((topic, index), DeletedRecords(index, error_code=refusal.code))
            else:
                partition.call_when_deleted(
                    target, partial(self._on_deleted, (topic, index), partition)
                )
        self._finish_if_complete()

    def _on_deleted(
        self, key: tuple[str, int], partition: Partition, refusal: Refused | None
    ) -> None:
        if refusal is None:
            self._resolve(key, DeletedRecords(key[1], partition.least_start_offset))
        else:
            self._resolve(key, DeletedRecords(key[1], error_code=refusal.code))

    def _resolve(self, key: tuple[str, int], result: DeletedRecords) -> None:
        self._results.setdefault(key, result)
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        if len(self._results) == len({row[:2] for row in self._rows}):
            self._timer.cancel()
            self.deferred.resolve(self._response())

    def _on_timeout(self) -> None:
        """The records are gone here; followers that are in sync still have some."""
        for topic, index, _ in self._rows:
            timed_out = DeletedRecords(index, error_code=ErrorCode.request_timed_out)
            self._resolve((topic, index), timed_out)

    def _response(self) -> DeleteRecordsResponse:
        topics: dict[str, list[DeletedRecords]] = {}
        for (topic, _), result in self._results.items():
            topics.setdefault(topic, []).append(result)
        return DeleteRecordsResponse([DeletedRecordsTopic(*each) for each in topics.items()])

    def _on_cancel(self) -> None:
        self._timer.cancel()


def _delete(context: Context, topic: str, index: int, offset: int) -> tuple[Partition, Offset]:
    """The partition and the offset that it starts at from now on, or later."""
    partition = find_leader(context.broker, topic, index)
    if not partition.settings.retention.delete:
        raise Refused(
            ErrorCode.policy_violation, "a topic that is only compacted deletes no records"
        )
    log = partition.log
    target = log.high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if not 0 <= target <= log.high_watermark:
        raise Refused(ErrorCode.offset_out_of_range, f"the log ends at {log.high_watermark}")
    partition.check_min_insync()  # else a replica could lead next that has the records
    partition.delete_before(target, context.broker.clock())
    return partition, target


HANDLERS = (
    Handler(
        CREATE_TOPICS,
        forwards=Forwards.WHOLE,
        versions=(2, 7),
        handle=create_topics,
        allow=AnyOf(on_cluster(Operation.CREATE), on_each_topic(Operation.CREATE)),
    ),
    Handler(
        DELETE_TOPICS,
        forwards=Forwards.WHOLE,
        versions=(1, 6),
        handle=delete_topics,
        allow=on_each_topic(Operation.DELETE),
    ),
    Handler(
        CREATE_PARTITIONS,
        forwards=Forwards.WHOLE,
        versions=(0, 3),
        handle=create_partitions,
        allow=on_each_topic(Operation.ALTER),
    ),
    Handler(
        DELETE_RECORDS,
        versions=(0, 2),
        handle=delete_records,
        allow=on_each_topic(Operation.DELETE),
    ),
)
