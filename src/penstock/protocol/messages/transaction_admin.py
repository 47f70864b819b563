"""Transactions as operators see them: DescribeTransactions, ListTransactions, DescribeProducers."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind

# DescribeTransactions.


class DescribeTransactionsRequest(NamedTuple):
    transactional_ids: Sequence[str]


class DescribedTransactionTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class DescribedTransaction(NamedTuple):
    """One transactional id, as its coordinator knows it."""

    transactional_id: str
    error_code: ErrorCode = ErrorCode.none
    transaction_state: str = ""  # Empty, Ongoing, PrepareCommit, CompleteCommit, …
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1  # not open
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[DescribedTransactionTopic] = ()


class DescribeTransactionsResponse(NamedTuple):
    transaction_states: Sequence[DescribedTransaction]


def _refuse_describe(
    request: DescribeTransactionsRequest, refusal: Refused
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        [DescribedTransaction(name, refusal.code) for name in request.transactional_ids]
    )


DESCRIBE_TRANSACTIONS: Final = bind(
    Api.DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    refuse=_refuse_describe,
)

# ListTransactions.


class ListTransactionsRequest(NamedTuple):
    state_filters: Sequence[str] = ()  # none: any
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1  # in milliseconds, at least
    transactional_id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListedTransaction] = ()


LIST_TRANSACTIONS: Final = bind(
    Api.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse
)

# DescribeProducers.


class DescribeProducersTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class DescribeProducersRequest(NamedTuple):
    topics: Sequence[DescribeProducersTopic]


class DescribedProducer(NamedTuple):
    """A producer that a partition remembers; -1: no open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class DescribedProducers(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    active_producers: Sequence[DescribedProducer] = ()


class DescribedProducersTopic(NamedTuple):
    name: str
    partitions: Sequence[DescribedProducers]


class DescribeProducersResponse(NamedTuple):
    topics: Sequence[DescribedProducersTopic]


def _refuse_producers(
    request: DescribeProducersRequest, refusal: Refused
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        [
            DescribedProducersTopic(
                topic.name,
                [
                    DescribedProducers(index, refusal.code, refusal.message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


DESCRIBE_PRODUCERS: Final = bind(
    Api.DESCRIBE_PRODUCERS,
    DescribeProducersRequest,
    DescribeProducersResponse,
    refuse=_refuse_producers,
)
