"""The answer to ListOffsets, versions 1 to 11."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import encoding_of

LIST_OFFSETS: Final = 2
_THROTTLE_FROM: Final = 2
_LEADER_EPOCH_FROM: Final = 4

_THROTTLE: Final = Struct(">i")
_PARTITION_1: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # timestamp
    "q"  # offset
)
_PARTITION_4: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # timestamp
    "q"  # offset
    "i"  # leader_epoch
)


class PartitionAnswer(NamedTuple):
    """The offset that was found; -1: none."""

    partition: int
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class TopicAnswer(NamedTuple):
    """The partitions of one topic."""

    name: str
    partitions: Sequence[PartitionAnswer]


def pack_list_offsets(
    version: int, topics: Sequence[TopicAnswer], *, throttle_ms: int = 0
) -> bytes:
    """The body."""
    encoding = encoding_of(LIST_OFFSETS, version)
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    parts.append(encoding.count(len(topics)))
    layout = _PARTITION_4 if version >= _LEADER_EPOCH_FROM else _PARTITION_1
    fields = 5 if version >= _LEADER_EPOCH_FROM else 4
    for topic in topics:
        parts += (encoding.string(topic.name), encoding.count(len(topic.partitions)))
        for answer in topic.partitions:
            parts += (layout.pack(*answer[:fields]), encoding.no_tags)
        parts.append(encoding.no_tags)
    parts.append(encoding.no_tags)
    return b"".join(parts)
