"""The answer to OffsetCommit, versions 2 to 10."""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import FLEXIBLE, NO_TOPIC_ID, TopicKey, encoding_of

OFFSET_COMMIT: Final = 8
_THROTTLE_FROM: Final = 3
_TOPIC_IDS_FROM: Final = 10

_THROTTLE: Final = Struct(">i")
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
_ONE: Final = 2  # a count is one more than there are
_ONE_START: Final = Struct(
    ">"
    "i"  # throttle_ms
    "B"  # topics
)
_ONE_PARTITION: Final = Struct(
    ">"
    "B"  # partitions
    "i"  # partition
    "h"  # error_code
    "3x"  # no tagged fields: of the partition, the topic, the response
)


class TopicAnswer(NamedTuple):
    """Partition and error code of each commit in one topic."""

    name: str
    partitions: Sequence[tuple[int, int]]
    topic_id: bytes = NO_TOPIC_ID


def pack_offset_commit(
    version: int, topics: Sequence[TopicAnswer], *, throttle_ms: int = 0
) -> bytes:
    """The body."""
    encoding = encoding_of(OFFSET_COMMIT, version)
    pack = _FLEXIBLE_PARTITION.pack if encoding.is_flexible else _PARTITION.pack
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    parts.append(encoding.count(len(topics)))
    for name, partitions, topic_id in topics:
        parts.append(topic_id if version >= _TOPIC_IDS_FROM else encoding.string(name))
        parts.append(encoding.count(len(partitions)))
        parts += [pack(partition, error_code) for partition, error_code in partitions]
        parts.append(encoding.no_tags)
    parts.append(encoding.no_tags)
    return b"".join(parts)


@lru_cache(maxsize=10_000)  # a member is told the same again and again
def pack_one_commit(topic: TopicKey, partition: int, error_code: int, throttle_ms: int) -> bytes:
    """The body, in any flexible version, for one partition of a topic named as it was asked for."""
    named = topic if isinstance(topic, bytes) else FLEXIBLE.string(topic)
    start = _ONE_START.pack(throttle_ms, _ONE)
    return start + named + _ONE_PARTITION.pack(_ONE, partition, error_code)
