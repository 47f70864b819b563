"""ListOffsets: where a log begins, where it ends, and where a time is in it."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.partitions import Partition
from penstock.errors import ErrorCode, Refused
from penstock.model import NO_OFFSET, Millis, Offset
from penstock.protocol.answers.list_offsets import (
    PartitionAnswer,
    TopicAnswer,
    pack_list_offsets,
)

LIST_OFFSETS: Final = 2
READ_COMMITTED: Final = 1

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4  # without tiering, the start of the log
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {  # the first version in which a special timestamp may be asked
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def list_offsets(context: Context, request: Any) -> Answer:
    """One offset for each partition asked."""
    committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
    return pack_list_offsets(
        context.api_version,
        [
            TopicAnswer(
                topic.name,
                [_answer(context, topic.name, asked, committed_only) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
        throttle_ms=context.throttle_ms,
    )


def _answer(context: Context, topic: str, asked: Any, committed_only: bool) -> PartitionAnswer:
    try:
        partition = context.broker.partitions.find(topic, asked.partition_index)
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
        partition.check_leader(getattr(asked, "current_leader_epoch", -1))
        return _find(
            partition, asked.partition_index, asked.timestamp, committed_only, context.api_version
        )
    except Refused as refusal:
        return PartitionAnswer(asked.partition_index, refusal.code)


def _find(
    partition: Partition, index: int, timestamp: int, committed_only: bool, version: int
) -> PartitionAnswer:
    log = partition.log
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise Refused(ErrorCode.unsupported_version, f"timestamp {timestamp} is not known")
    end_offset = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return _place(partition, index, end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _place(partition, index, log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return PartitionAnswer(index, 0, -1, NO_OFFSET, -1)
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_by_timestamp(Millis(timestamp), end_offset=end_offset)
    if found is None:
        return PartitionAnswer(index)
    return PartitionAnswer(index, 0, found.timestamp, found.offset, found.leader_epoch)


def _place(partition: Partition, index: int, offset: Offset) -> PartitionAnswer:
    """An end of the log, with the epoch that wrote there, or the leader's own at the end."""
    log = partition.log
    epoch = partition.leader_epoch if offset >= log.end_offset else log.epochs.epoch_at(offset)
    return PartitionAnswer(index, 0, -1, offset, epoch)


HANDLERS = (Handler(LIST_OFFSETS, versions=(1, 11), handle=list_offsets),)
