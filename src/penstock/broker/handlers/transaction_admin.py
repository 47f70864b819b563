"""Transactions for operators: DescribeTransactions, ListTransactions, DescribeProducers.

WriteTxnMarkers is how coordinators end a transaction in a partition, and operators a stuck one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import re2

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.partition_lookup import find_leader
from penstock.broker.permissions import (
    PER_ITEM,
    AnyOf,
    Operation,
    Permission,
    ResourceType,
    on_cluster,
    on_each_topic,
)
from penstock.broker.replies import code_of, when_all
from penstock.broker.transaction_markers import write_marker
from penstock.coordination.transactions import Transaction, TransactionFilter, known_states
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import Millis, ProducerEpoch, ProducerId
from penstock.protocol.control_records import Marker
from penstock.protocol.messages.offsets import PartitionError
from penstock.protocol.messages.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribedProducer,
    DescribedProducers,
    DescribedProducersTopic,
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.protocol.messages.transactions import (
    WRITE_TXN_MARKERS,
    MarkerResult,
    MarkerTopicResult,
    TransactionMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def describe_transactions(
    context: Context, request: DescribeTransactionsRequest
) -> Answer[DescribeTransactionsResponse]:
    """The last state of each requested transactional id."""
    ids = request.transactional_ids

    def respond(results: list[Any]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            [_described(*row) for row in zip(ids, results, strict=True)]
        )

    return when_all([context.broker.transactions.describe(name) for name in ids], respond)


def _described(transactional_id: str, result: Transaction | Refused) -> DescribedTransaction:
    if isinstance(result, Refused):
        return DescribedTransaction(transactional_id, result.code, transaction_start_time_ms=0)
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(result.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        transactional_id,
        transaction_state=result.state.title,
        transaction_timeout_ms=result.timeout_ms,
        transaction_start_time_ms=result.started_at,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        topics=[DescribedTransactionTopic(*row) for row in by_topic.items()],
    )


def list_transactions(
    context: Context, request: ListTransactionsRequest
) -> Answer[ListTransactionsResponse]:
    """All transactional ids of this broker that pass the filters."""
    states, unknown = known_states(request.state_filters)
    filters = TransactionFilter(
        states=states,
        has_unknown_states=bool(unknown),
        producer_ids=frozenset(map(ProducerId, request.producer_id_filters)),
        longer_than_ms=Millis(request.duration_filter),
        matches_id=_id_matcher(request.transactional_id_pattern),
    )

    def respond(results: list[Any]) -> ListTransactionsResponse:
        if any(isinstance(result, Refused) for result in results):
            return ListTransactionsResponse(ErrorCode.coordinator_load_in_progress, unknown)
        now = context.broker.clock()
        rows = [
            ListedTransaction(
                transaction.transactional_id, transaction.producer_id, transaction.state.title
            )
            for transactions in results
            for transaction in transactions
            if filters.admits(transaction, now)
        ]
        return ListTransactionsResponse(ErrorCode.none, unknown, rows)

    return when_all(context.broker.transactions.list_transactions(), respond)


def _id_matcher(pattern: str | None) -> Callable[[str], bool] | None:
    """Whether a whole transactional id matches; None: all do."""
    if not pattern:
        return None
    try:
        compiled = re2.compile(pattern)
    except re2.error as error:
        raise Refused(ErrorCode.invalid_regular_expression, str(error)) from None
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


# Markers.


def write_txn_markers(
    context: Context, request: WriteTxnMarkersRequest
) -> Answer[WriteTxnMarkersResponse]:
    """Write the end of transactions to partitions led here, each on its own."""
    decided = [
        _write(context, marker, topic, index)
        for marker in request.markers
        for topic, indexes in marker.topics
        for index in indexes
    ]

    def respond(results: list[Any]) -> WriteTxnMarkersResponse:
        codes = map(code_of, results)
        return WriteTxnMarkersResponse(
            [
                MarkerResult(
                    marker.producer_id,
                    [
                        MarkerTopicResult(
                            topic, [PartitionError(index, next(codes)) for index in indexes]
                        )
                        for topic, indexes in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    return when_all(decided, respond)


def _write(context: Context, marker: TransactionMarker, topic: str, index: int) -> object:
    """None or a Refused, or a Deferred of that."""
    written: Deferred[object] = Deferred()
    try:
        write_marker(
            find_leader(context.broker, topic, index),
            Marker(
                ProducerId(marker.producer_id),
                ProducerEpoch(marker.producer_epoch),
                marker.transaction_result,
                marker.coordinator_epoch,
            ),
            context.broker.clock(),
            written.resolve,
        )
    except Refused as refusal:
        return refusal
    except OSError as error:
        return Refused(ErrorCode.kafka_storage_error, str(error))
    return written


# Producers.


def describe_producers(
    context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The producers that each partition remembers, and their open transactions."""
    return DescribeProducersResponse(
        [
            DescribedProducersTopic(
                topic, [_producers_of(context, topic, index) for index in indexes]
            )
            for topic, indexes in request.topics
        ]
    )


def _producers_of(context: Context, topic: str, index: int) -> DescribedProducers:
    try:
        partition = find_leader(context.broker, topic, index)
    except Refused as refusal:
        return DescribedProducers(index, refusal.code, refusal.message)
    return DescribedProducers(
        index,
        active_producers=[
            DescribedProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in partition.log.producers.active()
        ],
    )


HANDLERS = (
    Handler(
        WRITE_TXN_MARKERS,
        versions=(1, 2),
        handle=write_txn_markers,
        allow=AnyOf(on_cluster(Operation.ALTER), on_cluster(Operation.CLUSTER_ACTION)),
    ),
    Handler(
        DESCRIBE_TRANSACTIONS,
        versions=(0, 0),
        handle=describe_transactions,
        allow=Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, PER_ITEM),
    ),
    Handler(
        LIST_TRANSACTIONS,
        versions=(0, 2),
        handle=list_transactions,
        allow=Permission(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, PER_ITEM),
    ),
    Handler(
        DESCRIBE_PRODUCERS,
        versions=(0, 0),
        handle=describe_producers,
        allow=on_each_topic(Operation.READ),
    ),
)
