"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete.

A consumer of one partition commits the same few fields again and again: from commit to commit only
the end of the request differs. What precedes it is decoded once and cached, and so is the response
to such a commit. The schemas' codecs read and write all others.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Annotated, Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.protocol.api import Api
from penstock.protocol.bind import Older, WireName, bind
from penstock.protocol.fields import FLEXIBLE, TopicKey

TOPIC_IDS_FROM: Final = 10  # OffsetCommit and OffsetFetch
FLEXIBLE_FROM: Final = 8  # OffsetCommit

_INT_32: Final = Struct(">i")


class PartitionError(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none


# OffsetCommit.


class OffsetCommitPartition(NamedTuple):
    """The offset to commit in one partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""


class OffsetCommitTopic(NamedTuple):
    """By name, or by id from version 10 on."""

    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partitions: Sequence[OffsetCommitPartition]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation: Annotated[int, WireName("generation_id_or_member_epoch")] = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topics: Sequence[OffsetCommitTopic] = ()
    retention_time_ms: int = -1  # the broker's; before version 5


class OffsetCommitTopicResult(NamedTuple):
    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partitions: Sequence[PartitionError]


class OffsetCommitResponse(NamedTuple):
    topics: Sequence[OffsetCommitTopicResult]


def _refuse_commit(request: OffsetCommitRequest, refusal: Refused) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        [
            OffsetCommitTopicResult(
                topic.topic,
                [PartitionError(row.partition_index, refusal.code) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


_BOUND_COMMIT: Final = bind(
    Api.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, refuse=_refuse_commit
)

_HEADS_MAX: Final = 10_000  # cached: one per member and partition
_HEAD_BYTES_MAX: Final = 1024  # longer ones are not cached, so that clients cannot fill the memory
_TAIL: Final = Struct(
    ">"
    "q"  # committed_offset
    "i"  # committed_leader_epoch
    "i"  # the length of the metadata, and no tagged fields of partition, topic and request
)
_NULL_METADATA: Final = 0
_EMPTY_METADATA: Final = 1 << 24


def _read_commit(frame: memoryview, position: int, version: int) -> OffsetCommitRequest:
    """By the cached head if it is a commit of one partition without metadata, as most are."""
    tail_at = len(frame) - _TAIL.size
    if version >= FLEXIBLE_FROM and 0 < tail_at - position <= _HEAD_BYTES_MAX:
        offset, leader_epoch, end = _TAIL.unpack_from(frame, tail_at)
        if end in (_EMPTY_METADATA, _NULL_METADATA):
            head = _read_head(frame[position:tail_at].tobytes(), version >= TOPIC_IDS_FROM)
            if head is not None:
                group_id, generation, member_id, instance_id, topic, partition = head
                row = (partition, offset, leader_epoch, "" if end else None)
                rows = (tuple.__new__(OffsetCommitPartition, row),)
                topics = (tuple.__new__(OffsetCommitTopic, (topic, rows)),)
                request = (group_id, generation, member_id, instance_id, topics, -1)
                return tuple.__new__(OffsetCommitRequest, request)
    return _BOUND_COMMIT.read_request(frame, position, version)


@lru_cache(maxsize=_HEADS_MAX)
def _read_head(
    packed: bytes, by_id: bool
) -> tuple[str, int, str, str | None, TopicKey, int] | None:
    frame = memoryview(packed)
    try:
        group_id, at = FLEXIBLE.read_string(frame, 0)
        (generation,) = _INT_32.unpack_from(frame, at)
        member_id, at = FLEXIBLE.read_string(frame, at + _INT_32.size)
        instance_id, at = FLEXIBLE.read_nullable_string(frame, at)
        topics, at = FLEXIBLE.read_count(frame, at)
        topic, at = FLEXIBLE.read_topic(frame, at, by_id)
        partitions, at = FLEXIBLE.read_count(frame, at)
        (partition,) = _INT_32.unpack_from(frame, at)
    except (Malformed, StructError):
        return None
    if (topics, partitions, at + _INT_32.size) != (1, 1, len(frame)):
        return None
    return group_id, generation, member_id, instance_id, topic, partition


_ONE_RESULT: Final = Struct(
    ">"
    "i"  # partition_index
    "h"  # error_code
    "3x"  # no tagged fields of partition, topic and response
)


def _write_committed(response: OffsetCommitResponse, version: int, throttle_ms: int) -> bytes:
    (topics,) = response
    if version >= FLEXIBLE_FROM and len(topics) == 1:
        ((topic, rows),) = topics
        if len(rows) == 1:
            return _write_one_result(topic, *rows[0], throttle_ms)
    body = _BOUND_COMMIT.write_response(response, version, throttle_ms)
    assert isinstance(body, bytes)
    return body


@lru_cache(maxsize=_HEADS_MAX)
def _write_one_result(topic: TopicKey, partition: int, error_code: int, throttle_ms: int) -> bytes:
    """The body for one partition, the same in every flexible version."""
    return b"".join(
        (
            _INT_32.pack(throttle_ms),
            FLEXIBLE.count(1),
            FLEXIBLE.topic(topic),
            FLEXIBLE.count(1),
            _ONE_RESULT.pack(partition, error_code),
        )
    )


OFFSET_COMMIT: Final = replace(
    _BOUND_COMMIT, read_request=_read_commit, write_response=_write_committed
)

# OffsetFetch.


class OffsetFetchTopic(NamedTuple):
    """By name, or by id from version 10 on."""

    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partition_indexes: Sequence[int]


class OffsetFetchGroup(NamedTuple):
    group_id: str
    topics: Sequence[OffsetFetchTopic] | None = None  # None: all
    member_id: str | None = None
    member_epoch: int = -1


class OffsetFetchRequest(NamedTuple):
    groups: Sequence[OffsetFetchGroup]  # exactly one before version 8
    require_stable: bool = False


class _OffsetFetchOneGroup(NamedTuple):
    group_id: str
    topics: Sequence[OffsetFetchTopic] | None
    require_stable: bool = False


class OffsetFetchPartition(NamedTuple):
    """The offset that a group has committed in one partition; -1: none."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: ErrorCode = ErrorCode.none


class OffsetFetchTopicResult(NamedTuple):
    topic: Annotated[TopicKey, WireName("topic_id", "name")]
    partitions: Sequence[OffsetFetchPartition]


class OffsetFetchGroupResult(NamedTuple):
    """The offsets of one group, whose id is empty as read from versions before 8."""

    group_id: str
    topics: Sequence[OffsetFetchTopicResult] = ()
    error_code: ErrorCode = ErrorCode.none


class OffsetFetchResponse(NamedTuple):
    groups: Sequence[OffsetFetchGroupResult]


class _FetchedOneGroup(NamedTuple):
    topics: Sequence[OffsetFetchTopicResult]
    error_code: ErrorCode = ErrorCode.none


def _refuse_fetch(request: OffsetFetchRequest, refusal: Refused) -> OffsetFetchResponse:
    """Version 1 has error codes for partitions only."""
    return OffsetFetchResponse(
        [
            OffsetFetchGroupResult(
                group.group_id,
                [
                    OffsetFetchTopicResult(
                        topic,
                        [OffsetFetchPartition(index, error_code=refusal.code) for index in rows],
                    )
                    for topic, rows in group.topics or ()
                ],
                refusal.code,
            )
            for group in request.groups
        ]
    )


OFFSET_FETCH: Final = bind(
    Api.OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchResponse,
    refuse=_refuse_fetch,
    older_request=Older(
        7,
        _OffsetFetchOneGroup,
        lambda old: OffsetFetchRequest(
            (OffsetFetchGroup(old.group_id, old.topics),), old.require_stable
        ),
        lambda new: _OffsetFetchOneGroup(*new.groups[0][:2], new.require_stable),
    ),
    older_response=Older(
        7,
        _FetchedOneGroup,
        lambda old: OffsetFetchResponse((OffsetFetchGroupResult("", *old),)),
        lambda new: _FetchedOneGroup(*new.groups[0][1:]),
    ),
)

# OffsetDelete.


class OffsetToDelete(NamedTuple):
    partition_index: int


class OffsetDeleteTopic(NamedTuple):
    name: str
    partitions: Sequence[OffsetToDelete]


class OffsetDeleteRequest(NamedTuple):
    group_id: str
    topics: Sequence[OffsetDeleteTopic]


class OffsetDeleteTopicResult(NamedTuple):
    name: str
    partitions: Sequence[PartitionError]


class OffsetDeleteResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[OffsetDeleteTopicResult] = ()


OFFSET_DELETE: Final = bind(Api.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse)
