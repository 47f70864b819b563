"""The produce request, read by hand so that its batches stay where they arrived.

The generated reader copies each batch into bytes that nobody may change; here a batch is a view of
the frame, in which the leader stamps offsets before it writes. Checks bounds, opens no batch.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.compact import (
    read_count,
    read_nullable_string,
    read_string,
    read_topic_id,
)
from penstock.protocol.headers import skip_tagged_fields
from penstock.protocol.primitives import read_unsigned_varint

_ACKS_AND_TIMEOUT: Final = Struct(
    ">"
    "h"  # acks        0 none, 1 the leader, -1 every in-sync replica
    "i"  # timeout_ms  how long the client waits for them
)
_INT_32: Final = Struct(">i")
_INT_16: Final = Struct(">h")
_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "i"  # size of its records; -1: none. Plain versions only
)
_TOPIC_ID_BYTES: Final = 16
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 13
_ONE_START: Final = Struct(
    ">"
    "B"  # transactional_id  0: null
    "h"  # acks
    "i"  # timeout_ms
    "B"  # topics            one more than there are
)
_ONE_PARTITION: Final = Struct(
    ">"
    "B"  # partitions        one more than there are
    "i"  # partition
)
_ONE_END: Final = b"\0\0\0"  # no tagged fields: of the partition, the topic, the request
_ONE: Final = 2
_ONE_BYTES_MIN: Final = 32  # after its start: a batch alone takes more
_TWO_BYTES_FROM: Final = 0x80


class PartitionRecords(NamedTuple):
    """What one partition is to be given. None: the client sent no records."""

    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """One topic of a produce request: by name, or by id from version 13 on."""

    name: str | None
    topic_id: bytes | None
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    """A produce request of any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class OneBatch(NamedTuple):
    """A produce request of one batch for one partition, outside a transaction."""

    acks: int
    timeout_ms: int
    topic: str | bytes  # its name, or its id from version 13 on
    partition: int
    records: memoryview

    def as_any(self) -> ProduceRequest:
        """The same in the shape that every request has."""
        name, topic_id = (self.topic, None) if isinstance(self.topic, str) else (None, self.topic)
        topic = TopicRecords(name, topic_id, [PartitionRecords(self.partition, self.records)])
        return ProduceRequest(None, self.acks, self.timeout_ms, [topic])


def read_produce_request(
    frame: memoryview, position: int, version: int
) -> tuple[ProduceRequest, int]:
    """The request whose body starts at `position` and ends with the frame."""
    try:
        if version >= _FLEXIBLE_FROM:
            request, reached = _read_flexible(frame, position, version >= _TOPIC_IDS_FROM)
        else:
            request, reached = _read_plain(frame, position)
    except StructError as error:  # a number of fixed size does not fit: cheaper than asking first
        raise Malformed("a produce request is cut short", len(frame)) from error
    if reached != len(frame):
        raise Malformed(f"{len(frame) - reached} bytes are left after the request", reached)
    return request, reached


def read_one_batch(frame: memoryview, position: int, version: int) -> OneBatch | None:
    """What most requests are, if this one is and says no more; None: `read_produce_request` tells.

    librdkafka sends no others outside transactions. Flexible versions only. What comes before the
    records is the same again and again, so it is read once and kept.
    """
    topic_at = position + _ONE_START.size
    by_id = version >= _TOPIC_IDS_FROM
    if version < _FLEXIBLE_FROM or len(frame) - topic_at < _ONE_BYTES_MIN:
        return None
    topic_bytes = _TOPIC_ID_BYTES if by_id else frame[topic_at]
    size_at = topic_at + topic_bytes + _ONE_PARTITION.size
    head = _read_head(frame[position:size_at].tobytes(), by_id) if size_at < len(frame) else None
    if head is None:
        return None
    size, start = frame[size_at], size_at + 1
    if size >= _TWO_BYTES_FROM:
        size, start = read_unsigned_varint(frame, size_at, len(frame))
    records_end = start + size - 1
    if size == 0 or frame[records_end:].tobytes() != _ONE_END:
        return None
    return tuple.__new__(OneBatch, (*head, frame[start:records_end]))


@lru_cache(maxsize=10_000)  # of so many partitions; a head is short by the size of its parts
def _read_head(packed: bytes, by_id: bool) -> tuple[int, int, str | bytes, int] | None:
    """Acks, time-out, topic and partition of a request for one partition outside a transaction."""
    transactional_id, acks, timeout_ms, topics = _ONE_START.unpack_from(packed, 0)
    topic_end = len(packed) - _ONE_PARTITION.size
    partitions, partition = _ONE_PARTITION.unpack_from(packed, topic_end)
    if transactional_id or topics != _ONE or partitions != _ONE:
        return None
    topic = packed[_ONE_START.size : topic_end]
    if by_id:
        return acks, timeout_ms, topic, partition
    if not 1 < topic[0] < _TWO_BYTES_FROM:
        return None
    try:
        return acks, timeout_ms, topic[1:].decode(), partition
    except UnicodeDecodeError:
        return None


def _read_flexible(frame: memoryview, position: int, with_ids: bool) -> tuple[ProduceRequest, int]:
    transactional_id, position = read_nullable_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    count, position = read_count(frame, position + _ACKS_AND_TIMEOUT.size)
    topics = []
    for _ in range(count):
        name = topic_id = None
        if with_ids:
            topic_id, position = read_topic_id(frame, position)
        else:
            name, position = read_string(frame, position)
        partitions, position = _read_flexible_partitions(frame, position)
        topics.append(TopicRecords(name, topic_id, partitions))
        position = skip_tagged_fields(frame, position, len(frame))
    position = skip_tagged_fields(frame, position, len(frame))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _read_flexible_partitions(
    frame: memoryview, position: int
) -> tuple[list[PartitionRecords], int]:
    end = len(frame)
    count, position = read_count(frame, position)
    partitions = []
    for _ in range(count):
        (partition,) = _INT_32.unpack_from(frame, position)
        size, position = read_unsigned_varint(frame, position + _INT_32.size, end)
        records = None
        if size:
            records = _take(frame, position, size - 1)
            position += size - 1
        partitions.append(PartitionRecords(partition, records))
        position = skip_tagged_fields(frame, position, end)
    return partitions, position


def _read_plain(frame: memoryview, position: int) -> tuple[ProduceRequest, int]:
    transactional_id, position = _read_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    count, position = _read_count(frame, position + _ACKS_AND_TIMEOUT.size)
    topics = []
    for _ in range(count):
        name, position = _read_string(frame, position)
        _check_named(name, position)
        partitions, position = _read_plain_partitions(frame, position)
        topics.append(TopicRecords(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _read_plain_partitions(frame: memoryview, position: int) -> tuple[list[PartitionRecords], int]:
    count, position = _read_count(frame, position)
    partitions = []
    for _ in range(count):
        partition, size = _PARTITION.unpack_from(frame, position)
        position += _PARTITION.size
        records = None
        if size >= 0:
            records = _take(frame, position, size)
            position += size
        elif size != -1:
            raise Malformed(f"records of {size} bytes", position)
        partitions.append(PartitionRecords(partition, records))
    return partitions, position


def _take(frame: memoryview, position: int, size: int) -> memoryview:
    if size > len(frame) - position:
        raise Malformed(f"a field of {size} bytes runs past the frame", position)
    return frame[position : position + size]


def _read_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT_16.unpack_from(frame, position)
    position += _INT_16.size
    if size == -1:
        return None, position
    if size < 0:
        raise Malformed(f"a string of {size} bytes", position)
    return _text(_take(frame, position, size), position), position + size


def _text(encoded: memoryview, position: int) -> str:
    try:
        return str(encoded, "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("a name is not UTF-8", position) from error


def _check_named(name: str | None, position: int) -> None:
    if name is None:
        raise Malformed("a topic has no name", position)


def _read_count(frame: memoryview, position: int) -> tuple[int, int]:
    (count,) = _INT_32.unpack_from(frame, position)
    position += _INT_32.size
    return _check_count(count, len(frame) - position, position), position


def _check_count(count: int, left_bytes: int, position: int) -> int:
    """Nothing that is counted takes less than a byte."""
    if not 0 <= count <= left_bytes:
        raise Malformed(f"{count} entries in {left_bytes} bytes", position)
    return count
