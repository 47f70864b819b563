"""OffsetCommit of one partition, read by hand: what a consumer of one partition sends all day.

From commit to commit only the end of it differs, so what comes before is read once and kept. kio
reads all other commits.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.fields import FLEXIBLE, TopicKey

_FLEXIBLE_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_HEADS_MAX: Final = 10_000  # kept: of so many members
_HEAD_BYTES_MAX: Final = 1024  # longer ones are not kept: what is sent must not fill our memory

_INT_32: Final = Struct(">i")
_TAIL: Final = Struct(
    ">"
    "q"  # committed_offset
    "i"  # committed_leader_epoch
    "i"  # the metadata's length, and no tagged fields of partition, topic and request
)
_NULL: Final = 0
_EMPTY: Final = 1 << 24


class CommitHead(NamedTuple):
    """Who commits, and to which partition."""

    group_id: str
    generation: int  # or the member's epoch
    member_id: str
    instance_id: str | None
    topic: TopicKey  # its name, or its id from version 10 on
    partition: int


class OneCommit(NamedTuple):
    """Where a group is in one partition, with nothing said about it."""

    head: CommitHead
    offset: int
    leader_epoch: int


def read_one_commit(frame: memoryview, position: int, version: int) -> OneCommit | None:
    """The commit whose body starts at `position`, if it is one and says no more.

    None says nothing about the request yet: kio's reader does.
    """
    tail_at = len(frame) - _TAIL.size
    if version < _FLEXIBLE_FROM or not 0 < tail_at - position <= _HEAD_BYTES_MAX:
        return None
    offset, leader_epoch, end = _TAIL.unpack_from(frame, tail_at)
    if end != _EMPTY and end != _NULL:
        return None
    head = _read_head(frame[position:tail_at].tobytes(), version >= _TOPIC_IDS_FROM)
    return None if head is None else tuple.__new__(OneCommit, (head, offset, leader_epoch))


@lru_cache(maxsize=_HEADS_MAX)
def _read_head(packed: bytes, by_id: bool) -> CommitHead | None:
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
    return CommitHead(group_id, generation, member_id, instance_id, topic, partition)
