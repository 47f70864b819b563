"""The record batch, format v2: a 61-byte header and bytes that nobody here opens.

Reads, checks and stamps headers in place. Never decompresses, never copies a batch. Every function
takes the buffer a batch lies in and the position of its first byte; what cannot be a batch raises
Malformed with that position.

`check_batch` is for what a client sends: one record per offset. `check_stored_batch` is for what
lies in a log, where compaction may have taken records out and left the offsets.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.errors import Malformed
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.primitives import Buffer, WritableBuffer

_HEADER: Final = Struct(
    ">"
    "q"  # base_offset        ours to write: outside the CRC
    "i"  # length             of everything after this field
    "i"  # leader_epoch       ours to write: outside the CRC
    "b"  # magic              always 2
    "I"  # crc                CRC-32C from CRC_FROM to the end
    "h"  # attributes         codec, timestamp type, transactional, control, delete horizon
    "i"  # last_offset_delta  of the last record there was, also when compaction removed it
    "q"  # base_timestamp     the records' timestamps are deltas to it
    "q"  # max_timestamp      the append time when attributes say so
    "q"  # producer_id        -1: none
    "h"  # producer_epoch
    "i"  # base_sequence      of the first record; the rest follow without gaps
    "i"  # record_count
)
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base_offset and length: what `length` does not count
CRC_FROM: Final = 21
MAGIC: Final = 2
assert _HEADER.size == HEADER_BYTES
unpack_header: Final = (
    _HEADER.unpack_from
)  # the bare fields, for loops that check them on their own

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40  # base_timestamp is when tombstones and markers here may go

_LEADER_FIELDS: Final = Struct(
    ">"
    "q"  # base_offset
    "i"  # length  as it is: it lies between the two
    "i"  # leader_epoch
)
stamp_first: Final = _LEADER_FIELDS.pack_into  # as `stamp`, of a batch whose length is known

_CODEC_LAST: Final = 4
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES

_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_LEADER_EPOCH_AT: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_SEQUENCE_MASK: Final = (1 << 31) - 1


class CorruptBatch(Malformed):
    """The checksum does not match: the bytes were a batch once."""


class BatchHeader(NamedTuple):
    """The 61 bytes as numbers, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def end_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def last_sequence(self) -> int:
        """-1 without a sequence; otherwise of the last record, wrapping to 0 after 2**31 - 1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & _SEQUENCE_MASK


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header, if it can be one: all there, magic 2, a length that holds at least a header."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise Malformed("a batch header is cut short", position)
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise Malformed(f"batch magic is {header.magic}, not {MAGIC}", position)
    if header.length < _LENGTH_MIN:
        raise Malformed(f"batch length {header.length} is below a header's", position)
    return header


def write_header(buffer: WritableBuffer, position: int, header: BatchHeader) -> None:
    """All 61 bytes as they are given; `seal` makes the checksum true."""
    _HEADER.pack_into(buffer, position, *header)


def check_batch(
    buffer: Buffer, position: int = 0, *, header: BatchHeader | None = None
) -> BatchHeader:
    """A whole batch with a true checksum and one record for each of its offsets."""
    header = check_stored_batch(buffer, position, header=header)
    if header.record_count != header.last_offset_delta + 1:
        raise Malformed(
            f"{header.record_count} records for {header.last_offset_delta + 1} offsets", position
        )
    return header


def read_plain(buffer: Buffer) -> BatchHeader | None:
    """The header, if all of the buffer is one batch as most are: sound, and nothing rare about it.

    None says nothing about the batch yet: `check_produced` does.
    """
    size_bytes = len(buffer)
    if size_bytes < HEADER_BYTES:
        return None
    fields = _HEADER.unpack_from(buffer, 0)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = (
        fields
    )
    if (
        base_offset == 0
        and length + LOG_OVERHEAD_BYTES == size_bytes
        and magic == MAGIC
        and count == delta + 1 > 0
        and 0 <= attributes <= _CODEC_LAST  # so neither transactional, nor anything rarer
        and (producer_id < 0 or sequence >= 0)
        and crc32c(memoryview(buffer)[CRC_FROM:]) == crc
    ):
        return tuple.__new__(BatchHeader, fields)
    return None


def check_produced(buffer: Buffer, position: int, end: int) -> BatchHeader:
    """The records of one partition in a produce request.

    Exactly one batch that a client may write.
    """
    header = read_header(buffer, position)
    if position + header.size_bytes != end:
        raise Malformed(
            f"one batch of {end - position} bytes was expected, it says {header.size_bytes}",
            position,
        )
    check_batch(buffer, position, header=header)
    if header.base_offset != 0:
        raise Malformed(f"a produced batch starts at offset {header.base_offset}, not 0", position)
    if header.attributes & (CONTROL | LOG_APPEND_TIME | DELETE_HORIZON):
        raise Malformed(f"attributes {header.attributes:#x} are not for clients to set", position)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise Malformed(f"producer {header.producer_id} gave no sequence", position)
    return header


def check_stored_batch(
    buffer: Buffer, position: int = 0, *, header: BatchHeader | None = None
) -> BatchHeader:
    """As `check_batch`, but records may be missing where compaction took them."""
    if header is None:
        header = read_header(buffer, position)
    end = position + header.length + LOG_OVERHEAD_BYTES
    if end > len(buffer):
        raise Malformed(f"a batch of {header.size_bytes} bytes is cut short", position)
    if crc32c(memoryview(buffer)[position + CRC_FROM : end]) != header.crc:
        raise CorruptBatch("the batch's checksum does not match its bytes", position)
    _check_fields(header, position)
    return header


def _check_fields(header: BatchHeader, position: int) -> None:
    if header.last_offset_delta < 0 or not (
        0 <= header.record_count <= header.last_offset_delta + 1
    ):
        raise Malformed(
            f"{header.record_count} records up to offset delta {header.last_offset_delta}",
            position,
        )
    attributes = header.attributes
    if attributes & CODEC_MASK > _CODEC_LAST:
        raise Malformed(f"codec {attributes & CODEC_MASK} is unknown", position)
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        raise Malformed("a transactional batch has no producer id", position)
    if attributes & CONTROL and attributes & CODEC_MASK:
        raise Malformed("a control batch is compressed", position)


def iterate_headers(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch's position and header.

    Stops at the first that is incomplete; checks no checksum.
    """
    if end is None:
        end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def stamp(
    buffer: WritableBuffer, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """The leader's two fields, in place; the checksum does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(buffer: WritableBuffer, position: int, now: Millis) -> None:
    """LogAppendTime in place.

    Every record of the batch now has this time; the checksum is rewritten.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_AT, now)
    seal(buffer, position)


def seal(buffer: WritableBuffer, position: int = 0) -> None:
    """Write the checksum of the batch as it stands."""
    end = position + read_header(buffer, position).size_bytes
    checksum = crc32c(memoryview(buffer)[position + CRC_FROM : end])
    _CRC.pack_into(buffer, position + _CRC_AT, checksum)
