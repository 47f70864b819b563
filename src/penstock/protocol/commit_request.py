"""OffsetCommit of one partition, read by hand: what a consumer of one partition sends all day.

kio reads all others as fast; what it takes longer for is to walk over a request before it reads it.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.protocol.compact import TopicKey

_FLEXIBLE_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_TOPIC_ID_BYTES: Final = 16
_TWO_BYTES_FROM: Final = 0x80
_ONE: Final = 2  # a count is one more than there are
_ONE_END: Final = b"\0\0\0"  # no tagged fields: of the partition, the topic, the request

_GENERATION: Final = Struct(">i")
_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "q"  # committed_offset
    "i"  # committed_leader_epoch
)


class OneCommit(NamedTuple):
    """Where a group is in one partition."""

    group_id: str
    generation: int  # or the member's epoch
    member_id: str
    instance_id: str | None
    topic: TopicKey  # its name, or its id from version 10 on
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


def read_one_commit(frame: memoryview, position: int, version: int) -> OneCommit | None:
    """The commit whose body starts at `position`, if it is one and says no more.

    None says nothing about the request yet: kio's reader does.
    """
    if version < _FLEXIBLE_FROM:
        return None
    body = bytes(frame[position:])
    topic: TopicKey | None
    try:
        group_id, at = _read_text(body, 0)
        (generation,) = _GENERATION.unpack_from(body, at)
        member_id, at = _read_text(body, at + _GENERATION.size)
        instance_id, at = _read_text(body, at)
        if body[at] != _ONE:
            return None
        if version >= _TOPIC_IDS_FROM:
            topic, at = body[at + 1 : at + 1 + _TOPIC_ID_BYTES], at + 1 + _TOPIC_ID_BYTES
        else:
            topic, at = _read_text(body, at + 1)
        if body[at] != _ONE:
            return None
        partition, offset, leader_epoch = _PARTITION.unpack_from(body, at + 1)
        metadata, at = _read_text(body, at + 1 + _PARTITION.size)
    except (IndexError, StructError, UnicodeDecodeError):
        return None
    if body[at:] != _ONE_END or group_id is None or member_id is None or topic is None:
        return None
    return OneCommit(
        group_id,
        generation,
        member_id,
        instance_id,
        topic,
        partition,
        offset,
        leader_epoch,
        metadata,
    )


def _read_text(body: bytes, at: int) -> tuple[str | None, int]:
    """A string or null, and where it ends. IndexError for a long one: that is rare."""
    size = body[at]
    if size == 0:
        return None, at + 1
    if size >= _TWO_BYTES_FROM:
        raise IndexError
    end = at + size
    return body[at + 1 : end].decode(), end  # past the body there is nothing left to be read
