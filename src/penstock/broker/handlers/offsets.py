"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete, and commits inside transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.broker.coordinators import partition_of
from penstock.broker.groups import OFFSETS_TOPIC
from penstock.broker.handler import Answer, Answered, Context, Handler, RequestReader, hold
from penstock.broker.handlers.commit_one import EPOCHS_FROM, commit_one
from penstock.broker.handlers.controlling import respond
from penstock.broker.handlers.gathering import when_all_decided
from penstock.broker.handlers.groups import when_answered
from penstock.coordination.groups.commands import (
    CommitOffsets,
    Committed,
    DeleteOffsets,
    Fetched,
    FetchOffsets,
    OffsetToCommit,
)
from penstock.coordination.groups.offset_records import NO_TOPIC_ID
from penstock.errors import ErrorCode, Refused
from penstock.machine import TransactionStamp
from penstock.model import ProducerEpoch, ProducerId, TopicId, TopicPartition
from penstock.protocol.answers import offset_commit as commit_answers
from penstock.protocol.answers import offset_fetch as fetch_answers
from penstock.protocol.commit_request import OneCommit, read_one_commit
from penstock.protocol.messages import request_reader

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
TXN_OFFSET_COMMIT: Final = 28
OFFSET_DELETE: Final = 47

_TOPIC_IDS_FROM: Final = 10  # OffsetCommit and OffsetFetch
_GROUPS_FROM: Final = 8  # OffsetFetch asks for several groups
_GROUP_ERROR_FROM: Final = 2  # OffsetFetch: before, each partition says it
_ADDS_PARTITION_FROM: Final = 5  # TxnOffsetCommit: AddOffsetsToTxn is no longer sent
_ABORTABLE_FROM: Final = 4  # TxnOffsetCommit: knows TRANSACTION_ABORTABLE


class _AskedTopic(NamedTuple):
    """A topic of a commit, whichever way it was named."""

    name: str
    topic_id: UUID
    code: ErrorCode  # why nothing can be committed to it
    partitions: Any
    partition_count: int = 0  # how many there are

    def code_of(self, index: int) -> ErrorCode:
        """Why nothing can be committed to one of its partitions."""
        if self.code is ErrorCode.none and not 0 <= index < self.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return self.code


def _asked_topics(context: Context, topics: Iterable[Any]) -> list[_AskedTopic]:
    cluster = context.broker.cluster
    asked = []
    for topic in topics:
        if context.api_key == OFFSET_COMMIT and context.api_version >= _TOPIC_IDS_FROM:
            topic_id = topic.topic_id or NO_TOPIC_ID
            known = cluster.topic_by_id(TopicId(topic_id))
            code = ErrorCode.unknown_topic_id
        else:
            topic_id = NO_TOPIC_ID
            known = cluster.topic(topic.name)
            code = ErrorCode.unknown_topic_or_partition
        if known is None:
            name = getattr(topic, "name", "")
            asked.append(_AskedTopic(name, topic_id, code, topic.partitions))
        else:
            count = len(known.partitions)
            row = _AskedTopic(known.name, known.topic_id, ErrorCode.none, topic.partitions, count)
            asked.append(row)
    return asked


def _offsets_of(asked: Sequence[_AskedTopic]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        [
            OffsetToCommit(
                topic.name,
                entry.partition_index,
                entry.committed_offset,
                getattr(entry, "committed_leader_epoch", -1),
                entry.committed_metadata or "",
                topic.topic_id,
            )
            for topic in asked
            for entry in topic.partitions
            if topic.code_of(entry.partition_index) is ErrorCode.none
        ]
    )


def _codes_by_topic(
    asked: Sequence[_AskedTopic], result: Committed | Refused
) -> list[tuple[_AskedTopic, list[tuple[int, ErrorCode]]]]:
    codes = repeat(result.code) if isinstance(result, Refused) else iter(result.codes)
    rows = []
    for topic in asked:
        row = []
        for entry in topic.partitions:
            code = topic.code_of(entry.partition_index)
            row.append((entry.partition_index, next(codes) if code is ErrorCode.none else code))
        rows.append((topic, row))
    return rows


def offset_commit(context: Context, request: Any) -> Answer:
    """Where a group is; from a live member, or from anybody while there are none."""
    if type(request) is OneCommit:
        return commit_one(context, request)
    asked = _asked_topics(context, request.topics)
    groups, group_id = context.broker.groups, request.group_id
    decided = groups.ask(
        group_id,
        lambda caller: CommitOffsets(
            caller,
            group_id,
            request.generation_id_or_member_epoch,
            request.member_id,
            getattr(request, "group_instance_id", None),
            _offsets_of(asked),
            None,
            context.api_version >= EPOCHS_FROM,
            groups.rules_of(group_id).is_monotonic,
        ),
    )

    def answer(result: Any) -> Answered:
        version, throttle_ms = context.api_version, context.throttle_ms
        by_id = version >= _TOPIC_IDS_FROM
        topics = [
            commit_answers.TopicAnswer(topic.name, codes, topic.topic_id.bytes if by_id else b"")
            for topic, codes in _codes_by_topic(asked, result)
        ]
        return commit_answers.pack_offset_commit(version, topics, throttle_ms=throttle_ms)

    return when_answered(decided, answer)


def txn_offset_commit(context: Context, request: Any) -> Answer:
    """Offsets that count when the producer's transaction commits."""
    asked = _asked_topics(context, request.topics)

    def answer(result: Any) -> Answered:
        rows = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index, code in row
                ],
            }
            for topic, row in _codes_by_topic(asked, _for_producers(context, result))
        ]
        return respond(context, topics=rows)

    try:
        verified = _verified(context, request)
    except Refused as refusal:
        return answer(refusal)
    if verified is None:
        return when_answered(_commit_in_transaction(context, request, asked), answer)

    async def commit_when_verified() -> Answered:
        try:
            await verified
            result = await _commit_in_transaction(context, request, asked)
        except Refused as refusal:
            result = refusal
        return answer(result)

    return hold(lambda _: commit_when_verified())


def _verified(context: Context, request: Any) -> asyncio.Future[Any] | None:
    """The group's partition of the offsets topic must be in the producer's open transaction."""
    topic = context.broker.cluster.topic(OFFSETS_TOPIC)
    if topic is None:
        raise Refused(ErrorCode.not_coordinator, "nobody has asked for a coordinator yet")
    index = partition_of(request.group_id, len(topic.partitions))
    return context.broker.transactions.verify(
        request.transactional_id,
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
        (TopicPartition(OFFSETS_TOPIC, index),),
        add=context.api_version >= _ADDS_PARTITION_FROM,
    )


def _for_producers(context: Context, result: Any) -> Any:
    if not isinstance(result, Refused):
        return result
    if result.code is ErrorCode.producer_fenced:
        return Refused(ErrorCode.invalid_producer_epoch, result.message)
    if result.code is ErrorCode.transaction_abortable and context.api_version < _ABORTABLE_FROM:
        return Refused(ErrorCode.invalid_txn_state, result.message)
    return result


def _commit_in_transaction(
    context: Context, request: Any, asked: Sequence[_AskedTopic]
) -> asyncio.Future[Any]:
    stamp = TransactionStamp(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    groups = context.broker.groups
    return groups.submit(
        request.group_id,
        lambda caller: CommitOffsets(
            caller,
            request.group_id,
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
            _offsets_of(asked),
            stamp,
            is_monotonic=groups.rules_of(request.group_id).is_monotonic,
        ),
    )


class _AskedGroup(NamedTuple):
    """A group of an offset fetch, whichever version asks."""

    group_id: str
    topics: Any  # None: all
    member_id: str | None
    member_epoch: int


def offset_fetch(context: Context, request: Any) -> Answer:
    """Where groups are. Nothing committed is no error."""
    if context.api_version >= _GROUPS_FROM:
        asked = [
            _AskedGroup(
                group.group_id,
                group.topics,
                getattr(group, "member_id", None),
                getattr(group, "member_epoch", -1),
            )
            for group in request.groups
        ]
    else:
        asked = [_AskedGroup(request.group_id, request.topics, None, -1)]
    stable = getattr(request, "require_stable", False)
    decided = [_fetch(context, group, require_stable=stable) for group in asked]

    def answer(results: list[Any]) -> Answered:
        groups = [
            _fetched_group(context, group, result)
            for group, result in zip(asked, results, strict=True)
        ]
        version, throttle_ms = context.api_version, context.throttle_ms
        return [fetch_answers.pack_offset_fetch(version, groups, throttle_ms=throttle_ms)]

    return when_all_decided(decided, answer)


def _name_of(context: Context, topic: Any) -> str | None:
    if context.api_version < _TOPIC_IDS_FROM:
        return str(topic.name)
    known = context.broker.cluster.topic_by_id(TopicId(topic.topic_id or NO_TOPIC_ID))
    return None if known is None else known.name


def _fetch(context: Context, group: _AskedGroup, *, require_stable: bool) -> asyncio.Future[Any]:
    wanted = None
    if group.topics is not None:
        named = ((_name_of(context, topic), topic.partition_indexes) for topic in group.topics)
        wanted = tuple((name, index) for name, held in named if name for index in held)
    return context.broker.groups.submit(
        group.group_id,
        lambda caller: FetchOffsets(
            caller, group.group_id, wanted, require_stable, group.member_id, group.member_epoch
        ),
    )


def _fetched_group(
    context: Context, group: _AskedGroup, result: Fetched | Refused
) -> fetch_answers.GroupAnswer:
    if isinstance(result, Refused):
        if context.api_version >= _GROUP_ERROR_FROM:
            return fetch_answers.GroupAnswer(group.group_id, (), result.code)
        return fetch_answers.GroupAnswer(group.group_id, _failed(group, result.code))
    by_name: dict[str, list[fetch_answers.PartitionAnswer]] = {}
    for topic, partition, offset, leader_epoch, metadata, code in result.offsets:
        row = fetch_answers.PartitionAnswer(partition, offset, leader_epoch, metadata, code)
        by_name.setdefault(topic, []).append(row)
    if context.api_version < _TOPIC_IDS_FROM:
        topics = [fetch_answers.TopicAnswer(name, held) for name, held in by_name.items()]
        return fetch_answers.GroupAnswer(group.group_id, topics)
    topics = []
    for name, held in by_name.items():
        known = context.broker.cluster.topic(name)
        if known is not None:  # what is left of a deleted topic has no id to be shown under
            topics.append(fetch_answers.TopicAnswer(name, held, known.topic_id.bytes))
    unknown = [topic for topic in group.topics or () if _name_of(context, topic) is None]
    topics += _unknown(unknown)
    return fetch_answers.GroupAnswer(group.group_id, topics)


def _failed(group: _AskedGroup, code: ErrorCode) -> list[fetch_answers.TopicAnswer]:
    return [
        fetch_answers.TopicAnswer(
            topic.name,
            [
                fetch_answers.PartitionAnswer(index, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in group.topics
    ]


def _unknown(topics: Iterable[Any]) -> list[fetch_answers.TopicAnswer]:
    return [
        fetch_answers.TopicAnswer(
            "",
            [
                fetch_answers.PartitionAnswer(index, error_code=ErrorCode.unknown_topic_id)
                for index in topic.partition_indexes
            ],
            (topic.topic_id or NO_TOPIC_ID).bytes,
        )
        for topic in topics
    ]


def offset_delete(context: Context, request: Any) -> Answer:
    """Forget offsets of topics that nobody in the group is subscribed to."""
    asked = _asked_topics(context, request.topics)
    wanted = tuple(
        (topic.name, entry.partition_index)
        for topic in asked
        if topic.code is ErrorCode.none
        for entry in topic.partitions
    )
    decided = context.broker.groups.ask(
        request.group_id, lambda caller: DeleteOffsets(caller, request.group_id, wanted)
    )

    def answer(result: Any) -> Answered:
        if isinstance(result, Refused):
            return respond(context, error_code=result.code, topics=[])
        rows = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": code} for index, code in row
                ],
            }
            for topic, row in _codes_by_topic(asked, result)
        ]
        return respond(context, error_code=ErrorCode.none, topics=rows)

    return when_answered(decided, answer)


def _commit_reader(version: int) -> RequestReader:
    read_any = request_reader(OFFSET_COMMIT, version)

    def read(frame: memoryview, position: int) -> tuple[Any, int]:
        one = read_one_commit(frame, position, version)
        return read_any(frame, position) if one is None else (one, len(frame))

    return read


HANDLERS = (
    Handler(OFFSET_COMMIT, versions=(2, 10), handle=offset_commit, read=_commit_reader),
    Handler(OFFSET_FETCH, versions=(1, 10), handle=offset_fetch),
    Handler(TXN_OFFSET_COMMIT, versions=(0, 5), handle=txn_offset_commit),
    Handler(OFFSET_DELETE, versions=(0, 0), handle=offset_delete),
)
