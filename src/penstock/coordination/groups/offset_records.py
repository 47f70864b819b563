"""Offset commits as `__consumer_offsets` stores them, byte for byte as Apache Kafka does.

    key    int16 1, group, topic, int32 partition           (0 is the same key in its oldest form)
    value  int16 4, int64 offset, int32 leader epoch, compact metadata, int64 commit time, tags
           tag 0: topic id

Values of versions 0 to 3 are read too. The state of the machine keeps values packed: a restart
reads a million of them, and most are never asked for.
"""

from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple
from uuid import UUID

from penstock.coordination.groups.fields import FieldReader, write_compact_bytes
from penstock.errors import Malformed
from penstock.model import NO_EPOCH, LeaderEpoch, Millis, Offset

OFFSET_KEY_VERSIONS: Final = (0, 1)
OFFSET_KEY: Final = b"\x00\x01"  # how the key of a commit begins
NO_TOPIC_ID: Final = UUID(int=0)

_VALUE_HEAD: Final = Struct(
    ">"
    "h"  # version
    "q"  # offset
    "i"  # leader_epoch  from version 3
)
_VALUE_TIME: Final = Struct(">q")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field: tag 0, 16 bytes
_PLAIN_VALUE: Final = Struct(
    ">"
    "h"  # version
    "q"  # offset
    "i"  # leader_epoch
    "b"  # metadata        1: an empty text, which most commits have
    "q"  # committed_at
    "19s"  # a tagged field with the topic's id
)
_PARTITION: Final = Struct(">i")
_SIZE: Final = Struct(">h")


class CommittedOffset(NamedTuple):
    """Where a group is in one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    committed_at: Millis
    expires_at: Millis | None  # only commits of very old clients carry their own retention
    topic_id: UUID


def write_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of a commit, in the form Kafka 4 writes."""
    return _key_start(group_id, topic) + _PARTITION.pack(partition)


@lru_cache(maxsize=10_000)  # a group commits to the same topics all its life
def _key_start(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join((OFFSET_KEY, _SIZE.pack(len(group)), group, _SIZE.pack(len(name)), name))


def read_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and partition of a commit. Plain slices: a restart reads very many."""
    try:
        group_end = 4 + (key[2] << 8 | key[3])
        topic_end = group_end + 2 + (key[group_end] << 8 | key[group_end + 1])
        (partition,) = _PARTITION.unpack_from(key, topic_end)
        return key[4:group_end].decode(), key[group_end + 2 : topic_end].decode(), partition
    except (IndexError, UnicodeDecodeError, error):
        raise Malformed("the key of an offset commit is cut short", len(key)) from None


def write_offset_value(
    offset: int, leader_epoch: int, metadata: str, committed_at: int, topic_id: UUID = NO_TOPIC_ID
) -> bytes:
    """The value of a commit: version 4."""
    number = topic_id.int  # UUID's own comparison and bytes are slow, and commits are many
    if number and not metadata:
        return _PLAIN_VALUE.pack(4, offset, leader_epoch, 1, committed_at, _topic_id_tag(number))
    return b"".join(
        (
            _VALUE_HEAD.pack(4, offset, leader_epoch),
            write_compact_bytes(metadata.encode()),
            _VALUE_TIME.pack(committed_at),
            _topic_id_tag(number) if number else b"\x00",
        )
    )


@lru_cache(maxsize=10_000)
def _topic_id_tag(number: int) -> bytes:
    return _TOPIC_ID_TAG + number.to_bytes(16, "big")


def read_offset_value(value: bytes) -> CommittedOffset:
    """The value of a commit, of any version up to ours; a newer one reads as far as we know it."""
    fields = FieldReader(value)
    version = fields.int16()
    offset = Offset(fields.int64())
    leader_epoch = LeaderEpoch(fields.int32()) if version >= 3 else NO_EPOCH
    metadata = fields.compact_string() if version >= 4 else fields.string()
    committed_at = Millis(fields.int64())
    expires_at = None
    topic_id = NO_TOPIC_ID
    if version == 1:
        own_expiry = fields.int64()
        expires_at = None if own_expiry < 0 else Millis(own_expiry)
    if version >= 4 and (packed := fields.tags().get(0)):
        topic_id = UUID(bytes=packed)
    return CommittedOffset(offset, leader_epoch, metadata, committed_at, expires_at, topic_id)


def offset_of(value: bytes) -> int:
    """Only the offset, for comparisons."""
    return int.from_bytes(value[2:10], "big", signed=True)
