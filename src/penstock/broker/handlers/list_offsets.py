"""ListOffsets: where a log begins, where it ends, and where a time is in it.

To find a time one batch must be opened. Small plain ones are opened at once; any other in a thread,
while the loop goes on: then the log is asked anew for each batch, for it may have changed.

OffsetForLeaderEpoch: where a leader's writing ended, so that a reader can see a cut-off tail.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.opening import memory_to_open
from penstock.broker.partition import Partition
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.partition_log import PartitionLog
from penstock.log.time_lookup import Candidate, Found, find_candidate, newest_timestamp
from penstock.model import NO_OFFSET, LeaderEpoch, Millis, Offset
from penstock.protocol.kio_codec import fill, response_type
from penstock.protocol.messages.list_offsets import PartitionAnswer, TopicAnswer, pack_list_offsets
from penstock.protocol.records import OPENED_BYTES_MAX

LIST_OFFSETS: Final = 2
READ_COMMITTED: Final = 1
OPENED_AT_ONCE_BYTES: Final = 8 << 10

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


class _Search(NamedTuple):
    """A time to be found, from the batch that may have it on."""

    partition: Partition
    partition_index: int
    candidate: Candidate


_Row = PartitionAnswer | _Search
_Topics = list[tuple[str, list[_Row]]]


def list_offsets(context: Context, request: Any) -> Answer:
    """One offset for each partition asked."""
    committed_only = getattr(request, "isolation_level", 0) == READ_COMMITTED
    topics: _Topics = [
        (
            topic.name,
            [_answer(context, topic.name, asked, committed_only) for asked in topic.partitions],
        )
        for topic in request.topics
    ]
    if any(isinstance(row, _Search) for _, rows in topics for row in rows):
        return asyncio.get_running_loop().create_task(_search_all(context, topics))
    return _pack(context, topics)


def _pack(context: Context, topics: _Topics) -> bytes:
    answers = [
        TopicAnswer(name, [row for row in rows if isinstance(row, PartitionAnswer)])
        for name, rows in topics
    ]
    return pack_list_offsets(context.api_version, answers, throttle_ms=context.throttle_ms)


async def _search_all(context: Context, topics: _Topics) -> bytes:
    found: _Topics = [
        (name, [await _search(context, row) if isinstance(row, _Search) else row for row in rows])
        for name, rows in topics
    ]
    return _pack(context, found)


async def _search(context: Context, search: _Search) -> PartitionAnswer:
    try:
        return await _open_until_found(context, search)
    except Refused as refusal:
        return PartitionAnswer(search.partition_index, refusal.code)


async def _open_until_found(context: Context, search: _Search) -> PartitionAnswer:
    """Open one batch after the other in a thread; nearly always the first has it."""
    candidate: Candidate | None = search.candidate
    while candidate is not None:
        work = partial(candidate.open, context.broker.inspector.find_time)
        found = await context.broker.opening.run(_memory_to_open(candidate), work)
        if found is not None:
            return _found(search.partition_index, found)
        candidate = _candidate(
            search.partition.log,
            candidate.timestamp,
            start_offset=candidate.header.end_offset,
            end_offset=candidate.end_offset,
        )
    return PartitionAnswer(search.partition_index)


def _memory_to_open(candidate: Candidate) -> int:
    try:
        return memory_to_open(candidate.batch, candidate.header, OPENED_BYTES_MAX)
    except Malformed:
        return 0  # to open it fails at once, and says why


def _answer(context: Context, topic: str, asked: Any, committed_only: bool) -> _Row:
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
) -> _Row:
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
        newest = newest_timestamp(log.segments)
        if newest is None:
            return PartitionAnswer(index)
        return _find_time(partition, index, newest, log.end_offset)
    return _find_time(partition, index, Millis(timestamp), end_offset)


def _find_time(partition: Partition, index: int, timestamp: Millis, end_offset: Offset) -> _Row:
    start_offset = Offset(0)
    while True:
        candidate = _candidate(
            partition.log, timestamp, start_offset=start_offset, end_offset=end_offset
        )
        if candidate is None:
            return PartitionAnswer(index)
        if candidate.header.codec or len(candidate.batch) > OPENED_AT_ONCE_BYTES:
            return _Search(partition, index, candidate)
        found = candidate.open()
        if found is not None:
            return _found(index, found)
        start_offset = candidate.header.end_offset


def _candidate(
    log: PartitionLog, timestamp: Millis, *, start_offset: Offset, end_offset: Offset
) -> Candidate | None:
    return find_candidate(log.segments, timestamp, max(start_offset, log.start_offset), end_offset)


def _found(index: int, found: Found) -> PartitionAnswer:
    return PartitionAnswer(index, 0, found.timestamp, found.offset, found.leader_epoch)


def _place(partition: Partition, index: int, offset: Offset) -> PartitionAnswer:
    """An end of the log, with the epoch that wrote there, or the leader's own at the end."""
    log = partition.log
    epoch = partition.leader_epoch if offset >= log.end_offset else log.epochs.epoch_at(offset)
    return PartitionAnswer(index, 0, -1, offset, epoch)


OFFSET_FOR_LEADER_EPOCH: Final = 23


def offset_for_leader_epoch(context: Context, request: Any) -> Answer:
    """The end of each epoch asked for."""
    entity: Answer = fill(
        response_type(OFFSET_FOR_LEADER_EPOCH, context.api_version),
        topics=[
            {
                "topic": topic.topic,
                "partitions": [
                    _epoch_end(context, topic.topic, asked) for asked in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    )
    return entity


def _epoch_end(context: Context, topic: str, asked: Any) -> dict[str, Any]:
    try:
        partition = context.broker.partitions.find(topic, asked.partition)
        if partition is None:
            raise Refused(ErrorCode.unknown_topic_or_partition, "no such partition here")
        partition.check_leader(asked.current_leader_epoch)
        log = partition.log
        end = log.epochs.end_offset_for(LeaderEpoch(asked.leader_epoch), log.end_offset)
        if asked.leader_epoch == partition.leader_epoch:
            # The leader has not written in its own epoch yet: it ends where the log does.
            end = end._replace(epoch=partition.leader_epoch, end_offset=log.end_offset)
    except Refused as refusal:
        return {
            "partition": asked.partition,
            "error_code": refusal.code,
            "leader_epoch": -1,
            "end_offset": -1,
        }
    return {
        "partition": asked.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }


HANDLERS = (
    Handler(LIST_OFFSETS, versions=(1, 11), handle=list_offsets),
    Handler(OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), handle=offset_for_leader_epoch),
)
