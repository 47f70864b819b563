"""CommitReply offsets: OffsetCommit, OffsetFetch, OffsetDelete, and commits inside transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.broker.coordinators import partition_of
from penstock.broker.group_coordinators import OFFSETS_TOPIC
from penstock.broker.handler import (
    Answer,
    Answered,
    Context,
    Handler,
    RequestReader,
    hold,
    result_of,
)
from penstock.broker.handlers.replies import respond, when_all, when_decided
from penstock.coordination.groups.codec import NO_TOPIC_ID
from penstock.coordination.groups.commands import (
    CommitOffsets,
    CommitReply,
    DeleteOffsets,
    FetchOffsets,
    FetchOffsetsReply,
    OffsetToCommit,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred, TransactionMark
from penstock.model import ProducerEpoch, ProducerId, TopicId, TopicPartition
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.offsets import (
    GROUPS_FROM,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TOPIC_IDS_FROM,
    CommittedPartition,
    CommitTopic,
    CommitTopicResult,
    FetchedGroup,
    FetchedPartition,
    FetchedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchResponse,
    committed_partitions,
    read_commit_request,
    write_commit_response,
    write_fetch_response,
)

TXN_OFFSET_COMMIT: Final = 28
OFFSET_DELETE: Final = 47

_EPOCHS_FROM: Final = 9  # OffsetCommit: knows STALE_MEMBER_EPOCH
_GROUP_ERROR_FROM: Final = 2  # OffsetFetch: before, each partition says it
_ADDS_PARTITION_FROM: Final = 5  # TxnOffsetCommit: AddOffsetsToTxn is no longer sent
_ABORTABLE_FROM: Final = 4  # TxnOffsetCommit: knows TRANSACTION_ABORTABLE


class _Topic(NamedTuple):
    """A topic of a commit, and what the cluster knows of it."""

    key: TopicKey  # as the request names it
    name: str
    topic_id: UUID
    code: ErrorCode  # why nothing can be committed to it
    partition_count: int
    partitions: Sequence[CommittedPartition]

    def code_of(self, index: int) -> ErrorCode:
        """Why nothing can be committed to one of its partitions."""
        if self.code is ErrorCode.none and not 0 <= index < self.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return self.code


def _find_topics(context: Context, topics: Iterable[CommitTopic]) -> list[_Topic]:
    cluster = context.broker.cluster
    found = []
    for key, partitions in topics:
        if isinstance(key, str):
            known, code = cluster.topic(key), ErrorCode.unknown_topic_or_partition
        else:
            known = cluster.topic_by_id(TopicId(UUID(bytes=key)))
            code = ErrorCode.unknown_topic_id
        if known is None:
            found.append(_Topic(key, "", NO_TOPIC_ID, code, 0, partitions))
        else:
            count = len(known.partitions)
            row = (key, known.name, known.topic_id, ErrorCode.none, count, partitions)
            found.append(tuple.__new__(_Topic, row))
    return found


def _offsets_of(topics: Sequence[_Topic]) -> tuple[OffsetToCommit, ...]:
    offsets = []
    for topic in topics:
        for index, offset, leader_epoch, metadata in topic.partitions:
            if topic.code_of(index) is ErrorCode.none:
                row = (topic.name, index, offset, leader_epoch, metadata, topic.topic_id)
                offsets.append(tuple.__new__(OffsetToCommit, row))
    return tuple(offsets)


def _results_of(
    topics: Sequence[_Topic], result: CommitReply | Refused
) -> list[tuple[TopicKey, list[tuple[int, ErrorCode]]]]:
    """Partition and error code of each commit, by topic as the request named it."""
    codes = repeat(result.code) if isinstance(result, Refused) else iter(result.codes)
    results = []
    for topic in topics:
        row = []
        for entry in topic.partitions:
            code = topic.code_of(entry.partition)
            row.append((entry.partition, next(codes) if code is ErrorCode.none else code))
        results.append((topic.key, row))
    return results


def offset_commit(context: Context, request: OffsetCommitRequest) -> Answer:
    """Commit offsets of a group: by a live member, or by any client while there are none."""
    group_id, generation, member_id, instance_id, requested = request
    topics = _find_topics(context, requested)
    groups = context.broker.groups
    decided = groups.submit(
        group_id,
        lambda caller: CommitOffsets(
            caller,
            group_id,
            generation,
            member_id,
            instance_id,
            _offsets_of(topics),
            None,
            context.api_version >= _EPOCHS_FROM,
            groups.config_of(group_id).is_monotonic,
        ),
    )
    return when_decided(decided, partial(_commit_response, topics))


def _commit_response(
    topics: Sequence[_Topic], result: CommitReply | Refused
) -> OffsetCommitResponse:
    rows = [CommitTopicResult(*row) for row in _results_of(topics, result)]
    return OffsetCommitResponse(rows)


def txn_offset_commit(context: Context, request: Any) -> Answer:
    """Offsets that count when the producer's transaction commits."""
    topics = _find_topics(context, _named_topics(request.topics))

    def answer(result: Any) -> Answered:
        return respond(context, topics=_rows(topics, _for_producers(context, result)))

    try:
        verified = _verified(context, request)
    except Refused as refusal:
        return answer(refusal)
    if verified is None:
        return when_decided(_commit_in_transaction(context, request, topics), answer)

    async def commit_when_verified() -> Answered:
        try:
            await result_of(verified)
            result = await result_of(_commit_in_transaction(context, request, topics))
        except Refused as refusal:
            result = refusal
        return answer(result)

    return hold(lambda _: commit_when_verified())


def _named_topics(topics: Iterable[Any]) -> list[CommitTopic]:
    return [CommitTopic(topic.name, committed_partitions(topic)) for topic in topics]


def _rows(topics: Sequence[_Topic], result: CommitReply | Refused) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in row],
        }
        for name, row in _results_of(topics, result)
    ]


def _verified(context: Context, request: Any) -> Deferred[None] | None:
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


def _commit_in_transaction(context: Context, request: Any, topics: Sequence[_Topic]) -> object:
    mark = TransactionMark(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    groups = context.broker.groups
    return groups.submit(
        request.group_id,
        lambda caller: CommitOffsets(
            caller,
            request.group_id,
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
            _offsets_of(topics),
            mark,
            is_monotonic=groups.config_of(request.group_id).is_monotonic,
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
    if context.api_version >= GROUPS_FROM:
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
        return OffsetFetchResponse(groups)

    return when_all(decided, answer)


def _name_of(context: Context, topic: Any) -> str | None:
    if context.api_version < TOPIC_IDS_FROM:
        return str(topic.name)
    known = context.broker.cluster.topic_by_id(TopicId(topic.topic_id or NO_TOPIC_ID))
    return None if known is None else known.name


def _fetch(context: Context, group: _AskedGroup, *, require_stable: bool) -> object:
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
    context: Context, group: _AskedGroup, result: FetchOffsetsReply | Refused
) -> FetchedGroup:
    if isinstance(result, Refused):
        if context.api_version >= _GROUP_ERROR_FROM:
            return FetchedGroup(group.group_id, (), result.code)
        return FetchedGroup(group.group_id, _failed(group.topics, result.code))
    by_name: dict[str, list[FetchedPartition]] = {}
    for topic, partition, offset, leader_epoch, metadata, code in result.offsets:
        row = FetchedPartition(partition, offset, leader_epoch, metadata, code)
        by_name.setdefault(topic, []).append(row)
    if context.api_version < TOPIC_IDS_FROM:
        topics = [FetchedTopic(name, rows) for name, rows in by_name.items()]
        return FetchedGroup(group.group_id, topics)
    topics = []
    for name, rows in by_name.items():
        known = context.broker.cluster.topic(name)
        if known is not None:  # what is left of a deleted topic has no id to be shown under
            topics.append(FetchedTopic(known.topic_id.bytes, rows))
    unknown = [topic for topic in group.topics or () if _name_of(context, topic) is None]
    return FetchedGroup(group.group_id, topics + _failed(unknown, ErrorCode.unknown_topic_id))


def _failed(topics: Iterable[Any], code: ErrorCode) -> list[FetchedTopic]:
    return [
        FetchedTopic(
            topic.name if hasattr(topic, "name") else (topic.topic_id or NO_TOPIC_ID).bytes,
            [FetchedPartition(index, error_code=code) for index in topic.partition_indexes],
        )
        for topic in topics
    ]


def offset_delete(context: Context, request: Any) -> Answer:
    """Forget offsets of topics that nobody in the group is subscribed to."""
    topics = _find_topics(
        context,
        [
            CommitTopic(
                topic.name,
                [CommittedPartition(row.partition_index, -1) for row in topic.partitions],
            )
            for topic in request.topics
        ],
    )
    existing = tuple(
        (topic.name, row.partition)
        for topic in topics
        if topic.code is ErrorCode.none
        for row in topic.partitions
    )
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: DeleteOffsets(caller, request.group_id, existing)
    )

    def answer(result: Any) -> Answered:
        if isinstance(result, Refused):
            return respond(context, error_code=result.code, topics=[])
        return respond(context, error_code=ErrorCode.none, topics=_rows(topics, result))

    return when_decided(decided, answer)


def _commit_reader(version: int) -> RequestReader:
    return lambda frame, position: (read_commit_request(frame, position, version), len(frame))


HANDLERS = (
    Handler(
        OFFSET_COMMIT,
        versions=(2, 10),
        handle=offset_commit,
        read=_commit_reader,
        write=write_commit_response,
    ),
    Handler(OFFSET_FETCH, versions=(1, 10), handle=offset_fetch, write=write_fetch_response),
    Handler(TXN_OFFSET_COMMIT, versions=(0, 5), handle=txn_offset_commit),
    Handler(OFFSET_DELETE, versions=(0, 0), handle=offset_delete),
)
