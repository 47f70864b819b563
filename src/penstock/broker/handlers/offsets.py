"""Committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from penstock.broker.coordinators import partition_of
from penstock.broker.group_coordinators import OFFSETS_TOPIC
from penstock.broker.handler import Answer, Context, Handler, Held, hold, result_of
from penstock.broker.partition_lookup import topic_by_id
from penstock.broker.permissions import (
    AllOf,
    Operation,
    on_each_group,
    on_each_topic,
    on_group,
    on_transactional_id,
)
from penstock.broker.replies import when_all, when_decided, when_replied
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.broker.broker import ClusterView
    from penstock.protocol.fields import TopicKey

ResponseT = TypeVar("ResponseT")
UNKNOWN_TOPIC: Final = ErrorCode.unknown_topic_or_partition
_STALE_EPOCH_FROM: Final = 9  # OffsetCommit: STALE_MEMBER_EPOCH
_GROUP_ERROR_FROM: Final = 2  # OffsetFetch: before, each partition has it
_UNSTABLE_FROM: Final = 7  # OffsetFetch: UNSTABLE_OFFSET_COMMIT
_OTHER_COORDINATOR: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
_ADDS_PARTITION_FROM: Final = 5  # TxnOffsetCommit: AddOffsetsToTxn is no longer sent
_ABORTABLE_FROM: Final = 4  # TxnOffsetCommit: TRANSACTION_ABORTABLE


# OffsetCommit.


class _Topic(NamedTuple):
    """A topic of a commit, and why nothing can be committed to a partition: a code for each."""

    key: TopicKey  # as in the request
    partitions: Sequence[OffsetCommitPartition]
    codes: Sequence[ErrorCode]


def _resolve(
    cluster: ClusterView, topics: Iterable[tuple[TopicKey, Sequence[OffsetCommitPartition]]]
) -> tuple[list[_Topic], tuple[OffsetToCommit, ...]]:
    """The topics of a commit, and the offsets of those partitions that exist, in order."""
    resolved = []
    offsets = []
    for key, partitions in topics:
        known = cluster.topic(key) if isinstance(key, str) else topic_by_id(cluster, key)
        codes = []
        for index, offset, leader_epoch, metadata in partitions:
            if known is None:
                code = UNKNOWN_TOPIC if isinstance(key, str) else ErrorCode.unknown_topic_id
            elif 0 <= index < len(known.partitions):
                code = ErrorCode.none
                row = (known.name, index, offset, leader_epoch, metadata or "", known.topic_id)
                offsets.append(tuple.__new__(OffsetToCommit, row))
            else:
                code = UNKNOWN_TOPIC
            codes.append(code)
        resolved.append(tuple.__new__(_Topic, (key, partitions, codes)))
    return resolved, tuple(offsets)


def _response_of(
    make_response: Callable[[list[Any]], ResponseT],
    topic_form: type[tuple[Any, ...]],
    topics: Sequence[_Topic],
    result: CommitReply | Refused,
) -> ResponseT:
    """A response with the error code of each partition, by topic as in the request."""
    replied = repeat(result.code) if isinstance(result, Refused) else iter(result.codes)
    rows = []
    for key, partitions, codes in topics:
        errors = []
        for (index, *_), code in zip(partitions, codes, strict=True):
            row = (index, next(replied) if code is ErrorCode.none else code)
            errors.append(tuple.__new__(PartitionError, row))
        rows.append(tuple.__new__(topic_form, (key, errors)))
    return make_response(rows)


def offset_commit(context: Context, request: OffsetCommitRequest) -> Answer[OffsetCommitResponse]:
    """Commit offsets of a group: by a live member, or by any client while there are none."""
    group_id, generation, member_id, instance_id, requested, _ = request
    groups = context.broker.groups
    topics, offsets = _resolve(context.broker.cluster, requested)
    decided = groups.submit(
        group_id,
        lambda caller: CommitOffsets(
            caller,
            group_id,
            generation,
            member_id,
            instance_id,
            offsets,
            None,
            context.api_version >= _STALE_EPOCH_FROM,
            groups.config_of(group_id).is_monotonic,
        ),
    )
    return when_replied(
        decided, partial(_response_of, OffsetCommitResponse, OffsetCommitTopicResult, topics)
    )


# TxnOffsetCommit.


def txn_offset_commit(
    context: Context, request: TxnOffsetCommitRequest
) -> Answer[TxnOffsetCommitResponse]:
    """Offsets that take effect when the producer's transaction commits."""
    topics, offsets = _resolve(context.broker.cluster, request.topics)

    def respond(result: CommitReply | Refused) -> TxnOffsetCommitResponse:
        if isinstance(result, Refused):
            result = _for_producers(context, result)
        return _response_of(TxnOffsetCommitResponse, TxnOffsetCommitTopicResult, topics, result)

    try:
        verified = _verify(context, request)
    except Refused as refusal:
        return respond(refusal)
    if verified is None:
        return when_replied(_commit_in_transaction(context, request, offsets), respond)

    async def commit_when_verified(
        _held: Held[TxnOffsetCommitResponse],
    ) -> TxnOffsetCommitResponse:
        try:
            await result_of(verified)
            result = await result_of(_commit_in_transaction(context, request, offsets))
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
    context: Context, request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
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
            offsets,
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
    known = topic_by_id(context.broker.cluster, key)
    return None if known is None else known.name


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
        return _refused_group(context, group, result.code)
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


def _refused_group(
    context: Context, group: OffsetFetchGroup, code: ErrorCode
) -> OffsetFetchGroupResult:
    """The group's error, and rows where clients need them.

    librdkafka forgets partitions that a refusal does not name, and fetches nothing of them until
    the next rebalance. Those whose offset is unstable it requests again, from the coordinator that
    it finds then. Other clients read the group's error first.
    """
    topics = group.topics or ()
    if context.api_version < _GROUP_ERROR_FROM:
        return OffsetFetchGroupResult(group.group_id, _failed(topics, code))
    rows: Sequence[OffsetFetchTopicResult] = ()
    if code in _OTHER_COORDINATOR and context.api_version >= _UNSTABLE_FROM:
        rows = _failed(topics, ErrorCode.unstable_offset_commit)
    elif code is ErrorCode.stale_member_epoch:
        rows = _failed(topics, code)
    return OffsetFetchGroupResult(group.group_id, rows, code)


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
    topics, offsets = _resolve(
        context.broker.cluster,
        [
            (name, [OffsetCommitPartition(row.partition_index, -1) for row in partitions])
            for name, partitions in request.topics
        ],
    )
    existing = tuple((offset.topic, offset.partition) for offset in offsets)
    decided = context.broker.groups.submit(
        request.group_id, lambda caller: DeleteOffsets(caller, request.group_id, existing)
    )

    def respond(result: CommitReply) -> OffsetDeleteResponse:
        return _response_of(
            lambda rows: OffsetDeleteResponse(topics=rows), OffsetDeleteTopicResult, topics, result
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
