"""Compiled loops over the records of v2 batches. They trust no byte: every varint and length is
checked against the end of its record before it is followed.

A record, all integers zigzag varints but the one attributes byte:

    length          of everything after this field
    attributes      1 byte, unused
    timestamp_delta (64 bits), offset_delta
    key_size key    -1 is null
    value_size value
    header_count, then per header: key_size key (never null), value_size value (-1 is null)

`index_records` checks everything and notes where things are; the gather kernels only copy what it
noted and cannot fail.
"""

from typing import Final

import numpy as np

from penstock.columns.compiled import (
    Bools,
    Bytes,
    ConstBytes,
    Int32s,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    kernel,
)

RECORD_BYTES_MIN: Final = 7  # a byte for each field, no key, no value, no header
HEADER_BYTES_MIN: Final = 2  # an empty key and a null value

# the section table: a row for each batch whose records are to be read
START, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, APPEND_TIMESTAMP = range(7)
SECTION_FIELDS: Final = 7
NOT_APPENDED: Final = -(2**63)  # in APPEND_TIMESTAMP: the records' own timestamps count

# the place table: a row for each record that is kept; a null has size -1
KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, HEADERS_AT, HEADER_COUNT = range(6)
PLACE_FIELDS: Final = 6

# what index_records adds up over the records it kept, and what stopped it
KEPT, KEY_BYTES, VALUE_BYTES, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES = range(6)
WRONG, WRONG_AT, WRONG_SECTION = range(6, 9)
TOTAL_FIELDS: Final = 9

NOTHING_WRONG: Final = 0
CORRUPT_VARINT: Final = 1
CORRUPT_LENGTH: Final = 2
CORRUPT_DELTA: Final = 3
CORRUPT_KEY: Final = 4
CORRUPT_VALUE: Final = 5
CORRUPT_HEADER_COUNT: Final = 6
CORRUPT_HEADER_KEY: Final = 7
CORRUPT_HEADER_VALUE: Final = 8
RECORD_LEFTOVER: Final = 9
SECTION_LEFTOVER: Final = 10
CORRUPT_TIMESTAMP: Final = 11

REASONS: Final = {
    CORRUPT_VARINT: "a varint is cut off or too long",
    CORRUPT_LENGTH: "a record's length does not fit its batch",
    CORRUPT_DELTA: "a record's offset delta is not above the one before it or is beyond its batch",
    CORRUPT_KEY: "a key is longer than its record",
    CORRUPT_VALUE: "a value is longer than its record",
    CORRUPT_HEADER_COUNT: "a record claims more headers than it has bytes for",
    CORRUPT_HEADER_KEY: "a header's key is null or longer than its record",
    CORRUPT_HEADER_VALUE: "a header's value is longer than its record",
    RECORD_LEFTOVER: "a record has bytes after its last header",
    SECTION_LEFTOVER: "a batch has bytes after its last record",
    CORRUPT_TIMESTAMP: "a record's timestamp does not fit 64 bits",
}

_INT32_MAX: Final = 2**31 - 1
_INT32_MIN: Final = -(2**31)
_NOWHERE: Final = -1  # the position after a varint that is none


@inlined
def read_varlong(source: ConstBytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits before `end`, and the position after it."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(source[position])
        position += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return 0, _NOWHERE
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            folded, sign = np.int64(raw >> np.uint64(1)), np.int64(raw & np.uint64(1))
            return folded ^ -sign, position  # type: ignore[return-value]  # an int once compiled
        shift += np.uint64(7)
    return 0, _NOWHERE


@inlined
def read_varint(source: ConstBytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of up to 32 bits in at most five bytes, and the position after it."""
    if position < end and source[position] < 0x80:  # nearly all are one byte
        low = np.int64(source[position])
        return (low >> 1) ^ -(low & 1), position + 1  # type: ignore[return-value]  # as above
    value, after = read_varlong(source, position, end)
    if after - position > 5 or value > _INT32_MAX or value < _INT32_MIN:
        return 0, _NOWHERE
    return value, after


@inlined
def read_sized(
    source: ConstBytes, position: int, end: int, smallest: int, corrupt: int
) -> tuple[int, int, int]:
    """A size and its bytes: what is wrong, where that is or where the bytes start, and the size."""
    size, after = read_varint(source, position, end)
    if after < 0:
        return CORRUPT_VARINT, position, 0
    if size < smallest or size > end - after:
        return corrupt, position, 0
    return NOTHING_WRONG, after, size


@inlined
def walk_headers(
    source: ConstBytes, position: int, end: int, count: int
) -> tuple[int, int, int, int]:
    """Check one record's headers: what is wrong, where they end, bytes of keys, bytes of values."""
    key_bytes = 0
    value_bytes = 0
    for _ in range(count):
        wrong, position, size = read_sized(source, position, end, 0, CORRUPT_HEADER_KEY)
        if wrong:
            return wrong, position, 0, 0
        key_bytes += size
        position += size
        wrong, position, size = read_sized(source, position, end, -1, CORRUPT_HEADER_VALUE)
        if wrong:
            return wrong, position, 0, 0
        value_bytes += max(size, 0)
        position += max(size, 0)
    return NOTHING_WRONG, position, key_bytes, value_bytes


@inlined
def index_record(
    source: ConstBytes, start: int, section_end: int, places: Int64Table, row: int
) -> tuple[int, int, int, int, int, int]:
    """Check one record and note its places.

    Returns what is wrong, the position of that or of the record's end, the deltas of timestamp and
    offset, the bytes of header keys and of header values.
    """
    length, position = read_varint(source, start, section_end)
    if position < 0:
        return CORRUPT_VARINT, start, 0, 0, 0, 0
    if length < RECORD_BYTES_MIN - 1 or length > section_end - position:
        return CORRUPT_LENGTH, start, 0, 0, 0, 0
    end = position + length
    timestamp_delta, after = read_varlong(source, position + 1, end)
    if after < 0:
        return CORRUPT_VARINT, position + 1, 0, 0, 0, 0
    offset_delta, position = read_varint(source, after, end)
    if position < 0:
        return CORRUPT_VARINT, after, 0, 0, 0, 0
    wrong, key_at, key_size = read_sized(source, position, end, -1, CORRUPT_KEY)
    if wrong:
        return wrong, key_at, 0, 0, 0, 0
    position = key_at + max(key_size, 0)
    wrong, value_at, value_size = read_sized(source, position, end, -1, CORRUPT_VALUE)
    if wrong:
        return wrong, value_at, 0, 0, 0, 0
    position = value_at + max(value_size, 0)
    header_count, headers_at = read_varint(source, position, end)
    if headers_at < 0:
        return CORRUPT_VARINT, position, 0, 0, 0, 0
    if header_count < 0 or header_count > (end - headers_at) // HEADER_BYTES_MIN:
        return CORRUPT_HEADER_COUNT, position, 0, 0, 0, 0
    wrong, position, key_bytes, value_bytes = walk_headers(source, headers_at, end, header_count)
    if wrong:
        return wrong, position, 0, 0, 0, 0
    if position != end:
        return RECORD_LEFTOVER, position, 0, 0, 0, 0
    places[row, KEY_AT] = key_at
    places[row, KEY_SIZE] = key_size
    places[row, VALUE_AT] = value_at
    places[row, VALUE_SIZE] = value_size
    places[row, HEADERS_AT] = headers_at
    places[row, HEADER_COUNT] = header_count
    return NOTHING_WRONG, end, timestamp_delta, offset_delta, key_bytes, value_bytes


@kernel
def index_records(
    source: ConstBytes,
    sections: Int64Table,
    start_offset: int,
    end_offset: int,
    offsets: Int64s,
    timestamps: Int64s,
    places: Int64Table,
    section_rows: Int64s,
    totals: Int64s,
) -> None:
    """Check every record of every section; note those with start_offset <= offset < end_offset.

    The outputs have room for the records all sections claim, and a row of `places` more. Stops at
    the first thing that is wrong and says so in `totals`.
    """
    row = 0
    for section in range(sections.shape[0]):
        position = sections[section, START]
        section_end = sections[section, END]
        base_offset = sections[section, BASE_OFFSET]
        base_timestamp = sections[section, BASE_TIMESTAMP]
        append_timestamp = sections[section, APPEND_TIMESTAMP]
        previous_delta = -1
        first_row = row
        for _ in range(sections[section, COUNT]):
            start = position
            wrong, position, timestamp_delta, offset_delta, key_bytes, value_bytes = index_record(
                source, start, section_end, places, row
            )
            if not wrong and not (previous_delta < offset_delta <= sections[section, LAST_DELTA]):
                wrong, position = CORRUPT_DELTA, start
            timestamp = base_timestamp + timestamp_delta
            if not wrong and (timestamp < base_timestamp) != (timestamp_delta < 0):
                wrong, position = CORRUPT_TIMESTAMP, start
            if wrong:
                totals[WRONG] = wrong
                totals[WRONG_AT] = position
                totals[WRONG_SECTION] = section
                return
            previous_delta = offset_delta
            offset = base_offset + offset_delta
            if not start_offset <= offset < end_offset:
                continue
            offsets[row] = offset
            timestamps[row] = timestamp if append_timestamp == NOT_APPENDED else append_timestamp
            totals[KEY_BYTES] += max(places[row, KEY_SIZE], 0)
            totals[VALUE_BYTES] += max(places[row, VALUE_SIZE], 0)
            totals[HEADERS] += places[row, HEADER_COUNT]
            totals[HEADER_KEY_BYTES] += key_bytes
            totals[HEADER_VALUE_BYTES] += value_bytes
            row += 1
        if position != section_end:
            totals[WRONG] = SECTION_LEFTOVER
            totals[WRONG_AT] = position
            totals[WRONG_SECTION] = section
            return
        section_rows[section] = row - first_row
    totals[KEPT] = row


@kernel
def gather_bytes(
    source: ConstBytes, places: Int64Table, part: int, ends: Int32s, gathered: Bytes, valid: Bools
) -> int:
    """Copy one part (KEY_AT or VALUE_AT) of each row behind that of the row before; count nulls."""
    position = 0
    nulls = 0
    ends[0] = 0
    for row in range(places.shape[0]):
        start = places[row, part]
        size = places[row, part + 1]
        valid[row] = size >= 0
        if size < 0:
            nulls += 1
        else:
            copy_bytes(gathered, position, source, start, size)
            position += size
        ends[row + 1] = position
    return nulls


@kernel
def index_headers(
    source: ConstBytes, places: Int64Table, list_ends: Int32s, header_places: Int64Table
) -> None:
    """Note where the keys and values of all headers are, in the place table's own layout."""
    header = 0
    list_ends[0] = 0
    end = source.shape[0]  # index_records has checked these bytes: nothing here can be wrong
    for row in range(places.shape[0]):
        position = places[row, HEADERS_AT]
        for _ in range(places[row, HEADER_COUNT]):
            size, position = read_varint(source, position, end)
            header_places[header, KEY_AT] = position
            header_places[header, KEY_SIZE] = size
            size, position = read_varint(source, position + size, end)
            header_places[header, VALUE_AT] = position
            header_places[header, VALUE_SIZE] = size
            position += max(size, 0)
            header += 1
        list_ends[row + 1] = header
