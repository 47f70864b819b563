"""OffsetCommit, flexible versions (8 and up), read by hand: consumers send it all day.

Checks bounds and makes plain tuples, with the names that kio's readers of older versions use.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from penstock.errors import Malformed
from penstock.protocol.compact import read_count, read_nullable_string, read_topic_id
from penstock.protocol.headers import skip_tagged_fields

FLEXIBLE_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_TWO_BYTES_FROM: Final = 0x80  # the length of a string

_GENERATION: Final = Struct(">i")
_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "q"  # committed_offset
    "i"  # committed_leader_epoch
)


class CommittedPartition(NamedTuple):
    """Where the group is in one partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class CommittedTopic(NamedTuple):
    """The commits to one topic: by name, or by id from version 10 on."""

    name: str
    topic_id: UUID | None
    partitions: list[CommittedPartition]


class CommitRequest(NamedTuple):
    """A commit of some offsets."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[CommittedTopic]


def read_commit_request(
    frame: memoryview, position: int, version: int
) -> tuple[CommitRequest, int]:
    """The request whose body starts at `position`, and where it ends."""
    body = bytes(frame[position:])
    try:
        request, reached = _read(body, version >= _TOPIC_IDS_FROM)
    except (IndexError, StructError) as error:  # cheaper than asking first
        raise Malformed("an offset commit is cut short", len(frame)) from error
    except UnicodeDecodeError as error:
        raise Malformed("a string of an offset commit is not UTF-8", position) from error
    return request, position + reached


def _read(body: bytes, by_id: bool) -> tuple[CommitRequest, int]:
    group_id, at = _read_text(body, 0)
    (generation,) = _GENERATION.unpack_from(body, at)
    member_id, at = _read_text(body, at + _GENERATION.size)
    instance_id, at = _read_text(body, at)
    if group_id is None or member_id is None:
        raise Malformed("an offset commit has no group or no member", at)
    count, at = read_count(body, at)
    topics = []
    for _ in range(count):
        topic, at = _read_topic(body, at, by_id)
        topics.append(topic)
    at = skip_tagged_fields(body, at, len(body))
    return CommitRequest(group_id, generation, member_id, instance_id, topics), at


def _read_topic(body: bytes, at: int, by_id: bool) -> tuple[CommittedTopic, int]:
    name: str | None = ""
    topic_id = None
    if by_id:
        packed_id, at = read_topic_id(body, at)
        topic_id = UUID(bytes=packed_id)
    else:
        name, at = _read_text(body, at)
    if name is None:
        raise Malformed("a topic has no name", at)
    count, at = read_count(body, at)
    partitions = []
    for _ in range(count):
        index, offset, leader_epoch = _PARTITION.unpack_from(body, at)
        metadata, at = _read_text(body, at + _PARTITION.size)
        at = at + 1 if body[at] == 0 else skip_tagged_fields(body, at, len(body))
        partitions.append(CommittedPartition(index, offset, leader_epoch, metadata))
    at = skip_tagged_fields(body, at, len(body))
    return CommittedTopic(name, topic_id, partitions), at


def _read_text(body: bytes, at: int) -> tuple[str | None, int]:
    """A string or null. One that runs past the body leads there, where nothing can be read."""
    size = body[at]
    if 0 < size < _TWO_BYTES_FROM:
        end = at + size
        return body[at + 1 : end].decode(), end
    return read_nullable_string(body, at)
