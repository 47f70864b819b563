"""The fetch request, flexible versions (12 and up), read by hand: a consumer sends little else.

Checks bounds and makes plain tuples; `from_entity` brings what kio reads of older versions into the
same shape.

The answer to Fetch, versions 4 to 18: small pieces of our own between the log's own bytes.

Record bytes are passed through as the views they came as and are never copied; the pieces are to
be written one after the other. An incremental session's answer is one with fewer partitions.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.fields import (
    FLEXIBLE,
    NO_TOPIC_ID,
    Encoding,
    LeaderAndEpoch,
    Node,
    TopicKey,
    encoding_of,
    leader_field,
    nodes_field,
    tagged,
)
from penstock.protocol.framing import skip_tagged_fields
from penstock.protocol.varint import Buffer

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


FETCH: Final = 1
_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_TOPIC_IDS_FROM: Final = 13
_NODES_FROM: Final = 16

_THROTTLE: Final = Struct(">i")
_SESSION: Final = Struct(
    ">"
    "h"  # error_code  of the whole answer
    "i"  # session_id  0: none
)
_PARTITION_4: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
)
_PARTITION_5: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
)
_PARTITION_12: Final = Struct(  # flexible, and no aborted transactions: what most are
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
    "B"  # aborted_transactions    0: null, 1: none
    "i"  # preferred_read_replica  -1: fetch here
)
_NO_RECORDS_NOR_TAGS: Final = b"\x01\x00"  # flexible
_ABORTED: Final = Struct(
    ">"
    "q"  # producer_id
    "q"  # first_offset
)
_PREFERRED_REPLICA: Final = Struct(">i")
_DIVERGING: Final = Struct(
    ">"
    "i"  # epoch       the largest that both logs may share
    "q"  # end_offset  of that epoch here
    "x"  # no tagged fields
)


class EpochEnd(NamedTuple):
    """Where a leader epoch ends here: what a replica that diverged must cut back to."""

    epoch: int
    end_offset: int


class PartitionAnswer(NamedTuple):
    """One partition's news; after an error all but the code stay as they are here."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    # Producer id and first offset; None unless the client reads committed records only.
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEnd | None = None
    current_leader: LeaderAndEpoch | None = None


_NO_TAGGED_FIELDS: Final = (None, None)  # the last two of a PartitionAnswer


class TopicAnswer(NamedTuple):
    """The partitions of one topic, which was asked for by name, or by id from version 13 on."""

    name: str
    partitions: Sequence[PartitionAnswer]
    topic_id: bytes = NO_TOPIC_ID


def pack_fetch(
    version: int,
    topics: Sequence[TopicAnswer],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    nodes: Sequence[Node] = (),
) -> list[Buffer]:
    """The body in pieces. `nodes` are those that any `current_leader` names."""
    encoding = encoding_of(FETCH, version)
    is_flexible = encoding.is_flexible
    pieces: list[Buffer] = []
    own = bytearray(_THROTTLE.pack(throttle_ms))
    if version >= _SESSIONS_FROM:
        own += _SESSION.pack(error_code, session_id)
    own += encoding.count(len(topics))
    for topic in topics:
        own += topic.topic_id if version >= _TOPIC_IDS_FROM else encoding.string(topic.name)
        own += encoding.count(len(topic.partitions))
        for answer in topic.partitions:
            own += _pack_partition(version, encoding, answer)
            records = answer.records
            if records:
                own += encoding.size(len(records))
                pieces += (own, records)
                own = bytearray(_pack_tags(encoding, answer))
            elif is_flexible and answer[-2:] == _NO_TAGGED_FIELDS:
                own += _NO_RECORDS_NOR_TAGS
            else:
                own += encoding.size(0)
                own += _pack_tags(encoding, answer)
        own += encoding.no_tags
    own += tagged(nodes_field(0, nodes)) if nodes and version >= _NODES_FROM else encoding.no_tags
    if own:
        pieces.append(own)
    return pieces


def _pack_partition(version: int, encoding: Encoding, answer: PartitionAnswer) -> bytes:
    """Everything up to the size of the records."""
    aborted = answer.aborted
    if encoding.is_flexible and not aborted:
        return _PARTITION_12.pack(*answer[:5], aborted is not None, answer.preferred_read_replica)
    if version >= _LOG_START_FROM:
        fixed = _PARTITION_5.pack(*answer[:5])
    else:
        fixed = _PARTITION_4.pack(*answer[:4])
    listed = encoding.null_array if aborted is None else _pack_aborted(encoding, aborted)
    if version < _PREFERRED_REPLICA_FROM:
        return fixed + listed
    return fixed + listed + _PREFERRED_REPLICA.pack(answer.preferred_read_replica)


def _pack_aborted(encoding: Encoding, aborted: Sequence[tuple[int, int]]) -> bytes:
    tags = encoding.no_tags
    return encoding.count(len(aborted)) + b"".join(
        [_ABORTED.pack(producer_id, first_offset) + tags for producer_id, first_offset in aborted]
    )


def _pack_tags(encoding: Encoding, answer: PartitionAnswer) -> bytes:
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if not encoding.is_flexible or (diverging is None and leader is None):
        return encoding.no_tags
    fields = []
    if diverging is not None:
        fields.append((0, _DIVERGING.pack(diverging.epoch, diverging.end_offset)))
    if leader is not None:
        fields.append(leader_field(1, leader))
    return tagged(*fields)
