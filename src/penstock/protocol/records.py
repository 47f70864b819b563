"""Single records: for control records, small internal topics and tests.

Never on the produce or fetch path, and never for many records: `columns` opens batches as columns.
Reading checks everything (lengths, counts, text, bytes after the last record) and raises Malformed;
offsets are absolute and rising.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import Malformed
from penstock.model import (
    NO_EPOCH,
    NO_OFFSET,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol import batch as v2
from penstock.protocol.compression import Codec, compress, decompress
from penstock.protocol.varint import Buffer, read_varint, read_varlong, varint, varlong

OPENED_BYTES_MAX: Final = 64 << 20  # of one batch's records; larger batches are not for this module
_COPIED_BYTES_MAX: Final = 1 << 20

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. When a batch is built, a missing offset is the next one, and a missing timestamp
    is that of the batch.
    """

    offset: int = NO_OFFSET
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


KeyValue: TypeAlias = tuple[bytes | None, bytes | None]


def build_batch(
    records: Sequence[Record | KeyValue],
    *,
    base_offset: Offset = Offset(0),
    timestamp: Millis = NO_TIMESTAMP,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: SequenceNumber = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time: bool = False,
    delete_horizon: Millis | None = None,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    last_offset: Offset | None = None,
) -> bytearray:
    """A sealed batch. Records with offsets may leave gaps, and `last_offset` may be beyond the last
    record.
    """
    filled = _fill_in(records, base_offset, timestamp)
    if last_offset is None:
        assert filled, "an empty batch needs a last offset"
        last_offset = Offset(filled[-1].offset)
    times = [record.timestamp for record in filled] or [timestamp]
    base_timestamp = times[0] if delete_horizon is None else delete_horizon
    raw = b"".join(write_record(record, base_offset, base_timestamp) for record in filled)
    packed = compress(codec, raw, level)
    attributes = (
        codec
        | (v2.LOG_APPEND_TIME if log_append_time else 0)
        | (v2.TRANSACTIONAL if transactional else 0)
        | (v2.CONTROL if control else 0)
        | (v2.DELETE_HORIZON if delete_horizon is not None else 0)
    )
    header = v2.BatchHeader(
        base_offset=base_offset,
        length=v2.HEADER_BYTES - v2.LOG_OVERHEAD_BYTES + len(packed),
        leader_epoch=leader_epoch,
        magic=v2.MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=timestamp if log_append_time else max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(filled),
    )
    built = bytearray(v2.HEADER_BYTES)
    v2.write_header(built, 0, header)
    built += packed
    v2.seal(built)
    return built


def _fill_in(
    records: Iterable[Record | KeyValue], base_offset: Offset, timestamp: Millis
) -> list[Record]:
    filled: list[Record] = []
    following = int(base_offset)
    for item in records:
        record = item if isinstance(item, Record) else Record(key=item[0], value=item[1])
        if record.offset == NO_OFFSET:
            record = record._replace(offset=following)
        if record.timestamp == NO_TIMESTAMP:
            record = record._replace(timestamp=timestamp)
        assert record.offset >= following, f"offset {record.offset} does not rise"
        following = record.offset + 1
        filled.append(record)
    return filled


def write_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """The length of a record, then its fields, as deltas to its batch."""
    parts = [
        b"\0",  # attributes: none are defined
        varlong(record.timestamp - base_timestamp),
        varint(record.offset - base_offset),
        _sized(record.key),
        _sized(record.value),
        varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts += (_sized(name.encode()), _sized(value))
    body = b"".join(parts)
    return varint(len(body)) + body


def _sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def read_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = OPENED_BYTES_MAX
) -> list[Record]:
    """The records of the one batch at `position`, opened to at most `max_bytes`."""
    return list(iterate_records(buffer, position, max_bytes=max_bytes))


def iterate_records(
    buffer: Buffer, position: int = 0, *, max_bytes: int = OPENED_BYTES_MAX
) -> Iterator[Record]:
    """As `read_records`, one record at a time: a batch of the smallest ones has millions."""
    header = v2.check_stored_batch(buffer, position)
    packed = memoryview(buffer)[position + v2.HEADER_BYTES : position + header.size_bytes]
    if header.record_count:
        opened = decompress(header.codec, packed, max_bytes=max_bytes)
        # Single bytes are read faster from `bytes`, but a large copy costs more than it saves.
        small = len(opened) <= _COPIED_BYTES_MAX
        yield from _iterate(bytes(opened) if small else memoryview(opened), header)


def _iterate(opened: Buffer, header: v2.BatchHeader) -> Iterator[Record]:
    position = 0
    last_delta = -1
    for _ in range(header.record_count):
        size, start = read_varint(opened, position, len(opened))
        if not 0 <= size <= len(opened) - start:
            raise Malformed(f"a record of {size} bytes runs past its batch", position)
        record = _read_record(opened, start, start + size, header)
        delta = record.offset - header.base_offset
        if not last_delta < delta <= header.last_offset_delta:
            raise Malformed(f"offset delta {delta} after {last_delta}", position)
        last_delta = delta
        position = start + size
        yield record
    if position != len(opened):
        raise Malformed(f"{len(opened) - position} bytes are left after the last record", position)


def _read_record(opened: Buffer, position: int, end: int, header: v2.BatchHeader) -> Record:
    if position >= end:
        raise Malformed("a record is empty", position)
    timestamp_delta, position = read_varlong(opened, position + 1, end)
    offset_delta, position = read_varint(opened, position, end)
    key, position = _read_sized(opened, position, end)
    value, position = _read_sized(opened, position, end)
    headers, position = _read_headers(opened, position, end)
    if position != end:
        raise Malformed(f"{end - position} bytes are left in a record", position)
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _read_sized(opened: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    size, start = read_varint(opened, position, end)
    if size == -1:
        return None, start
    if not 0 <= size <= end - start:
        raise Malformed(f"a field of {size} bytes runs past its record", position)
    return bytes(opened[start : start + size]), start + size


def _read_headers(opened: Buffer, position: int, end: int) -> tuple[Headers, int]:
    count, position = read_varint(opened, position, end)
    if count == 0:
        return (), position
    if not 0 <= count <= end - position:
        raise Malformed(f"{count} headers in a record", position)
    headers = []
    for _ in range(count):
        name, following = _read_sized(opened, position, end)
        if name is None:
            raise Malformed("a header has no name", position)
        value, following = _read_sized(opened, following, end)
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed(f"a header's name is not UTF-8: {error.reason}", position) from error
        position = following
    return tuple(headers), position
