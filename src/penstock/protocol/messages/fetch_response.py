"""The answer to Fetch, read by hand so that its records stay where they arrived.

The generated reader copies every partition's bytes; here they are views of the frame. Flexible
versions only (12 and later). Checks bounds, opens no batch.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.model import Offset, ProducerId
from penstock.protocol.framing import skip_tagged_fields
from penstock.protocol.varint import Buffer, read_unsigned_varint

LEAST_VERSION: Final = 12
TOPIC_IDS_FROM: Final = 13

_READ_START: Final = Struct(
    ">"
    "i"  # throttle_ms  how long the broker asks to be left alone
    "h"  # error_code   of the whole answer
    "i"  # session_id   0: none
)
_READ_PARTITION: Final = Struct(
    ">"
    "i"  # partition
    "h"  # error_code
    "q"  # high_watermark
    "q"  # last_stable_offset
    "q"  # log_start_offset
)
_ABORTED: Final = Struct(
    ">"
    "q"  # producer_id
    "q"  # first_offset
)
_REPLICA: Final = Struct(">i")  # preferred_read_replica
_TOPIC_ID_BYTES: Final = 16


class Aborted(NamedTuple):
    """An aborted transaction that touches what was fetched."""

    producer_id: ProducerId
    first_offset: Offset


class FetchedPartition(NamedTuple):
    """One partition's part of the answer; `records` may end in a cut batch."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[Aborted, ...]
    records: memoryview


class FetchAnswer(NamedTuple):
    """The whole answer. Topics are not told apart: a link fetches one at a time."""

    throttle_ms: int
    error_code: int
    partitions: tuple[FetchedPartition, ...]


def read_fetch_answer(buffer: Buffer, position: int, version: int) -> tuple[FetchAnswer, int]:
    """The answer whose body starts at `position` and ends with the frame."""
    assert version >= LEAST_VERSION
    frame = memoryview(buffer)
    try:
        answer, reached = _read(frame, position, version)
    except StructError as error:
        raise Malformed("a fetch answer is cut short", len(frame)) from error
    if reached != len(frame):
        raise Malformed(f"{len(frame) - reached} bytes are left after a fetch answer", reached)
    return answer, reached


def _read(frame: memoryview, position: int, version: int) -> tuple[FetchAnswer, int]:
    end = len(frame)
    throttle_ms, code, _ = _READ_START.unpack_from(frame, position)
    topics, position = _read_count(frame, position + _READ_START.size)
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        position = _skip_topic(frame, position, version)
        count, position = _read_count(frame, position)
        for _ in range(count):
            partition, position = _read_partition(frame, position)
            partitions.append(partition)
        position = skip_tagged_fields(frame, position, end)
    position = skip_tagged_fields(frame, position, end)
    return FetchAnswer(throttle_ms, code, tuple(partitions)), position


def _skip_topic(frame: memoryview, position: int, version: int) -> int:
    if version >= TOPIC_IDS_FROM:
        return position + _TOPIC_ID_BYTES
    size, position = read_unsigned_varint(frame, position, len(frame))
    if size == 0:
        raise Malformed("a topic has no name", position)
    return position + size - 1


def _read_partition(frame: memoryview, position: int) -> tuple[FetchedPartition, int]:
    end = len(frame)
    index, code, high_watermark, stable, start = _READ_PARTITION.unpack_from(frame, position)
    aborted, position = _read_aborted(frame, position + _READ_PARTITION.size)
    _REPLICA.unpack_from(frame, position)
    size, position = read_unsigned_varint(frame, position + _REPLICA.size, end)
    following = position + max(size - 1, 0)  # 0: null, and no records all the same
    if following > end:
        raise Malformed(f"records of {size - 1} bytes run past the frame", position)
    records = frame[position:following]
    row = FetchedPartition(index, code, high_watermark, stable, start, aborted, records)
    return row, skip_tagged_fields(frame, following, end)


def _read_aborted(frame: memoryview, position: int) -> tuple[tuple[Aborted, ...], int]:
    claimed, position = read_unsigned_varint(frame, position, len(frame))
    count = max(claimed - 1, 0)
    if count * _ABORTED.size > len(frame) - position:
        raise Malformed(f"{count} aborted transactions", position)
    aborted = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(frame, position)
        aborted.append(Aborted(producer_id, first_offset))
        position = skip_tagged_fields(frame, position + _ABORTED.size, len(frame))
    return tuple(aborted), position


def _read_count(frame: memoryview, position: int) -> tuple[int, int]:
    claimed, position = read_unsigned_varint(frame, position, len(frame))
    if not 1 <= claimed <= len(frame) - position + 1:
        raise Malformed(f"{claimed - 1} entries in {len(frame) - position} bytes", position)
    return claimed - 1, position
