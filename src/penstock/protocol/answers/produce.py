"""The answer to Produce, versions 3 to 13."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.answers.dialect import (
    FLEXIBLE,
    NO_TOPIC_ID,
    Dialect,
    LeaderAndEpoch,
    Node,
    dialect_of,
    leader_field,
    nodes_field,
    tagged,
)

PRODUCE: Final = 0
_FLEXIBLE_FROM: Final = 9
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10
_TOPIC_IDS_FROM: Final = 13

_PARTITION_3: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time  -1 unless the topic has LogAppendTime
)
_PARTITION_5: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # base_offset
    "q"  # log_append_time
    "q"  # log_start_offset
)
_RECORD_ERROR: Final = Struct(">i")  # index of the record in its batch; a message follows
_THROTTLE: Final = Struct(">i")
_NO_ERRORS_NOR_TAGS: Final = b"\x01\x00\x00"  # flexible: no record errors, null message, no tags


_PRODUCED: Final = Struct(
    ">"
    "i"  # partition
    "2x"  # error_code       0
    "q"  # base_offset
    "q"  # log_append_time  -1
    "q"  # log_start_offset
    "B"  # record errors    1: an array of none
    "x"  # error message    null
    "x"  # no tagged fields of the partition
    "x"  # nor of the topic
    "4x"  # throttle_ms      0
    "x"  # nor of the answer
)


class PartitionAnswer(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # index in the batch, why
    error_message: str | None = None
    current_leader: LeaderAndEpoch | None = None


class TopicAnswer(NamedTuple):
    """The partitions of one topic, which was asked for by name, or by id from version 13 on."""

    name: str
    partitions: Sequence[PartitionAnswer]
    topic_id: bytes = NO_TOPIC_ID


def pack_produce(
    version: int,
    topics: Sequence[TopicAnswer],
    *,
    throttle_ms: int = 0,
    nodes: Sequence[Node] = (),
) -> bytes:
    """The body. `nodes` are those that any `current_leader` names."""
    dialect = dialect_of(PRODUCE, version)
    parts = [dialect.count(len(topics))]
    for topic in topics:
        named = topic.topic_id if version >= _TOPIC_IDS_FROM else dialect.string(topic.name)
        parts += (named, dialect.count(len(topic.partitions)))
        parts += [_pack_partition(version, dialect, answer) for answer in topic.partitions]
        parts.append(dialect.no_tags)
    parts.append(_THROTTLE.pack(throttle_ms))
    parts.append(
        tagged(nodes_field(0, nodes)) if nodes and version >= _LEADERS_FROM else dialect.no_tags
    )
    return b"".join(parts)


def pack_produced(
    topic: str | bytes, partition: int, *, base_offset: int, log_start_offset: int
) -> bytes:
    """The body when one batch for one partition was taken, which most answers say.

    For flexible versions: the topic is named, or by its id from version 13 on. `pack_produce` says
    the same in a multiple of the time.
    """
    return _one_of(topic) + _PRODUCED.pack(partition, base_offset, -1, log_start_offset, 1)


@lru_cache(maxsize=4096)
def _one_of(topic: str | bytes) -> bytes:
    named = topic if isinstance(topic, bytes) else FLEXIBLE.string(topic)
    return FLEXIBLE.count(1) + named + FLEXIBLE.count(1)


def _pack_partition(version: int, dialect: Dialect, answer: PartitionAnswer) -> bytes:
    if version < _LOG_START_FROM:
        return _PARTITION_3.pack(*answer[:4])
    fixed = _PARTITION_5.pack(*answer[:5])
    if version < _RECORD_ERRORS_FROM:
        return fixed
    if dialect.flexible and not answer.error_code:
        return fixed + _NO_ERRORS_NOR_TAGS
    return fixed + _pack_errors(dialect, answer) + _pack_leader(version, dialect, answer)


def _pack_errors(dialect: Dialect, answer: PartitionAnswer) -> bytes:
    parts = [dialect.count(len(answer.record_errors))]
    for index, message in answer.record_errors:
        parts += (_RECORD_ERROR.pack(index), dialect.string(message), dialect.no_tags)
    parts.append(dialect.string(answer.error_message))
    return b"".join(parts)


def _pack_leader(version: int, dialect: Dialect, answer: PartitionAnswer) -> bytes:
    if version < _LEADERS_FROM or answer.current_leader is None:
        return dialect.no_tags
    return tagged(leader_field(0, answer.current_leader))
