"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.broker.broker import ClusterView
from penstock.broker.coordinators import partition_of
from penstock.broker.group_coordinators import OFFSETS_TOPIC
from penstock.broker.handler import Answer, Context, Handler, Held, hold, result_of
from penstock.broker.partition_lookup import find_topic
from penstock.broker.permissions import (
    AllOf,
    Operation,
    on_each_group,
    on_each_topic,
    on_group,
    on_transactional_id,
)
from penstock.broker.replies import when_all, when_decided, when_replied
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
from penstock.model import ProducerEpoch, ProducerId, TopicPartition
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.offsets import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TOPIC_IDS_FROM,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResult,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopic,
    OffsetFetchTopicResult,
    PartitionError,
)
from penstock.protocol.messages.transactions import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopicResult,
)

_STALE_EPOCH_FROM: Final = 9  # OffsetCommit: STALE_MEMBER_EPOCH
_GROUP_ERROR_FROM: Final = 2  # OffsetFetch: before, each partition has it
_ADDS_PARTITION_FROM: Final = 5  # TxnOffsetCommit: AddOffsetsToTxn is no longer sent
_ABORTABLE_FROM: Final = 4  # TxnOffsetCommit: TRANSACTION_ABORTABLE


# OffsetCommit.


class _Topic(NamedTuple):
    """A topic of a commit, and what the cluster knows of it."""

    key: TopicKey  # as in the request
    name: str
    topic_id: UUID
    code: ErrorCode  # why nothing can be committed to it
    partition_count: int
    partitions: Sequence[OffsetCommitPartition]

    def code_of(self, index: int) -> ErrorCode:
        """Why nothing can be committed to one of its partitions."""
        if self.code is ErrorCode.none and not 0 <= index < self.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return self.code


def _find_topics(
    cluster: ClusterView, topics: Iterable[tuple[TopicKey, Sequence[OffsetCommitPartition]]]
) -> list[_Topic]:
    rows = []
    for key, partitions in topics:
        try:
            known = find_topic(cluster, key)
        except Refused as refusal:
            rows.append(_Topic(key, "", NO_TOPIC_ID, refusal.code, 0, partitions))
        else:
            count = len(known.partitions)
            row = (key, known.name, known.topic_id, ErrorCode.none, count, partitions)
            rows.append(tuple.__new__(_Topic, row))
    return rows


def _offsets_of(topics: Sequence[_Topic]) -> tuple[OffsetToCommit, ...]:
    offsets = []
    for topic in topics:
        for index, offset, leader_epoch, metadata in topic.partitions:
            if topic.code_of(index) is ErrorCode.none:
                row = (topic.name, index, offset, leader_epoch, metadata or "", topic.topic_id)
                offsets.append(tuple.__new__(OffsetToCommit, row))
    return tuple(offsets)


def _results_of(
    topics: Sequence[_Topic], result: CommitReply | Refused
) -> list[tuple[TopicKey, list[PartitionError]]]:
    """The error code of each partition, by topic as in the request."""
    codes = repeat(result.code) if isinstance(result, Refused) else iter(result.codes)
    results = []
    for topic in topics:
        rows = []
        for index, *_ in topic.partitions:
            code = topic.code_of(index)
            row = (index, next(codes) if code is ErrorCode.none else code)
            rows.append(tuple.__new__(PartitionError, row))
        results.append((topic.key, rows))
    return results


def offset_commit(context: Context, request: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    """Commit offsets of a group: by a live member, or by any client while there are none."""
    group_id, generation, member_id, instance_id, requested, _ = request
    broker = context.broker
    topics = _find_topics(broker.cluster, requested)
    groups = broker.groups
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
            context.api_version >= _STALE_EPOCH_FROM,
            groups.config_of(group_id).is_monotonic,
        ),
    )
    return when_replied(decided, partial(_commit_response, topics))


def _commit_response(
    topics: Sequence[_Topic], result: CommitReply | Refused
) -> OffsetCommitResponse:
    rows = [tuple.__new__(OffsetCommitTopicResult, row) for row in _results_of(topics, result)]
    return OffsetCommitResponse(rows)


# TxnOffsetCommit.


def txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest
) -> Answer[TxnOffsetCommitResponse]:
    """Offsets that take effect when the producer's transaction commits."""
    topics = _find_topics(context.broker.cluster, request.topics)

    def respond(result: CommitReply | Refused) -> TxnOffsetCommitResponse:
        if isinstance(result, Refused):
            result = _for_producers(context, result)
        rows = _results_of(topics, result)
        return TxnOffsetCommitResponse(
            [TxnOffsetCommitTopicResult(str(key), row) for key, row in rows]
        )

    try:
        verified = _verify(context, request)
    except Refused as refusal:
        return respond(refusal)
    if verified is None:
        return when_replied(_commit_in_transaction(context, request, topics), respond)

    async def commit_when_verified(
        held: Held[TxnOffsetCommitResponse],
    ) -> TxnOffsetCommitResponse:
        try:
            await result_of(verified)
            result = await result_of(_commit_in_transaction(context, request, topics))
        except Refused as refusal:
            result = refusal
        return respond(result)

    return hold(commit_when_verified)


def _verify(context: Context, request: TxnOffsetCommitRequest) -> Deferred[None] | None:
    """The group's partition of the offsets topic must be in the producer's open transaction."""
    topic = context.broker.cluster.topic(OFFSETS_TOPIC)
    if topic is None:
        raise Refused(ErrorCode.not_coordinator, "no coordinator has been requested yet")
    index = partition_of(request.group_id, len(topic.partitions))
    return context.broker.transactions.verify(
        request.transactional_id,
        ProducerId(request.producer_id),
        ProducerEpoch(request.producer_epoch),
        (TopicPartition(OFFSETS_TOPIC, index),),
        add=context.api_version >= _ADDS_PARTITION_FROM,
    )


def _for_producers(context: Context, refusal: Refused) -> Refused:
    if refusal.code is ErrorCode.producer_fenced:
        return Refused(ErrorCode.invalid_producer_epoch, refusal.message)
    if refusal.code is ErrorCode.transaction_abortable and context.api_version < _ABORTABLE_FROM:
        return Refused(ErrorCode.invalid_txn_state, refusal.message)
    return refusal


def _commit_in_transaction(
    context: Context, request: TxnOffsetCommitRequest, topics: Sequence[_Topic]
) -> object:
    mark = TransactionMark(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
    groups = context.broker.groups
    return groups.submit(
        request.group_id,
        lambda caller: CommitOffsets(
            caller,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            _offsets_of(topics),
            mark,
            is_monotonic=groups.config_of(request.group_id).is_monotonic,
        ),
    )


# OffsetFetch.


def offset_fetch(context: Context, request: OffsetFetchRequest) -> Answer[OffsetFetchResponse]:
    """The committed offsets of groups. None committed is no error."""
    groups = request.groups
    decided = [_fetch(context, group, request.require_stable) for group in groups]

    def respond(results: list[Any]) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            [_fetched(context, *row) for row in zip(groups, results, strict=True)]
        )

    return when_all(decided, respond)


def _name_of(context: Context, key: TopicKey) -> str | None:
    if isinstance(key, str):
        return key
    try:
        return find_topic(context.broker.cluster, key).name
    except Refused:
        return None


def _fetch(context: Context, group: OffsetFetchGroup, require_stable: bool) -> object:
    partitions = None
    if group.topics is not None:
        named = ((_name_of(context, key), indexes) for key, indexes in group.topics)
        partitions = tuple((name, index) for name, indexes in named if name for index in indexes)
    return context.broker.groups.submit(
        group.group_id,
        lambda caller: FetchOffsets(
            caller, group.group_id, partitions, require_stable, group.member_id, group.member_epoch
        ),
    )


def _fetched(
    context: Context, group: OffsetFetchGroup, result: FetchOffsetsReply | Refused
) -> OffsetFetchGroupResult:
    if isinstance(result, Refused):
        if context.api_version >= _GROUP_ERROR_FROM:
            return OffsetFetchGroupResult(group.group_id, (), result.code)
        return OffsetFetchGroupResult(group.group_id, _failed(group.topics or (), result.code))
    by_name: dict[str, list[OffsetFetchPartition]] = {}
    for topic, partition, offset, leader_epoch, metadata, code in result.offsets:
        row = OffsetFetchPartition(partition, offset, leader_epoch, metadata, code)
        by_name.setdefault(topic, []).append(row)
    if context.api_version < TOPIC_IDS_FROM:
        topics = [OffsetFetchTopicResult(*each) for each in by_name.items()]
        return OffsetFetchGroupResult(group.group_id, topics)
    topics = []
    for name, rows in by_name.items():
        known = context.broker.cluster.topic(name)
        if known is not None:  # offsets of a deleted topic have no id to be shown under
            topics.append(OffsetFetchTopicResult(known.topic_id.bytes, rows))
    unknown = [topic for topic in group.topics or () if _name_of(context, topic.topic) is None]
    topics += _failed(unknown, ErrorCode.unknown_topic_id)
    return OffsetFetchGroupResult(group.group_id, topics)


def _failed(topics: Iterable[OffsetFetchTopic], code: ErrorCode) -> list[OffsetFetchTopicResult]:
    return [
        OffsetFetchTopicResult(
            key, [OffsetFetchPartition(index, error_code=code) for index in indexes]
        )
        for key, indexes in topics
    ]


# OffsetDelete.


def offset_delete(context: Context, request: OffsetDeleteRequest) -> Answer[OffsetDeleteResponse]:
    """Delete offsets of topics that no member of the group is subscribed to."""
    topics = _find_topics(
        context.broker.cluster,
        [
            (name, [OffsetCommitPartition(row.partition_index, -1) for row in partitions])
            for name, partitions in request.topics
        ],
    )
    existing = tuple(
        (topic.name, row.partition_index)
        for topic in topics
        for row in topic.partitions
        if topic.code_of(row.partition_index) is ErrorCode.none
    )
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: DeleteOffsets(caller, request.group_id, existing)
    )

    def respond(result: CommitReply) -> OffsetDeleteResponse:
        rows = _results_of(topics, result)
        return OffsetDeleteResponse(
            topics=[OffsetDeleteTopicResult(str(key), row) for key, row in rows]
        )

    return when_decided(context, request, decided, respond)


HANDLERS = (
    Handler(
        OFFSET_COMMIT,
        versions=(2, 10),
        handle=offset_commit,
        allow=AllOf(on_group(Operation.READ), on_each_topic(Operation.READ)),
    ),
    Handler(
        OFFSET_FETCH,
        versions=(1, 10),
        handle=offset_fetch,
        allow=AllOf(on_each_group(Operation.DESCRIBE), on_each_topic(Operation.DESCRIBE)),
    ),
    Handler(
        TXN_OFFSET_COMMIT,
        versions=(0, 5),
        handle=txn_offset_commit,
        allow=AllOf(
            on_transactional_id(Operation.WRITE),
            on_group(Operation.READ),
            on_each_topic(Operation.READ),
        ),
    ),
    Handler(
        OFFSET_DELETE,
        versions=(0, 0),
        handle=offset_delete,
        allow=AllOf(on_group(Operation.DELETE), on_each_topic(Operation.READ)),
    ),
)
