"""OffsetCommit (API 8, versions 2 to 10) and OffsetFetch (API 9, versions 1 to 10).

A consumer of one partition commits the same few fields again and again: from commit to commit only
the end of the request differs. What comes before is decoded once and cached, and so is the
response to such a commit. kio reads all other requests.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.fields import (
    FLEXIBLE,
    NO_TOPIC_ID,
    Encoding,
    TopicKey,
    encoding_of,
)
from penstock.protocol.kio_codec import request_reader

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
TOPIC_IDS_FROM: Final = 10  # of both
_COMMIT_FLEXIBLE_FROM: Final = 8
_THROTTLE_FROM: Final = 3  # of both
_ERROR_FROM: Final = 2  # OffsetFetch
_LEADER_EPOCH_FROM: Final = 5  # OffsetFetch
GROUPS_FROM: Final = 8  # OffsetFetch asks for several groups

_INT_32: Final = Struct(">i")
_ERROR: Final = Struct(">h")


# OffsetCommit requests.


class CommittedPartition(NamedTuple):
    """The offset to commit in one partition."""

    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitTopic(NamedTuple):
    """One topic of a commit: by name, or by id from version 10 on."""

    topic: TopicKey
    partitions: Sequence[CommittedPartition]


class OffsetCommitRequest(NamedTuple):
    """A commit of any version."""

    group_id: str
    generation: int  # or the member's epoch
    member_id: str
    instance_id: str | None
    topics: Sequence[CommitTopic]


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


def read_commit_request(frame: memoryview, position: int, version: int) -> OffsetCommitRequest:
    """The request whose body starts at `position` and ends with the frame."""
    request = _read_one_partition(frame, position, version)
    if request is not None:
        return request
    entity, _ = request_reader(OFFSET_COMMIT, version)(frame, position)
    return OffsetCommitRequest(
        entity.group_id,
        entity.generation_id_or_member_epoch,
        entity.member_id,
        getattr(entity, "group_instance_id", None),
        [
            CommitTopic(_topic_key(topic, version), committed_partitions(topic))
            for topic in entity.topics
        ],
    )


def committed_partitions(topic: Any) -> list[CommittedPartition]:
    """The partitions of one topic of a commit, as kio reads them (TxnOffsetCommit's too)."""
    return [
        CommittedPartition(
            entry.partition_index,
            entry.committed_offset,
            getattr(entry, "committed_leader_epoch", -1),
            entry.committed_metadata or "",
        )
        for entry in topic.partitions
    ]


def _topic_key(topic: Any, version: int) -> TopicKey:
    if version < TOPIC_IDS_FROM:
        return str(topic.name)
    return NO_TOPIC_ID if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _read_one_partition(
    frame: memoryview, position: int, version: int
) -> OffsetCommitRequest | None:
    """A commit of one partition without metadata, as most are; None: not of that form."""
    tail_at = len(frame) - _TAIL.size
    if version < _COMMIT_FLEXIBLE_FROM or not 0 < tail_at - position <= _HEAD_BYTES_MAX:
        return None
    offset, leader_epoch, end = _TAIL.unpack_from(frame, tail_at)
    if end != _EMPTY_METADATA and end != _NULL_METADATA:
        return None
    head = _read_head(frame[position:tail_at].tobytes(), version >= TOPIC_IDS_FROM)
    if head is None:
        return None
    group_id, generation, member_id, instance_id, topic, partition = head
    committed = tuple.__new__(CommittedPartition, (partition, offset, leader_epoch, ""))
    topics = (tuple.__new__(CommitTopic, (topic, (committed,))),)
    return tuple.__new__(
        OffsetCommitRequest, (group_id, generation, member_id, instance_id, topics)
    )


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


# OffsetCommit responses.


class CommitTopicResult(NamedTuple):
    """Partition and error code of each commit in one topic."""

    topic: TopicKey
    partitions: Sequence[tuple[int, int]]


class OffsetCommitResponse(NamedTuple):
    """A response of any version."""

    topics: Sequence[CommitTopicResult]


_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
)
_FLEXIBLE_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "x"  # no tagged fields
)


def write_commit_response(response: OffsetCommitResponse, version: int, throttle_ms: int) -> bytes:
    """The body in this version."""
    topics = response.topics
    if version >= _COMMIT_FLEXIBLE_FROM and len(topics) == 1:
        ((topic, rows),) = topics
        if len(rows) == 1:
            return _write_one_row(topic, *rows[0], throttle_ms)
    encoding = encoding_of(OFFSET_COMMIT, version)
    pack = _FLEXIBLE_PARTITION.pack if encoding.is_flexible else _PARTITION.pack
    parts = [_INT_32.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    parts.append(encoding.count(len(topics)))
    for topic, rows in topics:
        parts += (encoding.topic(topic), encoding.count(len(rows)))
        parts += [pack(partition, error_code) for partition, error_code in rows]
        parts.append(encoding.no_tags)
    parts.append(encoding.no_tags)
    return b"".join(parts)


@lru_cache(maxsize=_HEADS_MAX)
def _write_one_row(topic: TopicKey, partition: int, error_code: int, throttle_ms: int) -> bytes:
    """The body, in any flexible version, for one partition."""
    return b"".join(
        (
            _INT_32.pack(throttle_ms),
            FLEXIBLE.count(1),
            FLEXIBLE.topic(topic),
            FLEXIBLE.count(1),
            _FLEXIBLE_PARTITION.pack(partition, error_code),
            b"\0\0",  # no tagged fields of topic and response
        )
    )


# OffsetFetch responses.


class FetchedPartition(NamedTuple):
    """What a group has committed in one partition; -1: nothing."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class FetchedTopic(NamedTuple):
    """One topic of a group: by name, or by id from version 10 on."""

    topic: TopicKey
    partitions: Sequence[FetchedPartition]


class FetchedGroup(NamedTuple):
    """The commits of one group."""

    group_id: str
    topics: Sequence[FetchedTopic] = ()
    error_code: int = 0


class OffsetFetchResponse(NamedTuple):
    """A response of any version. Below version 8 there is exactly one group."""

    groups: Sequence[FetchedGroup]


_FETCHED_1: Final = Struct(
    ">"
    "i"  # partition
    "q"  # offset  -1: nothing committed; metadata and error code follow
)
_FETCHED_5: Final = Struct(
    ">"
    "i"  # partition
    "q"  # offset
    "i"  # leader_epoch
)


def write_fetch_response(response: OffsetFetchResponse, version: int, throttle_ms: int) -> bytes:
    """The body in this version."""
    encoding = encoding_of(OFFSET_FETCH, version)
    parts = [_INT_32.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    if version >= GROUPS_FROM:
        parts.append(encoding.count(len(response.groups)))
        for group in response.groups:
            parts.append(encoding.string(group.group_id))
            parts += _write_topics(version, encoding, group.topics)
            parts += (_ERROR.pack(group.error_code), encoding.no_tags)
    else:
        (group,) = response.groups
        parts += _write_topics(version, encoding, group.topics)
        if version >= _ERROR_FROM:
            parts.append(_ERROR.pack(group.error_code))
    parts.append(encoding.no_tags)
    return b"".join(parts)


def _write_topics(version: int, encoding: Encoding, topics: Sequence[FetchedTopic]) -> list[bytes]:
    parts = [encoding.count(len(topics))]
    for topic, partitions in topics:
        parts += (encoding.topic(topic), encoding.count(len(partitions)))
        parts += [_write_fetched(version, encoding, row) for row in partitions]
        parts.append(encoding.no_tags)
    return parts


def _write_fetched(version: int, encoding: Encoding, row: FetchedPartition) -> bytes:
    if version >= _LEADER_EPOCH_FROM:
        fixed = _FETCHED_5.pack(*row[:3])
    else:
        fixed = _FETCHED_1.pack(*row[:2])
    metadata, error = encoding.string(row.metadata), _ERROR.pack(row.error_code)
    return fixed + metadata + error + encoding.no_tags
