"""Batches of keys and values only, built and read in one loop: for internal topics.

Builds the same bytes as `records.build_batch`. When reading, offsets, timestamps and headers are
skipped; the checksum of the batch is checked first, and a record with invalid lengths is Malformed.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeAlias

from crc32c import crc32c

from penstock.errors import Malformed
from penstock.model import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from penstock.protocol import batch as v2
from penstock.protocol.compression import decompress
from penstock.protocol.records import OPENED_BYTES_MAX
from penstock.protocol.varint import Buffer, varint

Pair: TypeAlias = tuple[bytes | None, bytes | None]

_NULL = varint(-1)
_size = lru_cache(maxsize=1024)(varint)  # records, keys and values have few different sizes
_NOT_SIMPLE = v2.CODEC_MASK | v2.TRANSACTIONAL | v2.CONTROL
_SIMPLE_HEADER = Struct(
    ">"
    "q"  # base_offset
    "i"  # length
    "4x"  # leader_epoch
    "b"  # magic
    "I"  # crc
    "h"  # attributes
    "i"  # last_offset_delta
    "30x"  # times and producer
    "i"  # record_count
)
_UNCHECKED = Struct(
    ">"
    "q"  # base_offset
    "i"  # length
    "i"  # leader_epoch
    "b"  # magic
    "I"  # crc
)
_CHECKED = Struct(
    ">"
    "h"  # attributes
    "i"  # last_offset_delta
    "q"  # base_timestamp
    "q"  # max_timestamp
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # record_count
)
_TIMES = Struct(
    ">"
    "6x"  # attributes, last_offset_delta
    "q"  # base_timestamp
    "q"  # max_timestamp
)
_NO_PRODUCER_ONE_RECORD = Struct(
    ">"
    "q"  # producer_id
    "h"  # producer_epoch
    "i"  # base_sequence
    "i"  # record_count
).pack(NO_PRODUCER, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1)
_CACHED_KEY_BYTES_MAX = 512  # so that clients cannot fill the memory
assert _SIMPLE_HEADER.size == v2.HEADER_BYTES
assert _TIMES.size + len(_NO_PRODUCER_ONE_RECORD) == _CHECKED.size
assert _UNCHECKED.size == v2.CRC_FROM
assert _UNCHECKED.size + _CHECKED.size == v2.HEADER_BYTES


def build_pairs(
    pairs: Sequence[Pair],
    timestamp: Millis,
    *,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytearray:
    """A sealed, uncompressed batch; all records have the same timestamp."""
    count = len(pairs)
    assert count, "a batch has at least one record"
    attributes = v2.TRANSACTIONAL if transactional else 0
    producer = (producer_id, producer_epoch, NO_SEQUENCE)
    parts = [_CHECKED.pack(attributes, count - 1, timestamp, timestamp, *producer, count)]
    for delta, (key, value) in enumerate(pairs):
        packed_delta = _size(delta)
        packed_key = _NULL if key is None else _size(len(key)) + key
        packed_value = _NULL if value is None else _size(len(value)) + value
        size = 3 + len(packed_delta) + len(packed_key) + len(packed_value)
        # Before the fields no attributes and no timestamp delta; after them no headers.
        parts += (_size(size), b"\0\0", packed_delta, packed_key, packed_value, b"\0")
    checked = b"".join(parts)
    length = v2.CRC_FROM - v2.LOG_OVERHEAD_BYTES + len(checked)
    return bytearray(_UNCHECKED.pack(0, length, NO_EPOCH, v2.MAGIC, crc32c(checked)) + checked)


def build_one(
    key: bytes, value: bytes | None, timestamp: Millis
) -> tuple[bytearray, v2.BatchHeader]:
    """As `build_pairs`, for a single record without a producer; with the header of the batch.

    Coordinators write little else, mostly with the same few keys: the bytes before the value are
    cached.
    """
    value_bytes = -1 if value is None else len(value)
    build_start = _cached_start if len(key) <= _CACHED_KEY_BYTES_MAX else _start_of_one
    start, length = build_start(key, value_bytes)
    checked = b"".join((_TIMES.pack(timestamp, timestamp), start, value or b"", b"\0"))
    crc = crc32c(checked)
    front = (0, length, NO_EPOCH, v2.MAGIC, crc)
    rest = (0, 0, timestamp, timestamp, NO_PRODUCER, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1)
    batch = bytearray(_UNCHECKED.pack(*front) + checked)
    return batch, tuple.__new__(v2.BatchHeader, front + rest)


def _start_of_one(key: bytes, value_bytes: int) -> tuple[bytes, int]:
    """The bytes between the batch's timestamps and the value of its one record; its length."""
    packed_key = varint(len(key)) + key
    value_size = varint(value_bytes)
    record_bytes = 4 + len(packed_key) + len(value_size) + max(value_bytes, 0)
    parts = (_NO_PRODUCER_ONE_RECORD, varint(record_bytes), b"\0\0\0", packed_key, value_size)
    start = b"".join(parts)
    checked_bytes = _TIMES.size + len(start) + max(value_bytes, 0) + 1
    return start, v2.CRC_FROM - v2.LOG_OVERHEAD_BYTES + checked_bytes


_cached_start = lru_cache(maxsize=10_000)(_start_of_one)


def read_pairs(
    buffer: Buffer,
    position: int = 0,
    *,
    header: v2.BatchHeader | None = None,
    max_bytes: int = OPENED_BYTES_MAX,
) -> list[Pair]:
    """Key and value of every record of the batch at `position`, opened to at most `max_bytes`."""
    header = v2.check_stored_batch(buffer, position, header=header)
    end = position + v2.LOG_OVERHEAD_BYTES + header.length
    packed = buffer[position + v2.HEADER_BYTES : end]
    if header.attributes & v2.CODEC_MASK:
        packed = decompress(header.codec, packed, max_bytes=max_bytes)
    opened = bytes(packed)
    pairs: list[Pair] = []
    _read_pairs(opened, 0, len(opened), header.record_count, pairs)
    return pairs


def read_simple_pairs(
    raw: bytes, position: int, from_offset: Offset
) -> tuple[list[Pair], int, Offset]:
    """The records of consecutive simple batches from `position` on; their end, and the next offset.

    A simple batch is neither compressed nor transactional nor control. Stops at a batch that is not
    simple, is not whole, or starts before `from_offset`: the caller reads that one.
    """
    pairs: list[Pair] = []
    view, size, unpack = memoryview(raw), len(raw), _SIMPLE_HEADER.unpack_from
    while size - position >= v2.HEADER_BYTES:
        base, length, magic, crc, attributes, last_delta, count = unpack(raw, position)
        end = position + v2.LOG_OVERHEAD_BYTES + length
        is_whole = magic == v2.MAGIC and end - position >= v2.HEADER_BYTES and end <= size
        if attributes & _NOT_SIMPLE or base < from_offset or not is_whole:
            break
        if crc32c(view[position + v2.CRC_FROM : end]) != crc:
            raise v2.CorruptBatch("the batch's checksum does not match its bytes", position)
        if not 0 <= count <= last_delta + 1:
            raise Malformed(f"{count} records up to offset delta {last_delta}", position)
        _read_pairs(raw, position + v2.HEADER_BYTES, end, count, pairs)
        position, from_offset = end, Offset(base + last_delta + 1)
    return pairs, position, from_offset


def _read_pairs(  # noqa: C901 - one loop without calls
    opened: bytes, position: int, batch_end: int, count: int, pairs: list[Pair]
) -> None:
    """Append key and value of each record. Short lengths, as most are, are read without a call."""
    try:
        for _ in range(count):
            size, high = opened[position], opened[position + 1]
            position += 1
            if size >= 0x80 and high < 0x80:  # the length of most records has two bytes
                size = size & 0x7F | high << 7
                position += 1
            elif size >= 0x80:
                size, position = _longer(opened, position, size)
            end = position + (size >> 1)
            position += 1  # attributes
            while opened[position] >= 0x80:  # timestamp
                position += 1
            position += 1
            while opened[position] >= 0x80:  # offset
                position += 1
            size = opened[position + 1]
            position += 2
            if size >= 0x80:
                size, position = _longer(opened, position, size)
            key = None
            if not size & 1:
                key = opened[position : position + (size >> 1)]
                position += size >> 1
            size = opened[position]
            position += 1
            if size >= 0x80:
                size, position = _longer(opened, position, size)
            value = None
            if not size & 1:
                value = opened[position : position + (size >> 1)]
                position += size >> 1
            if position >= end:  # the number of headers follows
                raise Malformed("a record is shorter than its fields", position)
            position = end
            pairs.append((key, value))
    except IndexError:
        raise Malformed("a record runs past the end of its batch", position) from None
    if position != batch_end:
        raise Malformed(f"the records end at {position} of {batch_end} bytes", position)


def _longer(opened: bytes, position: int, low: int) -> tuple[int, int]:
    """The rest of a varint whose first byte was not its last, zigzag encoded."""
    value, shift = low & 0x7F, 7
    while True:
        group = opened[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("a length in a record is too long", position)
