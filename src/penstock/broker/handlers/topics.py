"""CreateTopics, DeleteTopics, CreatePartitions.

DeleteRecords: move the start of a log forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.configs import described_configs
from penstock.broker.handlers.replies import (
    controller_of,
    error_fields,
    respond,
    when_controller_decided,
)
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
from penstock.model import Offset, TopicId
from penstock.protocol.kio_codec import fill, response_type

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
SETTINGS_FROM: Final = 5  # the version of CreateTopics that tells them


def create_topics(context: Context, request: Any) -> Answer:
    """Make topics; each is made or refused by itself."""
    cluster = controller_of(context)
    wanted = tuple(_new_topic(topic, cluster.mint_topic_id()) for topic in request.topics)
    decided = cluster.submit(
        lambda caller: CreateTopics(caller, wanted, validate_only=request.validate_only)
    )

    def answer(results: Sequence[CreatedTopic | Refused]) -> Entity:
        seen: set[str] = set()
        rows = []
        settings: _Described = {}
        for topic, result in zip(wanted, results, strict=True):
            if topic.name not in seen:  # a name given twice is answered once
                seen.add(topic.name)
                rows.append({"name": topic.name, **_made_fields(context, topic, result, settings)})
        return respond(context, topics=rows)

    return when_controller_decided(decided, answer, lambda refusal: answer([refusal] * len(wanted)))


def _new_topic(topic: Any, topic_id: TopicId) -> NewTopic:
    return NewTopic(
        topic.name,
        topic_id,
        None if topic.num_partitions == -1 else topic.num_partitions,
        None if topic.replication_factor == -1 else topic.replication_factor,
        tuple((row.partition_index, tuple(row.broker_ids)) for row in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


_Described = dict[tuple[tuple[str, str | None], ...], list[dict[str, Any]]]


def _made_fields(
    context: Context, topic: NewTopic, result: CreatedTopic | Refused, settings: _Described
) -> dict[str, Any]:
    """What became of one topic; `settings` are those already described for others like it."""
    if isinstance(result, Refused):
        return error_fields(result)
    fields = {
        **error_fields(None),
        "topic_id": result.topic_id,
        "num_partitions": result.partition_count,
        "replication_factor": result.replication_factor,
    }
    if context.api_version < SETTINGS_FROM:
        return fields
    known = settings.get(topic.overrides)
    if known is None:
        own = {name: value for name, value in topic.overrides if value is not None}
        layers = controller_of(context).layers
        known = settings[topic.overrides] = [
            {name: row[name] for name in _CREATED_CONFIG_FIELDS}
            for row in described_configs(TOPIC_KEYS, own, ConfigSource.TOPIC, layers)
        ]
    return {**fields, "configs": known}


_CREATED_CONFIG_FIELDS: Final = ("name", "value", "read_only", "config_source", "is_sensitive")


def delete_topics(context: Context, request: Any) -> Answer:
    """Delete topics by name, or by id from version 6."""
    cluster = controller_of(context)
    wanted, unclear = _named(request)

    def answer(results: Sequence[tuple[str, TopicId] | Refused]) -> Entity:
        rows = dict(zip(wanted, results, strict=True))  # what is named twice is answered once
        deleted = [_deleted_fields(*row) for row in rows.items()]
        return respond(context, responses=[*unclear, *deleted])

    def refuse(refusal: Refused) -> Entity:
        return answer([refusal] * len(wanted))

    if not context.broker.settings.can_delete_topics:
        code = ErrorCode.topic_deletion_disabled
        return refuse(Refused(code, "delete.topic.enable is false"))
    decided = cluster.submit(lambda caller: DeleteTopics(caller, wanted))
    return when_controller_decided(decided, answer, refuse)


def _named(request: Any) -> tuple[tuple[str | TopicId, ...], list[dict[str, Any]]]:
    """What is to go, and the answers to rows that do not say what is."""
    if hasattr(request, "topic_names"):
        return tuple(request.topic_names), []
    named: list[str | TopicId] = []
    unclear = []
    for topic in request.topics:
        if (topic.name is None) == (topic.topic_id is None):
            refusal = Refused(ErrorCode.invalid_request, "a topic is named, or has its id given")
            row = {"name": topic.name, "topic_id": topic.topic_id, **error_fields(refusal)}
            unclear.append(row)
        else:
            named.append(topic.topic_id if topic.name is None else topic.name)
    return tuple(named), unclear


def _deleted_fields(wanted: str | TopicId, result: tuple[str, TopicId] | Refused) -> dict[str, Any]:
    if isinstance(result, Refused):
        by_name = isinstance(wanted, str)
        named = {"name": wanted} if by_name else {"name": None, "topic_id": wanted}
        return {**named, **error_fields(result)}
    name, topic_id = result
    return {"name": name, "topic_id": topic_id, **error_fields(None)}


def create_partitions(context: Context, request: Any) -> Answer:
    """Widen topics; each is widened or refused by itself."""
    wanted = tuple(
        NewPartitions(
            topic.name,
            topic.count,
            None
            if topic.assignments is None
            else tuple(tuple(row.broker_ids) for row in topic.assignments),
        )
        for topic in request.topics
    )
    decided = controller_of(context).submit(
        lambda caller: CreatePartitions(caller, wanted, validate_only=request.validate_only)
    )

    def answer(results: Sequence[Refused | None]) -> Entity:
        named = [more.name for more in wanted]
        rows = dict(zip(named, results, strict=True))  # a name given twice is answered once
        return respond(
            context,
            results=[{"name": name, **error_fields(result)} for name, result in rows.items()],
        )

    return when_controller_decided(decided, answer, lambda refusal: answer([refusal] * len(wanted)))


DELETE_RECORDS: Final = 21
TO_HIGH_WATERMARK: Final = -1


def delete_records(context: Context, request: Any) -> Answer:
    """Delete all records below each given offset; answer where each log begins now."""
    entity: Answer = fill(
        response_type(DELETE_RECORDS, context.api_version),
        topics=[
            {
                "name": topic.name,
                "partitions": [_answer(context, topic.name, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ],
    )
    return entity


def _answer(context: Context, topic: str, asked: Any) -> dict[str, Any]:
    try:
        low_watermark = _delete(context, topic, asked.partition_index, asked.offset)
    except Refused as refusal:
        return {
            "partition_index": asked.partition_index,
            "low_watermark": -1,
            "error_code": refusal.code,
        }
    return {
        "partition_index": asked.partition_index,
        "low_watermark": low_watermark,
        "error_code": ErrorCode.none,
    }


def _delete(context: Context, topic: str, index: int, offset: int) -> Offset:
    partition = context.broker.partitions.find(topic, index)
    if partition is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
    partition.check_leader(-1)
    if not partition.settings.retention.delete:
        raise Refused(
            ErrorCode.policy_violation, "a topic that is only compacted deletes no records"
        )
    log = partition.log
    target = log.high_watermark if offset == TO_HIGH_WATERMARK else Offset(offset)
    if not 0 <= target <= log.high_watermark:
        raise Refused(ErrorCode.offset_out_of_range, f"the log ends at {log.high_watermark}")
    if target > log.start_offset:
        log.advance_start_offset(target, context.broker.clock())
    return log.start_offset


HANDLERS = (
    Handler(CREATE_TOPICS, versions=(2, 7), handle=create_topics),
    Handler(DELETE_TOPICS, versions=(1, 6), handle=delete_topics),
    Handler(CREATE_PARTITIONS, versions=(0, 3), handle=create_partitions),
    Handler(DELETE_RECORDS, versions=(0, 2), handle=delete_records),
)
