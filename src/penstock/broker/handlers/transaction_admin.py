"""What operators ask about transactions, and WriteTxnMarkers, by which they end a stuck one.

DescribeProducers: who writes to a partition, and whose transaction is open there.
"""

from __future__ import annotations

from typing import Any, Final

import re2
from kio.static.protocol import Entity

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.handlers.replies import when_all
from penstock.broker.transaction_markers import write_marker
from penstock.coordination.transactions import Transaction, TransactionFilter, known_states
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import Millis, ProducerEpoch, ProducerId
from penstock.protocol.control_records import Marker
from penstock.protocol.kio_codec import fill, response_type

WRITE_TXN_MARKERS: Final = 27
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66


def describe_transactions(context: Context, request: Any) -> Answer:
    """The last state of each transactional id asked for."""
    asked: list[str] = list(request.transactional_ids)
    decided = [context.broker.transactions.describe(name) for name in asked]

    def answer(results: list[Any]) -> Any:
        return fill(
            response_type(DESCRIBE_TRANSACTIONS, context.api_version),
            throttle_time=context.throttle_ms,
            transaction_states=[
                _state_row(transactional_id, result)
                for transactional_id, result in zip(asked, results, strict=True)
            ],
        )

    return when_all(decided, answer)


def _state_row(transactional_id: str, result: Transaction | Refused) -> dict[str, Any]:
    if isinstance(result, Refused):
        return {"transactional_id": transactional_id, "error_code": result.code}
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(result.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return {
        "transactional_id": transactional_id,
        "transaction_state": result.state.title,
        "transaction_timeout": int(result.timeout_ms),
        "transaction_start_time": int(result.started_at),
        "producer_id": result.producer_id,
        "producer_epoch": result.producer_epoch,
        "topics": [{"topic": topic, "partitions": found} for topic, found in by_topic.items()],
    }


def list_transactions(context: Context, request: Any) -> Answer:
    """All transactional ids of this broker that pass the filters."""
    states, unknown = known_states(request.state_filters)
    try:
        wanted = TransactionFilter(
            states=states,
            has_unknown_states=bool(unknown),
            producer_ids=frozenset(request.producer_id_filters),
            longer_than_ms=Millis(getattr(request, "duration_filter", -1)),
            matches_id=_pattern(getattr(request, "transactional_id_pattern", None)),
        )
    except Refused as refusal:
        return _listed(context, unknown, error_code=refusal.code)

    def answer(results: list[Any]) -> Any:
        if any(isinstance(result, Refused) for result in results):
            return _listed(context, unknown, error_code=ErrorCode.coordinator_load_in_progress)
        now = context.broker.clock()
        rows = [
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state.title,
            }
            for transactions in results
            for transaction in transactions
            if wanted.admits(transaction, now)
        ]
        return _listed(context, unknown, transaction_states=rows)

    return when_all(context.broker.transactions.list_transactions(), answer)


def _listed(context: Context, unknown: tuple[str, ...], **fields: Any) -> Entity:
    listed: Entity = fill(
        response_type(LIST_TRANSACTIONS, context.api_version),
        throttle_time=context.throttle_ms,
        unknown_state_filters=unknown,
        **fields,
    )
    return listed


def _pattern(pattern: str | None) -> Any:
    """A predicate that the whole transactional id must satisfy; None asks for nothing."""
    if not pattern:
        return None
    try:
        compiled = re2.compile(pattern)
    except re2.error as error:
        raise Refused(ErrorCode.invalid_regular_expression, str(error)) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def write_txn_markers(context: Context, request: Any) -> Answer:
    """Write outcomes to partitions led here, each for itself."""
    targets = [
        (marker, topic, index)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    decided = [_write(context, marker, topic.name, index) for marker, topic, index in targets]

    def answer(results: list[Any]) -> Any:
        codes = iter(results)
        return fill(
            response_type(WRITE_TXN_MARKERS, context.api_version),
            markers=[
                {
                    "producer_id": marker.producer_id,
                    "topics": [
                        {
                            "name": topic.name,
                            "partitions": [
                                {"partition_index": index, "error_code": _code_of(next(codes))}
                                for index in topic.partition_indexes
                            ],
                        }
                        for topic in marker.topics
                    ],
                }
                for marker in request.markers
            ],
        )

    return when_all(decided, answer)


def _write(context: Context, wanted: Any, topic: str, index: int) -> object:
    """None or a Refused, or a Deferred of that."""
    marker = Marker(
        ProducerId(wanted.producer_id),
        ProducerEpoch(wanted.producer_epoch),
        wanted.transaction_result,
        wanted.coordinator_epoch,
    )
    partition = context.broker.partitions.find(topic, index)
    written: Deferred[object] = Deferred()
    try:
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "not on this broker")
        partition.check_leader(-1)
        write_marker(partition, marker, context.broker.clock(), written.resolve)
    except Refused as refusal:
        return refusal
    except OSError as error:
        return Refused(ErrorCode.kafka_storage_error, str(error))
    return written


def _code_of(result: Any) -> ErrorCode:
    return result.code if isinstance(result, Refused) else ErrorCode.none


DESCRIBE_PRODUCERS: Final = 61


def describe_producers(context: Context, request: Any) -> Answer:
    """The producers that each partition remembers."""
    entity: Answer = fill(
        response_type(DESCRIBE_PRODUCERS, context.api_version),
        topics=[
            {
                "name": topic.name,
                "partitions": [
                    _answer(context, topic.name, index) for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ],
    )
    return entity


def _answer(context: Context, topic: str, index: int) -> dict[str, Any]:
    try:
        partition = context.broker.partitions.find(topic, index)
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
        partition.check_leader(-1)
    except Refused as refusal:
        return {
            "partition_index": index,
            "error_code": refusal.code,
            "error_message": refusal.message,
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "error_code": ErrorCode.none,
        "error_message": None,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_txn_start_offset,
            }
            for producer in partition.log.producers.active()
        ],
    }


HANDLERS = (
    Handler(WRITE_TXN_MARKERS, versions=(1, 2), handle=write_txn_markers),
    Handler(DESCRIBE_TRANSACTIONS, versions=(0, 0), handle=describe_transactions),
    Handler(LIST_TRANSACTIONS, versions=(0, 2), handle=list_transactions),
    Handler(DESCRIBE_PRODUCERS, versions=(0, 0), handle=describe_producers),
)
