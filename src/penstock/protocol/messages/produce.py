"""Produce (API 0), versions 3 to 13: requests and responses, read and written.

Batches are views of the frame that they arrived in: the leader writes offsets there before it
appends them. Bounds are checked, no batch is opened. What precedes the records in a request for
one partition is the same in every request of a client, so it is decoded once and cached; so is
what precedes the row of such a response.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.fields import (
    FLEXIBLE,
    NO_TOPIC_ID,
    TOPIC_ID_BYTES,
    Encoding,
    LeaderAndEpoch,
    Node,
    TopicKey,
    encoding_of,
    leader_field,
    nodes_field,
    tagged,
)
from penstock.protocol.kio_codec import response_reader
from penstock.protocol.varint import Buffer, read_unsigned_varint

PRODUCE: Final = 0
ALL_IN_SYNC: Final = -1  # acks=all
FLEXIBLE_FROM: Final = 9
TRANSACTIONS_FROM: Final = 12  # a transactional batch adds its own partition to the transaction
TOPIC_IDS_FROM: Final = 13
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADERS_FROM: Final = 10

_ACKS_AND_TIMEOUT: Final = Struct(
    ">"
    "h"  # acks        0 none, 1 the leader, -1 every in-sync replica
    "i"  # timeout_ms  how long the leader waits for them
)
_INT_32: Final = Struct(">i")


class PartitionData(NamedTuple):
    """The batch for one partition. None: the client sent no records."""

    partition: int
    records: memoryview | None


class TopicData(NamedTuple):
    """One topic of a request: by name, or by id from version 13 on."""

    topic: TopicKey
    partitions: Sequence[PartitionData]


class ProduceRequest(NamedTuple):
    """A request of any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[TopicData]


class PartitionResult(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # index in the batch, reason
    error_message: str | None = None
    current_leader: LeaderAndEpoch | None = None


class TopicResult(NamedTuple):
    """One topic of a response."""

    topic: TopicKey
    partitions: Sequence[PartitionResult]


class ProduceResponse(NamedTuple):
    """A response of any version."""

    topics: Sequence[TopicResult]
    nodes: Sequence[Node] = ()  # those that any `current_leader` names


# Requests.


def read_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """The request whose body starts at `position` and ends with the frame."""
    if version >= FLEXIBLE_FROM:
        request = _read_one_partition(frame, position, version >= TOPIC_IDS_FROM)
        if request is not None:
            return request
    try:
        request, end = _read_any(frame, position, version)
    except StructError as error:  # cheaper than a length check before every number
        raise Malformed("a produce request is cut short", len(frame)) from error
    if end != len(frame):
        raise Malformed(f"{len(frame) - end} bytes are left after the request", end)
    return request


def _read_any(frame: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    encoding = encoding_of(PRODUCE, version)
    end = len(frame)
    transactional_id, position = encoding.read_nullable_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = encoding.read_count(frame, position + _ACKS_AND_TIMEOUT.size)
    topics = []
    for _ in range(topic_count):
        topic, position = encoding.read_topic(frame, position, version >= TOPIC_IDS_FROM)
        partition_count, position = encoding.read_count(frame, position)
        partitions = []
        for _ in range(partition_count):
            (partition,) = _INT_32.unpack_from(frame, position)
            records, position = encoding.read_nullable_bytes(frame, position + _INT_32.size)
            partitions.append(PartitionData(partition, records))
            position = encoding.skip_tags(frame, position, end)
        topics.append(TopicData(topic, partitions))
        position = encoding.skip_tags(frame, position, end)
    position = encoding.skip_tags(frame, position, end)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


_HEAD: Final = Struct(
    ">"
    "B"  # transactional_id  0: null
    "h"  # acks
    "i"  # timeout_ms
    "B"  # topics            one more than there are
)
_PARTITION_HEAD: Final = Struct(
    ">"
    "B"  # partitions        one more than there are
    "i"  # partition
)
_ONE_ENTRY: Final = 2
_NO_TAGS: Final = b"\0\0\0"  # of the partition, the topic, the request
_AFTER_HEAD_BYTES_MIN: Final = 32  # a batch alone takes more
_ONE_BYTE_MAX: Final = 0x7F  # the largest varint of one byte
_HEADS_MAX: Final = 10_000  # of so many partitions


def _read_one_partition(frame: memoryview, position: int, by_id: bool) -> ProduceRequest | None:
    """A flexible request of one batch outside a transaction, as most are; None: not of that form.

    librdkafka sends no others outside transactions.
    """
    topic_at = position + _HEAD.size
    if len(frame) - topic_at < _AFTER_HEAD_BYTES_MIN:
        return None
    topic_bytes = TOPIC_ID_BYTES if by_id else frame[topic_at]
    size_at = topic_at + topic_bytes + _PARTITION_HEAD.size
    head = _read_head(frame[position:size_at].tobytes(), by_id) if size_at < len(frame) else None
    if head is None:
        return None
    size, start = frame[size_at], size_at + 1
    if size > _ONE_BYTE_MAX:
        size, start = read_unsigned_varint(frame, size_at, len(frame))
    records_end = start + size - 1
    if size == 0 or frame[records_end:].tobytes() != _NO_TAGS:
        return None
    acks, timeout_ms, topic, partition = head
    data = tuple.__new__(PartitionData, (partition, frame[start:records_end]))
    topics = (tuple.__new__(TopicData, (topic, (data,))),)
    return tuple.__new__(ProduceRequest, (None, acks, timeout_ms, topics))


@lru_cache(maxsize=_HEADS_MAX)
def _read_head(packed: bytes, by_id: bool) -> tuple[int, int, TopicKey, int] | None:
    """Acks, timeout, topic and partition."""
    transactional_id, acks, timeout_ms, topics = _HEAD.unpack_from(packed, 0)
    topic_end = len(packed) - _PARTITION_HEAD.size
    partitions, partition = _PARTITION_HEAD.unpack_from(packed, topic_end)
    if transactional_id or topics != _ONE_ENTRY or partitions != _ONE_ENTRY:
        return None
    topic = packed[_HEAD.size : topic_end]
    if by_id:
        return acks, timeout_ms, topic, partition
    if not 1 < topic[0] <= _ONE_BYTE_MAX:
        return None
    try:
        return acks, timeout_ms, topic[1:].decode(), partition
    except UnicodeDecodeError:
        return None


def write_request(request: ProduceRequest, version: int) -> list[Buffer]:
    """The body around batches that are not copied. Flexible versions only."""
    assert version >= FLEXIBLE_FROM
    parts: list[Buffer] = [
        FLEXIBLE.string(request.transactional_id),
        _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms),
        FLEXIBLE.count(len(request.topics)),
    ]
    for topic, partitions in request.topics:
        parts += (FLEXIBLE.topic(topic), FLEXIBLE.count(len(partitions)))
        for partition, records in partitions:
            assert records is not None, "a producer sends records"
            parts += (_INT_32.pack(partition) + FLEXIBLE.size(len(records)), records, b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    return parts


# Responses.

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
_NO_ERRORS_NOR_TAGS: Final = b"\x01\x00\x00"  # flexible: no record errors, null message, no tags
_ONLY_ROW_END: Final = Struct(
    ">"
    "3s"  # no errors nor tags
    "x"  # no tags of the topic
    "i"  # throttle_ms
    "x"  # no tags of the response
)


def write_response(response: ProduceResponse, version: int, throttle_ms: int) -> bytes:
    """The body in this version."""
    topics, nodes = response
    encoding = encoding_of(PRODUCE, version)
    if encoding.is_flexible and len(topics) == 1:
        ((topic, rows),) = topics
        if len(rows) == 1 and not rows[0][1]:  # one batch was appended, which most responses say
            return (
                _only_row_start(topic)
                + _PARTITION_5.pack(*rows[0][:5])
                + _ONLY_ROW_END.pack(_NO_ERRORS_NOR_TAGS, throttle_ms)
            )
    parts = [encoding.count(len(topics))]
    for topic, rows in topics:
        parts += (encoding.topic(topic), encoding.count(len(rows)))
        parts += [_write_row(version, encoding, row) for row in rows]
        parts.append(encoding.no_tags)
    parts.append(_INT_32.pack(throttle_ms))
    parts.append(
        tagged(nodes_field(0, nodes)) if nodes and version >= _LEADERS_FROM else encoding.no_tags
    )
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _only_row_start(topic: TopicKey) -> bytes:
    return FLEXIBLE.count(1) + FLEXIBLE.topic(topic) + FLEXIBLE.count(1)


def _write_row(version: int, encoding: Encoding, row: PartitionResult) -> bytes:
    if version < _LOG_START_FROM:
        return _PARTITION_3.pack(*row[:4])
    fixed = _PARTITION_5.pack(*row[:5])
    if version < _RECORD_ERRORS_FROM:
        return fixed
    if encoding.is_flexible and not row.error_code:
        return fixed + _NO_ERRORS_NOR_TAGS
    parts = [fixed, encoding.count(len(row.record_errors))]
    for index, message in row.record_errors:
        parts += (_INT_32.pack(index), encoding.string(message), encoding.no_tags)
    parts.append(encoding.string(row.error_message))
    if version < _LEADERS_FROM or row.current_leader is None:
        parts.append(encoding.no_tags)
    else:
        parts.append(tagged(leader_field(0, row.current_leader)))
    return b"".join(parts)


def read_response(frame: memoryview, position: int, version: int) -> ProduceResponse:
    """The response whose body starts at `position`, as a client reads it."""
    entity, _ = response_reader(PRODUCE, version)(frame, position)
    topics = [
        TopicResult(_topic_key(topic), [_read_row(row) for row in topic.partition_responses])
        for topic in entity.responses
    ]
    nodes = [
        Node(node.node_id, node.host, node.port, node.rack)
        for node in getattr(entity, "node_endpoints", ())
    ]
    return ProduceResponse(topics, nodes)


def _topic_key(topic: Any) -> TopicKey:
    if hasattr(topic, "name"):
        return str(topic.name)
    return NO_TOPIC_ID if topic.topic_id is None else bytes(topic.topic_id.bytes)


def _read_row(row: Any) -> PartitionResult:
    errors = getattr(row, "record_errors", ())
    appended_at = row.log_append_time
    return PartitionResult(
        row.index,
        int(row.error_code),
        row.base_offset,
        -1 if appended_at is None else round(appended_at.timestamp() * 1000),
        getattr(row, "log_start_offset", -1),
        [(error.batch_index, error.batch_index_error_message) for error in errors],
        getattr(row, "error_message", None),
        _read_leader(getattr(row, "current_leader", None)),
    )


def _read_leader(leader: Any) -> LeaderAndEpoch | None:
    if leader is None or leader.leader_id < 0:
        return None
    return LeaderAndEpoch(leader.leader_id, leader.leader_epoch)
