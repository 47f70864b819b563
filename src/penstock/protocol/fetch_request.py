"""The fetch request, flexible versions (12 and up), read by hand: a consumer sends little else.

Checks bounds and makes plain tuples; `from_entity` brings what kio reads of older versions into the
same shape.
"""

from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.fields import FLEXIBLE, TopicKey
from penstock.protocol.headers import skip_tagged_fields

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
_NO_REPLICA_FROM: Final = 15  # a replica says so in a tagged field since

_REPLICA: Final = Struct(">i")
_START: Final = Struct(
    ">"
    "i"  # max_wait_ms
    "i"  # min_bytes
    "i"  # max_bytes
    "b"  # isolation_level  0 everything, 1 committed
    "i"  # session_id
    "i"  # session_epoch
)
_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "i"  # current_leader_epoch
    "q"  # fetch_offset
    "i"  # last_fetched_epoch
    "q"  # log_start_offset  of a replica
    "i"  # partition_max_bytes
)
_INT_32: Final = Struct(">i")


class WantedPartition(NamedTuple):
    """One partition of a fetch."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A fetch of any version."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[WantedPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]


def read_fetch_request(frame: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    """The request whose body starts at `position` and ends with the frame."""
    by_id = version >= TOPIC_IDS_FROM
    try:
        if version < _NO_REPLICA_FROM:
            position += _REPLICA.size
        start = _START.unpack_from(frame, position)
        topics, position = _read_topics(frame, position + _START.size, by_id)
        forgotten, position = _read_forgotten(frame, position, by_id)
        _, position = FLEXIBLE.read_string(frame, position)  # rack_id
        position = skip_tagged_fields(frame, position, len(frame))
    except StructError as error:  # a number of fixed size does not fit: cheaper than asking first
        raise Malformed("a fetch request is cut short", len(frame)) from error
    if position != len(frame):
        raise Malformed(f"{len(frame) - position} bytes are left after the request", position)
    return tuple.__new__(FetchRequest, (*start, topics, forgotten)), position


def from_entity(request: Any) -> FetchRequest:
    """What kio read of a version before 12."""
    return FetchRequest(
        int(request.max_wait.total_seconds() * 1000),
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        getattr(request, "session_id", 0),
        getattr(request, "session_epoch", -1),
        [
            (
                topic.topic,
                [
                    WantedPartition(
                        asked.partition,
                        getattr(asked, "current_leader_epoch", -1),
                        asked.fetch_offset,
                        -1,
                        -1,
                        asked.partition_max_bytes,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        [
            (topic.topic, list(topic.partitions))
            for topic in getattr(request, "forgotten_topics_data", ())
        ],
    )


def _read_topics(
    frame: memoryview, position: int, by_id: bool
) -> tuple[list[tuple[TopicKey, list[WantedPartition]]], int]:
    end = len(frame)
    count, position = FLEXIBLE.read_count(frame, position)
    topics: list[tuple[TopicKey, list[WantedPartition]]] = []
    for _ in range(count):
        topic, position = FLEXIBLE.read_topic(frame, position, by_id)
        partition_count, position = FLEXIBLE.read_count(frame, position)
        partitions = []
        for _ in range(partition_count):
            partitions.append(
                tuple.__new__(WantedPartition, _PARTITION.unpack_from(frame, position))
            )
            position += _PARTITION.size
            if position < end and frame[position] == 0:  # no tagged fields: as good as always
                position += 1
            else:
                position = skip_tagged_fields(frame, position, end)
        position = skip_tagged_fields(frame, position, end)
        topics.append((topic, partitions))
    return topics, position


def _read_forgotten(
    frame: memoryview, position: int, by_id: bool
) -> tuple[list[tuple[TopicKey, list[int]]], int]:
    count, position = FLEXIBLE.read_count(frame, position)
    topics: list[tuple[TopicKey, list[int]]] = []
    for _ in range(count):
        topic, position = FLEXIBLE.read_topic(frame, position, by_id)
        partition_count, position = FLEXIBLE.read_count(frame, position)
        partitions = [
            _INT_32.unpack_from(frame, position + index * _INT_32.size)[0]
            for index in range(partition_count)
        ]
        position += partition_count * _INT_32.size
        position = skip_tagged_fields(frame, position, len(frame))
        topics.append((topic, partitions))
    return topics, position
