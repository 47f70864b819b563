"""The answer to OffsetFetch, versions 1 to 10: one group up to version 7, any number from 8 on."""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.protocol.fields import NO_TOPIC_ID, Encoding, encoding_of

OFFSET_FETCH: Final = 9
_ERROR_FROM: Final = 2
_THROTTLE_FROM: Final = 3
_LEADER_EPOCH_FROM: Final = 5
_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_THROTTLE: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_PARTITION_1: Final = Struct(
    ">"
    "i"  # partition
    "q"  # offset  -1: nothing committed; metadata and error code follow
)
_PARTITION_5: Final = Struct(
    ">"
    "i"  # partition
    "q"  # offset
    "i"  # leader_epoch
)


class PartitionAnswer(NamedTuple):
    """What a group has committed in one partition; -1: nothing."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class TopicAnswer(NamedTuple):
    """The partitions of one topic, which was asked for by name, or by id from version 10 on."""

    name: str
    partitions: Sequence[PartitionAnswer]
    topic_id: bytes = NO_TOPIC_ID


class GroupAnswer(NamedTuple):
    """One group's commits."""

    group_id: str
    topics: Sequence[TopicAnswer] = ()
    error_code: int = 0


def pack_offset_fetch(
    version: int, groups: Sequence[GroupAnswer], *, throttle_ms: int = 0
) -> bytes:
    """The body. Below version 8 there must be exactly one group."""
    encoding = encoding_of(OFFSET_FETCH, version)
    parts = [_THROTTLE.pack(throttle_ms)] if version >= _THROTTLE_FROM else []
    if version >= _GROUPS_FROM:
        parts.append(encoding.count(len(groups)))
        for group in groups:
            parts.append(encoding.string(group.group_id))
            parts += _pack_topics(version, encoding, group.topics)
            parts += (_ERROR.pack(group.error_code), encoding.no_tags)
    else:
        (group,) = groups
        parts += _pack_topics(version, encoding, group.topics)
        if version >= _ERROR_FROM:
            parts.append(_ERROR.pack(group.error_code))
    parts.append(encoding.no_tags)
    return b"".join(parts)


def _pack_topics(version: int, encoding: Encoding, topics: Sequence[TopicAnswer]) -> list[bytes]:
    parts = [encoding.count(len(topics))]
    for topic in topics:
        named = topic.topic_id if version >= _TOPIC_IDS_FROM else encoding.string(topic.name)
        parts += (named, encoding.count(len(topic.partitions)))
        parts += [_pack_partition(version, encoding, answer) for answer in topic.partitions]
        parts.append(encoding.no_tags)
    return parts


def _pack_partition(version: int, encoding: Encoding, answer: PartitionAnswer) -> bytes:
    if version >= _LEADER_EPOCH_FROM:
        fixed = _PARTITION_5.pack(*answer[:3])
    else:
        fixed = _PARTITION_1.pack(*answer[:2])
    metadata, error = encoding.string(answer.metadata), _ERROR.pack(answer.error_code)
    return fixed + metadata + error + encoding.no_tags
