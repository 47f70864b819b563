"""What transactional producers ask: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Codes are translated here for older versions of a request; the coordinator knows only the newest.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.static.protocol import Entity

from penstock.broker.coordinators import partition_of
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import controller_of, when_all, when_decided
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
from penstock.protocol.kio_codec import fill, response_type

INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MILLISECOND: Final = timedelta(milliseconds=1)
_KNOWS_FENCED_FROM: Final = {  # PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS_TO_TXN: 2,
    ADD_OFFSETS_TO_TXN: 2,
    END_TXN: 2,
}
_BATCHES_FROM: Final = 4  # AddPartitionsToTxn asks for several transactions, as brokers do
_KNOWS_ABORTABLE_FROM: Final = 5  # AddPartitionsToTxn: TRANSACTION_ABORTABLE
_RAISES_EPOCH_FROM: Final = 5  # EndTxn


def init_producer_id(context: Context, request: Any) -> Answer:
    """A producer id and epoch: fresh for an idempotent producer, kept by its id for others."""
    transactions = context.broker.transactions

    def answer(producer: ProducerIdentity) -> Entity:
        return _filled(
            context, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        )

    def refuse(refusal: Refused) -> Entity:
        return _filled(
            context,
            error_code=_code(context, refusal),
            producer_id=NO_PRODUCER,
            producer_epoch=NO_PRODUCER_EPOCH,
        )

    try:
        expected = _expected(request)
        if request.transactional_id is None:
            return answer(ProducerIdentity(transactions.producer_ids.take(), ProducerEpoch(0)))
    except Refused as refusal:
        return refuse(refusal)
    timeout_ms = Millis(request.transaction_timeout // _MILLISECOND)
    decided = transactions.init_producer(request.transactional_id, timeout_ms, expected)
    return when_decided(decided, answer, refuse)


def _expected(request: Any) -> ProducerIdentity | None:
    """Who the producer believes to be, which it can say from version 3 on."""
    producer_id = getattr(request, "producer_id", NO_PRODUCER)
    producer_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id, producer_epoch) == (NO_PRODUCER, NO_PRODUCER_EPOCH):
        return None
    if producer_id == NO_PRODUCER or producer_epoch == NO_PRODUCER_EPOCH:
        raise Refused(ErrorCode.invalid_request, "a producer id goes with its epoch")
    return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(producer_epoch))


class _Addition(NamedTuple):
    """Partitions that a transaction should have, whichever version asks."""

    transactional_id: str
    producer: ProducerIdentity
    topics: Any
    if_missing: IfMissing
    client_version: int


def add_partitions_to_txn(context: Context, request: Any) -> Answer:
    """Put partitions into a transaction; from version 4 into several, or only check."""
    additions = _additions(context, request)

    def answer(results: list[Any]) -> Entity:
        rows = [
            _by_partition(context, addition.topics, result)
            for addition, result in zip(additions, results, strict=True)
        ]
        if context.api_version < _BATCHES_FROM:
            return _filled(context, results_by_topic_v3_and_below=rows[0])
        return _filled(
            context,
            results_by_transaction=[
                {"transactional_id": addition.transactional_id, "topic_results": topics}
                for addition, topics in zip(additions, rows, strict=True)
            ],
        )

    return when_all([_ask_to_add(context, addition) for addition in additions], answer)


def _additions(context: Context, request: Any) -> list[_Addition]:
    if context.api_version < _BATCHES_FROM:
        producer = ProducerIdentity(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        topics = request.v3_and_below_topics
        transactional_id = request.v3_and_below_transactional_id
        return [_Addition(transactional_id, producer, topics, IfMissing.ADD, client_version=0)]
    return [
        _Addition(
            entry.transactional_id,
            ProducerIdentity(entry.producer_id, entry.producer_epoch),
            entry.topics,
            IfMissing.REFUSE if entry.verify_only else IfMissing.ADD,
            client_version=2,
        )
        for entry in request.transactions
    ]


def _ask_to_add(context: Context, addition: _Addition) -> object:
    wanted = _partitions_of(addition.topics)
    unknown = frozenset(target for target in wanted if not _exists(context, target))
    if unknown:
        return _Unknown(unknown)
    return context.broker.transactions.add_partitions(
        addition.transactional_id,
        addition.producer,
        wanted,
        if_missing=addition.if_missing,
        client_version=addition.client_version,
    )


class _Unknown(NamedTuple):
    """Some partitions do not exist, so none was added."""

    partitions: frozenset[TopicPartition]


def _partitions_of(topics: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _exists(context: Context, target: TopicPartition) -> bool:
    topic = context.broker.cluster.topic(target.topic)
    return topic is not None and 0 <= target.partition < len(topic.partitions)


def _by_partition(context: Context, topics: Any, result: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": _partition_code(
                        context, TopicPartition(topic.name, index), result
                    ),
                }
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


def _partition_code(context: Context, target: TopicPartition, result: Any) -> ErrorCode:
    match result:
        case Refused():
            return _code(context, result)
        case _Unknown():
            is_unknown = target in result.partitions
            return (
                ErrorCode.unknown_topic_or_partition
                if is_unknown
                else ErrorCode.operation_not_attempted
            )
        case MissingPartitions(partitions) if target in partitions:
            knows_abortable = context.api_version >= _KNOWS_ABORTABLE_FROM
            return (
                ErrorCode.transaction_abortable if knows_abortable else ErrorCode.invalid_txn_state
            )
        case _:
            return ErrorCode.none


def add_offsets_to_txn(context: Context, request: Any) -> Answer:
    """Put the partition that keeps a group's offsets into the transaction."""
    made = controller_of(context).make_internal_topic(OFFSETS_TOPIC)
    offsets = context.broker.cluster.topic(OFFSETS_TOPIC)
    if made is not None or offsets is None:
        return _filled(context, error_code=ErrorCode.coordinator_not_available)
    target = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, len(offsets.partitions)))
    decided = context.broker.transactions.add_partitions(
        request.transactional_id,
        ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        (target,),
    )
    return when_decided(
        decided,
        lambda added: _filled(context),
        lambda refusal: _filled(context, error_code=_code(context, refusal)),
    )


def end_txn(context: Context, request: Any) -> Answer:
    """Commit or abort. From version 5 on each end raises the producer's epoch."""
    decided = context.broker.transactions.end(
        request.transactional_id,
        ProducerIdentity(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
        commit=request.committed,
        raises_epoch=context.api_version >= _RAISES_EPOCH_FROM,
    )
    return when_decided(
        decided,
        lambda producer: _filled(
            context, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        ),
        lambda refusal: _filled(context, error_code=_code(context, refusal)),
    )


def _filled(context: Context, **fields: Any) -> Entity:
    filled: Entity = fill(
        response_type(context.api_key, context.api_version),
        throttle_time=context.throttle_ms,
        **fields,
    )
    return filled


def _code(context: Context, refusal: Refused) -> ErrorCode:
    if (
        refusal.code == ErrorCode.producer_fenced
        and context.api_version < _KNOWS_FENCED_FROM[context.api_key]
    ):
        return ErrorCode.invalid_producer_epoch
    return refusal.code


HANDLERS = (
    Handler(INIT_PRODUCER_ID, versions=(0, 5), handle=init_producer_id),
    Handler(ADD_PARTITIONS_TO_TXN, versions=(0, 5), handle=add_partitions_to_txn),
    Handler(ADD_OFFSETS_TO_TXN, versions=(0, 4), handle=add_offsets_to_txn),
    Handler(END_TXN, versions=(0, 5), handle=end_txn),
)
