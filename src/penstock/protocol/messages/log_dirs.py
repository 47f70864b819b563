"""Log directories: DescribeLogDirs, AlterReplicaLogDirs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import bind
from penstock.protocol.messages.offsets import PartitionError


class LogDirTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(NamedTuple):
    topics: Sequence[LogDirTopic] | None = None  # None: all


class DescribedLogDirPartition(NamedTuple):
    partition_index: int
    partition_size: int
    offset_lag: int = 0
    is_future_key: bool = False


class DescribedLogDirTopic(NamedTuple):
    name: str
    partitions: Sequence[DescribedLogDirPartition]


class DescribedLogDir(NamedTuple):
    log_dir: str
    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[DescribedLogDirTopic] = ()
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


class DescribeLogDirsResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    results: Sequence[DescribedLogDir] = ()


def _refuse_describe(_request: DescribeLogDirsRequest, refusal: Refused) -> DescribeLogDirsResponse:
    """Before version 3 only log directories have error codes."""
    return DescribeLogDirsResponse(refusal.code, [DescribedLogDir("", refusal.code)])


DESCRIBE_LOG_DIRS: Final = bind(
    Api.DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    refuse=_refuse_describe,
)


class ReplicasToMoveTopic(NamedTuple):
    name: str
    partitions: Sequence[int]


class ReplicasToMove(NamedTuple):
    """The partitions that are to be in one log directory."""

    path: str
    topics: Sequence[ReplicasToMoveTopic]


class AlterReplicaLogDirsRequest(NamedTuple):
    dirs: Sequence[ReplicasToMove]


class MovedReplicasTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[PartitionError]


class AlterReplicaLogDirsResponse(NamedTuple):
    results: Sequence[MovedReplicasTopic]


def _refuse_alter(
    request: AlterReplicaLogDirsRequest, refusal: Refused
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        [
            MovedReplicasTopic(
                topic.name, [PartitionError(index, refusal.code) for index in topic.partitions]
            )
            for folder in request.dirs
            for topic in folder.topics
        ]
    )


ALTER_REPLICA_LOG_DIRS: Final = bind(
    Api.ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    refuse=_refuse_alter,
)
