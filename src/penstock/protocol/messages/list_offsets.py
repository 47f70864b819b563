"""Offsets of a log: ListOffsets and OffsetForLeaderEpoch."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind

# In place of a timestamp.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # the record with the newest timestamp
EARLIEST_LOCAL: Final = -4  # without tiered storage, the start of the log
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

CONSUMER: Final = -1  # replica ids: no broker
DEBUGGING_CONSUMER: Final = -2
READ_COMMITTED: Final = 1  # isolation level


# ListOffsets.


class ListOffsetsPartition(NamedTuple):
    partition_index: int
    timestamp: int
    current_leader_epoch: int = -1


class ListOffsetsTopic(NamedTuple):
    name: str
    partitions: Sequence[ListOffsetsPartition]


class ListOffsetsRequest(NamedTuple):
    topics: Sequence[ListOffsetsTopic]
    isolation_level: int = 0
    timeout_ms: int = 0
    replica_id: int = CONSUMER


class ListedOffset(NamedTuple):
    """The offset of one partition; -1: there is none."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class ListedOffsetsTopic(NamedTuple):
    name: str
    partitions: Sequence[ListedOffset]


class ListOffsetsResponse(NamedTuple):
    topics: Sequence[ListedOffsetsTopic]


def _refuse_list(request: ListOffsetsRequest, refusal: Refused) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        [
            ListedOffsetsTopic(
                topic.name,
                [ListedOffset(row.partition_index, refusal.code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


LIST_OFFSETS: Final = bind(
    Api.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, refuse=_refuse_list
)

# OffsetForLeaderEpoch.


class LeaderEpochPartition(NamedTuple):
    partition: int
    leader_epoch: int
    current_leader_epoch: int = -1


class LeaderEpochTopic(NamedTuple):
    topic: str
    partitions: Sequence[LeaderEpochPartition]


class OffsetForLeaderEpochRequest(NamedTuple):
    topics: Sequence[LeaderEpochTopic]
    replica_id: int = DEBUGGING_CONSUMER


class LeaderEpochEnd(NamedTuple):
    """The end offset of the largest epoch that is not above the requested one; -1: none."""

    partition: int
    error_code: ErrorCode = ErrorCode.none
    leader_epoch: int = -1
    end_offset: int = -1


class LeaderEpochEndTopic(NamedTuple):
    topic: str
    partitions: Sequence[LeaderEpochEnd]


class OffsetForLeaderEpochResponse(NamedTuple):
    topics: Sequence[LeaderEpochEndTopic]


def _refuse_epochs(
    request: OffsetForLeaderEpochRequest, refusal: Refused
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        [
            LeaderEpochEndTopic(
                topic.topic,
                [LeaderEpochEnd(row.partition, refusal.code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


OFFSET_FOR_LEADER_EPOCH: Final = bind(
    Api.OFFSET_FOR_LEADER_EPOCH,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    refuse=_refuse_epochs,
)
