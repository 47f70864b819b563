"""ListOffsets: the start of a log, its end, and the offset of a time.

To find a time a batch must be opened. Small uncompressed batches are opened immediately; others in
a thread, while other requests are served: then the log is searched again for each batch, because it
may have changed.

OffsetForLeaderEpoch: where a leader epoch ended, so that a reader can detect a truncated log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.handler import Answer, Context, Handler, deferred_from
from penstock.broker.opening import memory_to_open
from penstock.broker.partition_lookup import find_leader
from penstock.broker.permissions import AnyOf, Operation, on_cluster, on_each_topic
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.time_lookup import (
    CandidateBatch,
    TimestampMatch,
    find_candidate,
    newest_timestamp,
)
from penstock.model import NO_OFFSET, LeaderEpoch, Millis, Offset
from penstock.protocol.messages.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    OFFSET_FOR_LEADER_EPOCH,
    READ_COMMITTED,
    LeaderEpochEnd,
    LeaderEpochEndTopic,
    LeaderEpochPartition,
    ListedOffset,
    ListedOffsetsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from penstock.protocol.records import OPENED_BYTES_MAX

if TYPE_CHECKING:
    from penstock.broker.partition import Partition
    from penstock.log.partition_log import PartitionLog

OPENED_ON_LOOP_BYTES: Final = 8 << 10
_SINCE: Final = {  # the first version with each special timestamp
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_STARTS: Final = frozenset((EARLIEST, EARLIEST_LOCAL))  # of a log: known without its end
_NOT_AVAILABLE_FROM: Final = 5  # OFFSET_NOT_AVAILABLE


class _Search(NamedTuple):
    """A time to be searched for, from the first batch that may have it."""

    partition: Partition
    partition_index: int
    candidate: CandidateBatch


_Row = ListedOffset | _Search
_Topics = list[tuple[str, list[_Row]]]


def list_offsets(context: Context, request: ListOffsetsRequest) -> Answer[ListOffsetsResponse]:
    """One offset for each partition."""
    committed_only = request.isolation_level == READ_COMMITTED
    topics: _Topics = [
        (
            topic.name,
            [_look_up(context, topic.name, row, committed_only) for row in topic.partitions],
        )
        for topic in request.topics
    ]
    if any(isinstance(row, _Search) for _, rows in topics for row in rows):
        return deferred_from(_search_all(context, topics))
    return _response(topics)


def _response(topics: _Topics) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        [
            ListedOffsetsTopic(name, [row for row in rows if isinstance(row, ListedOffset)])
            for name, rows in topics
        ]
    )


async def _search_all(context: Context, topics: _Topics) -> ListOffsetsResponse:
    return _response(
        [
            (
                name,
                [await _search(context, row) if isinstance(row, _Search) else row for row in rows],
            )
            for name, rows in topics
        ]
    )


async def _search(context: Context, search: _Search) -> ListedOffset:
    try:
        return await _open_batches(context, search)
    except Refused as refusal:
        return ListedOffset(search.partition_index, refusal.code)


async def _open_batches(context: Context, search: _Search) -> ListedOffset:
    """Open one batch after the other in a thread; nearly always the first has the time."""
    candidate: CandidateBatch | None = search.candidate
    while candidate is not None:
        work = partial(candidate.open, context.broker.inspector.find_time)
        match = await context.broker.opening.run(_memory_to_open(candidate), work)
        if match is not None:
            return _listed(search.partition_index, match)
        candidate = _candidate(
            search.partition.log,
            candidate.timestamp,
            start_offset=candidate.header.end_offset,
            end_offset=candidate.end_offset,
        )
    return ListedOffset(search.partition_index)


def _memory_to_open(candidate: CandidateBatch) -> int:
    try:
        return memory_to_open(candidate.batch, candidate.header, OPENED_BYTES_MAX)
    except Malformed:
        return 0  # opening it will fail with the reason


def _look_up(context: Context, topic: str, row: ListOffsetsPartition, committed_only: bool) -> _Row:
    index, timestamp, leader_epoch = row
    try:
        partition = find_leader(context.broker, topic, index, leader_epoch)
        if timestamp < 0 and context.api_version < _SINCE.get(timestamp, context.api_version + 1):
            raise Refused(ErrorCode.unsupported_version, f"timestamp {timestamp} is not defined")
        if timestamp not in _STARTS:
            _check_certain(context, partition)
        return _find(partition, index, timestamp, committed_only)
    except Refused as refusal:
        return ListedOffset(index, refusal.code)


def _check_certain(context: Context, partition: Partition) -> None:
    """A new leader may not know all that is committed: it must not show an earlier end."""
    if partition.in_sync is not None and not partition.in_sync.is_high_watermark_certain:
        has_code = context.api_version >= _NOT_AVAILABLE_FROM
        code = ErrorCode.offset_not_available if has_code else ErrorCode.leader_not_available
        raise Refused(code, "the leader is new; try again")


def _find(partition: Partition, index: int, timestamp: int, committed_only: bool) -> _Row:
    log = partition.log
    end_offset = log.last_stable_offset if committed_only else log.high_watermark
    if timestamp == LATEST:
        return _end_of_log(partition, index, end_offset)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _end_of_log(partition, index, log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return ListedOffset(index, ErrorCode.none, -1, NO_OFFSET, -1)
    if timestamp == MAX_TIMESTAMP:
        newest = newest_timestamp(log.segments)
        if newest is None:
            return ListedOffset(index)
        return _find_time(partition, index, newest, log.end_offset)
    return _find_time(partition, index, Millis(timestamp), end_offset)


def _find_time(partition: Partition, index: int, timestamp: Millis, end_offset: Offset) -> _Row:
    start_offset = Offset(0)
    while True:
        candidate = _candidate(
            partition.log, timestamp, start_offset=start_offset, end_offset=end_offset
        )
        if candidate is None:
            return ListedOffset(index)
        if candidate.header.codec or len(candidate.batch) > OPENED_ON_LOOP_BYTES:
            return _Search(partition, index, candidate)
        match = candidate.open()
        if match is not None:
            return _listed(index, match)
        start_offset = candidate.header.end_offset


def _candidate(
    log: PartitionLog, timestamp: Millis, *, start_offset: Offset, end_offset: Offset
) -> CandidateBatch | None:
    return find_candidate(log.segments, timestamp, max(start_offset, log.start_offset), end_offset)


def _listed(index: int, match: TimestampMatch) -> ListedOffset:
    return ListedOffset(index, ErrorCode.none, match.timestamp, match.offset, match.leader_epoch)


def _end_of_log(partition: Partition, index: int, offset: Offset) -> ListedOffset:
    """Either end of the log, with the epoch that wrote there, or the leader's own at the end."""
    log = partition.log
    epoch = partition.leader_epoch if offset >= log.end_offset else log.epochs.epoch_at(offset)
    return ListedOffset(index, ErrorCode.none, -1, offset, epoch)


# OffsetForLeaderEpoch.


def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end of each requested epoch."""
    return OffsetForLeaderEpochResponse(
        [
            LeaderEpochEndTopic(topic, [_epoch_end(context, topic, row) for row in partitions])
            for topic, partitions in request.topics
        ]
    )


def _epoch_end(context: Context, topic: str, row: LeaderEpochPartition) -> LeaderEpochEnd:
    index, leader_epoch, current_leader_epoch = row
    try:
        partition = find_leader(context.broker, topic, index, current_leader_epoch)
    except Refused as refusal:
        return LeaderEpochEnd(index, refusal.code)
    log = partition.log
    if leader_epoch == partition.leader_epoch:
        # The leader may not have written in its epoch yet: it ends where the log does.
        return LeaderEpochEnd(index, ErrorCode.none, leader_epoch, log.end_offset)
    end = log.epochs.end_offset_for(LeaderEpoch(leader_epoch), log.end_offset)
    return LeaderEpochEnd(index, ErrorCode.none, end.epoch, end.end_offset)


HANDLERS = (
    Handler(
        LIST_OFFSETS,
        versions=(1, 11),
        handle=list_offsets,
        allow=on_each_topic(Operation.DESCRIBE),
    ),
    Handler(
        OFFSET_FOR_LEADER_EPOCH,
        versions=(2, 4),
        handle=offset_for_leader_epoch,
        allow=AnyOf(on_cluster(Operation.CLUSTER_ACTION), on_each_topic(Operation.DESCRIBE)),
    ),
)
