"""Transactions, as producers and coordinators drive them.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, WireName, bind
from penstock.protocol.messages.offsets import OffsetCommitPartition, PartitionError

NO_PRODUCER: Final = -1

# InitProducerId.


class InitProducerIdRequest(NamedTuple):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER  # which the client had before
    producer_epoch: int = -1
    enable_2pc: Annotated[bool, WireName("enable2_pc")] = False
    keep_prepared_txn: bool = False


class InitProducerIdResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    ongoing_txn_producer_id: int = NO_PRODUCER
    ongoing_txn_producer_epoch: int = -1


INIT_PRODUCER_ID: Final = bind(Api.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse)

# AddPartitionsToTxn.


class TransactionTopic(NamedTuple):
    name: str
    partitions: Sequence[int]


class TransactionPartitions(NamedTuple):
    """Partitions to add to one transaction, or to verify."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TransactionTopic]
    verify_only: bool = False


class AddPartitionsToTxnRequest(NamedTuple):
    transactions: Sequence[TransactionPartitions]  # exactly one before version 4


class _AddPartitionsToOneTxn(NamedTuple):
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: Sequence[TransactionTopic]


class AddedPartition(NamedTuple):
    partition_index: int
    partition_error_code: ErrorCode = ErrorCode.none


class AddedTopic(NamedTuple):
    name: str
    results_by_partition: Sequence[AddedPartition]


class AddedPartitions(NamedTuple):
    """What was added to one transaction; its id is empty as read from versions before 4."""

    transactional_id: str
    topic_results: Sequence[AddedTopic]


class AddPartitionsToTxnResponse(NamedTuple):
    results_by_transaction: Sequence[AddedPartitions] = ()
    error_code: ErrorCode = ErrorCode.none


class _AddedToOneTxn(NamedTuple):
    results_by_topic_v3_and_below: Sequence[AddedTopic]


def _refuse_partitions(
    request: AddPartitionsToTxnRequest, refusal: Refused
) -> AddPartitionsToTxnResponse:
    rows = [
        AddedPartitions(
            transaction.transactional_id,
            [
                AddedTopic(
                    topic.name, [AddedPartition(index, refusal.code) for index in topic.partitions]
                )
                for topic in transaction.topics
            ],
        )
        for transaction in request.transactions
    ]
    return AddPartitionsToTxnResponse(rows)


ADD_PARTITIONS_TO_TXN: Final = bind(
    Api.ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    refuse=_refuse_partitions,
    older_request=Older(
        3,
        _AddPartitionsToOneTxn,
        lambda old: AddPartitionsToTxnRequest((TransactionPartitions(*old),)),
        lambda new: _AddPartitionsToOneTxn(*new.transactions[0][:4]),
    ),
    older_response=Older(
        3,
        _AddedToOneTxn,
        lambda old: AddPartitionsToTxnResponse(
            (AddedPartitions("", old.results_by_topic_v3_and_below),)
        ),
        lambda new: _AddedToOneTxn(new.results_by_transaction[0].topic_results),
    ),
)

# AddOffsetsToTxn.


class AddOffsetsToTxnRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none


ADD_OFFSETS_TO_TXN: Final = bind(
    Api.ADD_OFFSETS_TO_TXN, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
)

# TxnOffsetCommit.


class TxnOffsetCommitTopic(NamedTuple):
    name: str
    partitions: Sequence[OffsetCommitPartition]


class TxnOffsetCommitRequest(NamedTuple):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topics: Sequence[TxnOffsetCommitTopic]
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class TxnOffsetCommitTopicResult(NamedTuple):
    name: str
    partitions: Sequence[PartitionError]


class TxnOffsetCommitResponse(NamedTuple):
    topics: Sequence[TxnOffsetCommitTopicResult]


def _refuse_commit(request: TxnOffsetCommitRequest, refusal: Refused) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        [
            TxnOffsetCommitTopicResult(
                topic.name,
                [PartitionError(row.partition_index, refusal.code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


TXN_OFFSET_COMMIT: Final = bind(
    Api.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse, refuse=_refuse_commit
)

# EndTxn.


class EndTxnRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(NamedTuple):
    """From version 5 on with the producer of the next transaction."""

    error_code: ErrorCode = ErrorCode.none
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1


END_TXN: Final = bind(Api.END_TXN, EndTxnRequest, EndTxnResponse)

# WriteTxnMarkers.


class MarkerTopic(NamedTuple):
    name: str
    partition_indexes: Sequence[int]


class TransactionMarker(NamedTuple):
    """The end of one transaction, for the leaders of its partitions."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: Sequence[MarkerTopic]
    coordinator_epoch: int
    transaction_version: int = 0


class WriteTxnMarkersRequest(NamedTuple):
    markers: Sequence[TransactionMarker]


class MarkerTopicResult(NamedTuple):
    name: str
    partitions: Sequence[PartitionError]


class MarkerResult(NamedTuple):
    producer_id: int
    topics: Sequence[MarkerTopicResult]


class WriteTxnMarkersResponse(NamedTuple):
    markers: Sequence[MarkerResult]


def _refuse_markers(request: WriteTxnMarkersRequest, refusal: Refused) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            MarkerResult(
                marker.producer_id,
                [
                    MarkerTopicResult(
                        topic.name,
                        [PartitionError(index, refusal.code) for index in topic.partition_indexes],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


WRITE_TXN_MARKERS: Final = bind(
    Api.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse, refuse=_refuse_markers
)
