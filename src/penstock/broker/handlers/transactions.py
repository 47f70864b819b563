"""Transactional producers: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Error codes are translated here for older versions of a request; the coordinator knows only the
newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.coordinators import partition_of
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.new_topics import create_internal
from penstock.broker.permissions import (
    AllOf,
    AnyOf,
    Operation,
    Permission,
    ResourceType,
    on_cluster,
    on_each_topic,
    on_group,
    on_transactional_id,
)
from penstock.broker.replies import when_all, when_replied
from penstock.coordination.transactions import IfMissing, MissingPartitions, ProducerIdentity
from penstock.errors import ErrorCode, Refused
from penstock.model import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from penstock.protocol.api import Api
from penstock.protocol.messages.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    AddedPartition,
    AddedPartitions,
    AddedTopic,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

OFFSETS_TOPIC: Final = "__consumer_offsets"
_PRODUCER_FENCED_FROM: Final = {  # before, INVALID_PRODUCER_EPOCH
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}
_VERSION_2_FROM: Final = 4  # AddPartitionsToTxn: sent by brokers for transaction protocol 2
_ABORTABLE_FROM: Final = 5  # AddPartitionsToTxn: TRANSACTION_ABORTABLE
_RAISES_EPOCH_FROM: Final = 5  # EndTxn


def init_producer_id(
    context: Context, request: InitProducerIdRequest
) -> Answer[InitProducerIdResponse]:
    """A producer id and epoch: new for an idempotent producer, stored by id for others."""
    transactions = context.broker.transactions
    expected = _expected(request)
    if request.transactional_id is None:
        return InitProducerIdResponse(
            producer_id=transactions.producer_ids.take(), producer_epoch=0
        )
    timeout_ms = Millis(request.transaction_timeout_ms)
    decided = transactions.init_producer(request.transactional_id, timeout_ms, expected)

    def respond(result: ProducerIdentity | Refused) -> InitProducerIdResponse:
        if isinstance(result, Refused):
            return InitProducerIdResponse(_code(context, result))
        return InitProducerIdResponse(ErrorCode.none, result.producer_id, result.producer_epoch)

    return when_replied(decided, respond)


def _expected(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """The producer that the client had before, which it sends from version 3 on."""
    producer_id, producer_epoch = request.producer_id, request.producer_epoch
    if (producer_id, producer_epoch) == (NO_PRODUCER, NO_PRODUCER_EPOCH):
        return None
    if producer_id == NO_PRODUCER or producer_epoch == NO_PRODUCER_EPOCH:
        raise Refused(ErrorCode.invalid_request, "give both a producer id and its epoch")
    return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(producer_epoch))


# Partitions.


def add_partitions_to_txn(
    context: Context, request: AddPartitionsToTxnRequest
) -> Answer[AddPartitionsToTxnResponse]:
    """Add partitions to transactions, or verify that they are in them."""

    def respond(results: list[Any]) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            [
                _added(context, transaction, result)
                for transaction, result in zip(request.transactions, results, strict=True)
            ]
        )

    decided = [_add(context, transaction) for transaction in request.transactions]
    return when_all(decided, respond)


class _Unknown(NamedTuple):
    """Some partitions do not exist, so none was added."""

    partitions: frozenset[TopicPartition]


def _add(context: Context, transaction: TransactionPartitions) -> object:
    partitions = [
        TopicPartition(name, index) for name, indexes in transaction.topics for index in indexes
    ]
    unknown = frozenset(target for target in partitions if not _exists(context, target))
    if unknown:
        return _Unknown(unknown)
    return context.broker.transactions.add_partitions(
        transaction.transactional_id,
        _producer(transaction),
        partitions,
        if_missing=IfMissing.REFUSE if transaction.verify_only else IfMissing.ADD,
        client_version=2 if context.api_version >= _VERSION_2_FROM else 0,
    )


def _producer(
    request: TransactionPartitions | AddOffsetsToTxnRequest | EndTxnRequest,
) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))


def _exists(context: Context, target: TopicPartition) -> bool:
    topic = context.broker.cluster.topic(target.topic)
    return topic is not None and 0 <= target.partition < len(topic.partitions)


def _added(context: Context, transaction: TransactionPartitions, result: object) -> AddedPartitions:
    return AddedPartitions(
        transaction.transactional_id,
        [
            AddedTopic(
                name,
                [
                    AddedPartition(
                        index, _partition_code(context, TopicPartition(name, index), result)
                    )
                    for index in indexes
                ],
            )
            for name, indexes in transaction.topics
        ],
    )


def _partition_code(context: Context, target: TopicPartition, result: object) -> ErrorCode:
    match result:
        case Refused():
            return _code(context, result)
        case _Unknown(partitions):
            is_unknown = target in partitions
            return (
                ErrorCode.unknown_topic_or_partition
                if is_unknown
                else ErrorCode.operation_not_attempted
            )
        case MissingPartitions(partitions) if target in partitions:
            knows_abortable = context.api_version >= _ABORTABLE_FROM
            return (
                ErrorCode.transaction_abortable if knows_abortable else ErrorCode.invalid_txn_state
            )
        case _:
            return ErrorCode.none


# Offsets, and the end.


def add_offsets_to_txn(
    context: Context, request: AddOffsetsToTxnRequest
) -> Answer[AddOffsetsToTxnResponse]:
    """Add the partition with a group's offsets to the transaction."""
    created = create_internal(context.broker, OFFSETS_TOPIC)
    offsets = context.broker.cluster.topic(OFFSETS_TOPIC)
    if created is not None or offsets is None:
        raise Refused(ErrorCode.coordinator_not_available, "its topic is being created; retry")
    target = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, len(offsets.partitions)))
    decided = context.broker.transactions.add_partitions(
        request.transactional_id, _producer(request), (target,)
    )
    return when_replied(decided, lambda result: AddOffsetsToTxnResponse(_code_of(context, result)))


def end_txn(context: Context, request: EndTxnRequest) -> Answer[EndTxnResponse]:
    """Commit or abort. From version 5 on each end raises the producer's epoch."""
    decided = context.broker.transactions.end(
        request.transactional_id,
        _producer(request),
        commit=request.committed,
        raises_epoch=context.api_version >= _RAISES_EPOCH_FROM,
    )

    def respond(result: ProducerIdentity | Refused) -> EndTxnResponse:
        if isinstance(result, Refused):
            return EndTxnResponse(_code(context, result))
        return EndTxnResponse(ErrorCode.none, result.producer_id, result.producer_epoch)

    return when_replied(decided, respond)


def _code_of(context: Context, result: object) -> ErrorCode:
    return _code(context, result) if isinstance(result, Refused) else ErrorCode.none


def _code(context: Context, refusal: Refused) -> ErrorCode:
    known_from = _PRODUCER_FENCED_FROM[context.message.api]
    if refusal.code == ErrorCode.producer_fenced and context.api_version < known_from:
        return ErrorCode.invalid_producer_epoch
    return refusal.code


def _transactional_ids(request: AddPartitionsToTxnRequest) -> Sequence[str]:
    return [transaction.transactional_id for transaction in request.transactions]


HANDLERS = (
    Handler(
        INIT_PRODUCER_ID,
        versions=(0, 5),
        handle=init_producer_id,
        # An idempotent producer without a transactional id needs one of the other two.
        allow=AnyOf(
            on_transactional_id(Operation.WRITE),
            on_cluster(Operation.IDEMPOTENT_WRITE),
            on_each_topic(Operation.WRITE),
        ),
    ),
    Handler(
        ADD_PARTITIONS_TO_TXN,
        versions=(0, 5),
        handle=add_partitions_to_txn,
        allow=AnyOf(
            on_cluster(Operation.CLUSTER_ACTION),
            AllOf(
                Permission(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transactional_ids),
                on_each_topic(Operation.WRITE),
            ),
        ),
    ),
    Handler(
        ADD_OFFSETS_TO_TXN,
        versions=(0, 4),
        handle=add_offsets_to_txn,
        allow=AllOf(on_transactional_id(Operation.WRITE), on_group(Operation.READ)),
    ),
    Handler(
        END_TXN,
        versions=(0, 5),
        handle=end_txn,
        allow=on_transactional_id(Operation.WRITE),
    ),
)
