"""The record batch, format v2: a 61-byte header, and records that are not opened here.

Reads, checks and changes headers in place. Never decompresses and never copies a batch. Bytes that
cannot be a batch raise Malformed with their position in the buffer.

`check_client_batch` is for batches of clients: one record per offset. `check_stored_batch` is for
batches of a log, where compaction may have removed records and kept the offsets.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.errors import Malformed
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.varint import Buffer, WritableBuffer

_HEADER: Final = Struct(
    ">"
    "q"  # base_offset        written by the leader: outside the CRC
    "i"  # length             of everything after this field
    "i"  # leader_epoch       written by the leader: outside the CRC
    "b"  # magic              always 2
    "I"  # crc                CRC-32C from CRC_FROM to the end
    "h"  # attributes         codec, timestamp type, transactional, control, delete horizon
    "i"  # last_offset_delta  of the last record, even if compaction removed it
    "q"  # base_timestamp     the records' timestamps are deltas to it
    "q"  # max_timestamp      the append time under LogAppendTime
    "q"  # producer_id        -1: none
    "h"  # producer_epoch
    "i"  # base_sequence      of the first record; the others follow without gaps
    "i"  # record_count
)
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base_offset and length, which `length` does not count
CRC_FROM: Final = 21
MAGIC: Final = 2
assert _HEADER.size == HEADER_BYTES

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = (
    0x40  # base_timestamp is when tombstones and markers of this batch may be removed
)
_CLIENT_ATTRIBUTES: Final = CODEC_MASK | TRANSACTIONAL

_LEADER_FIELDS: Final = Struct(
    ">"
    "q"  # base_offset
    "i"  # length        unchanged: it is between the two
    "i"  # leader_epoch
)
# Takes buffer, position and the three fields; the checksum does not cover them.
write_leader_fields: Final = _LEADER_FIELDS.pack_into

_CODEC_LAST: Final = 4
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES

_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
SEQUENCE_MASK: Final = (1 << 31) - 1  # sequences count from 0 again after it


class CorruptBatch(Malformed):
    """The checksum does not match the bytes."""


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
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header; Malformed if it is truncated, has another magic, or its length is too small."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise Malformed("a batch header is truncated", position)
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise Malformed(f"batch magic is {header.magic}, not {MAGIC}", position)
    if header.length < _LENGTH_MIN:
        raise Malformed(f"batch length {header.length} is less than a header", position)
    return header


def write_header(buffer: WritableBuffer, position: int, header: BatchHeader) -> None:
    """All 61 bytes as given; `seal` writes the checksum."""
    _HEADER.pack_into(buffer, position, *header)


def stamp(
    batch: WritableBuffer,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    sequence: SequenceNumber,
    *,
    transactional: bool = False,
) -> SequenceNumber:
    """Make a finished batch one of this producer, and seal it; the sequence number after it."""
    header = read_header(batch)
    stamped = header._replace(
        attributes=header.attributes | (TRANSACTIONAL if transactional else 0),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    write_header(batch, 0, stamped)
    seal(batch)
    return SequenceNumber((sequence + header.record_count) & SEQUENCE_MASK)


def check_client_batch(records: Buffer) -> BatchHeader:
    """The header of a client's records for one partition: exactly one batch that it may write.

    Runs for every produced batch, so the fields are checked before they become a BatchHeader.
    """
    size_bytes = len(records)
    if size_bytes < HEADER_BYTES:
        raise Malformed("a batch header is truncated", 0)
    fields = _HEADER.unpack_from(records, 0)
    base, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    if magic != MAGIC:
        raise Malformed(f"batch magic is {magic}, not {MAGIC}", 0)
    if length + LOG_OVERHEAD_BYTES != size_bytes:
        stated_bytes = length + LOG_OVERHEAD_BYTES
        raise Malformed(
            f"expected one batch of {size_bytes} bytes, its length is {stated_bytes}", 0
        )
    if crc32c(memoryview(records)[CRC_FROM:]) != crc:
        raise CorruptBatch("the batch's checksum does not match its bytes", 0)
    if base != 0:
        raise Malformed(f"a produced batch starts at offset {base}, not 0", 0)
    if count != delta + 1 or count <= 0:
        raise Malformed(f"{count} records for {delta + 1} offsets", 0)
    _check_client_producer(attributes, producer_id, sequence)
    return tuple.__new__(BatchHeader, fields)


def _check_client_producer(attributes: int, producer_id: int, sequence: int) -> None:
    if attributes & ~_CLIENT_ATTRIBUTES:
        raise Malformed(f"attributes {attributes:#x} cannot be set by clients", 0)
    if attributes & CODEC_MASK > _CODEC_LAST:
        raise Malformed(f"codec {attributes & CODEC_MASK} is unknown", 0)
    if producer_id < 0:
        if attributes & TRANSACTIONAL:
            raise Malformed("a transactional batch has no producer id", 0)
    elif sequence < 0:
        raise Malformed(f"producer {producer_id} sent no sequence number", 0)


def check_stored_batch(
    buffer: Buffer, position: int = 0, *, header: BatchHeader | None = None
) -> BatchHeader:
    """A whole batch with a matching checksum; records may be missing after compaction."""
    if header is None:
        header = read_header(buffer, position)
    end = position + header.length + LOG_OVERHEAD_BYTES
    if end > len(buffer):
        raise Malformed(f"a batch of {header.size_bytes} bytes is truncated", position)
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
    """Position and header of each whole batch. Stops at an incomplete one; checks no checksum."""
    if end is None:
        end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def set_append_time(batch: WritableBuffer, header: BatchHeader, now: Millis) -> BatchHeader:
    """Set LogAppendTime in place: the time of every record of the batch. Returns the new header."""
    attributes = header.attributes | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_AT, now)
    checksum = crc32c(memoryview(batch)[CRC_FROM:])
    _CRC.pack_into(batch, _CRC_AT, checksum)
    return header._replace(attributes=attributes, max_timestamp=now, crc=checksum)


def seal(buffer: WritableBuffer, position: int = 0) -> None:
    """Write the checksum of the batch."""
    end = position + read_header(buffer, position).size_bytes
    checksum = crc32c(memoryview(buffer)[position + CRC_FROM : end])
    _CRC.pack_into(buffer, position + _CRC_AT, checksum)
