"""Compiled loops of compaction: batch headers, keys and records of whole chunks of a segment.

They trust no byte: each varint and length is checked against the end of its record before it is
followed; what does not fit is returned as a defect, with the batch it is in. They never open the
headers of a record, and change only its length and timestamp delta.

A key is stored as its SipHash-2-4 of 128 bits under a seed drawn for each job, next to the last
offset it was seen at: 24 bytes however long the key is. Of two keys that collide one would be lost.
At random that takes 2**64 keys for an even bet, and one map has millions (about 2**-84); on
purpose it takes the seed, which is never written anywhere.
"""

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.columns.compiled import (
    Bools,
    Bytes,
    ConstBytes,
    UInt64,
    UInt64s,
    UInt64Table,
    copy_bytes,
    inlined,
    kernel,
    outlined,
    table_type,
)
from penstock.columns.record_kernels_read import read_varint, read_varlong
from penstock.columns.record_kernels_write import varint_bytes, write_varint
from penstock.columns.siphash import hash_key

HEADER_BYTES: Final = 61
RECORD_BYTES_MIN: Final = 7  # a byte for each field, no key, no value, no header
RECORD_GROWTH_MAX: Final = 13  # the widest timestamp delta and length instead of the narrowest
_LOG_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length does not count
_MAGIC: Final = 2
_LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40

_BATCH_FIELDS: Final = (
    "position",  # in the chunk that was scanned
    "size",  # with the header
    "base_offset",
    "leader_epoch",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "is_unpacked",  # the records are in the second buffer, decompressed
    "records_at",
    "records_end",
)
BATCH: Final = np.dtype([(name, np.int64) for name in _BATCH_FIELDS])

_OUTCOME_FIELDS: Final = (
    "action",
    "record_count",  # kept
    "attributes",
    "base_timestamp",
    "max_timestamp",
    "records_at",  # in the output buffer, when rebuilt
    "records_end",
)
OUTCOME: Final = np.dtype([(name, np.int64) for name in _OUTCOME_FIELDS])

Table: TypeAlias = NDArray[Any]  # rows of BATCH or of OUTCOME
BatchTable: TypeAlias = Annotated[Table, table_type(BATCH)]
OutcomeTable: TypeAlias = Annotated[Table, table_type(OUTCOME)]
Batch: TypeAlias = Annotated[Any, table_type(BATCH).dtype]

# what becomes of a batch
DROPPED, UNTOUCHED, REBUILT = 0, 1, 2
EMPTIED: Final = 3  # the header alone stays: it holds a last sequence or a last offset

# what was decided about a batch without looking at its records; flags, none means key by key
DISCARD: Final = 1  # no record stays
KEEP_EMPTY: Final = 2  # the header stays even without records
MARKER: Final = 4  # a control batch: records stay whatever their keys
EXPIRES: Final = 8  # no record of the marker's transaction is left: its grace period starts

_EMPTY: Final = np.uint64(0)  # a slot of the map without a key
_ONE: Final = np.uint64(1)
_HALF: Final = np.uint64(32)

# why a batch cannot be what it claims; 0 if it can
BAD_MAGIC, BAD_LENGTH, BAD_COUNT, BAD_OFFSET = range(1, 5)
BAD_VARINT, BAD_RECORD, BAD_KEY, BAD_VALUE, BAD_OFFSET_DELTA, TRAILING_BYTES = range(5, 11)
REASONS: Final = {
    BAD_MAGIC: "a batch is not of format 2",
    BAD_LENGTH: "a batch's length cannot hold its header",
    BAD_COUNT: "a batch claims more records than its offsets or bytes allow",
    BAD_OFFSET: "a batch starts before the end of the one before it",
    BAD_VARINT: "a varint is cut off or too long",
    BAD_RECORD: "a record's length does not fit its batch",
    BAD_KEY: "a key is longer than its record",
    BAD_VALUE: "a value is longer than its record",
    BAD_OFFSET_DELTA: "a record's offset delta is not above the last one's, or beyond the batch",
    TRAILING_BYTES: "a batch has bytes after its last record",
}


@inlined
def _read_int(source: ConstBytes, position: int, size: int) -> int:
    """A big-endian signed integer of `size` bytes."""
    value = np.int64(source[position])
    if value >= 128:
        value -= 256
    for at in range(position + 1, position + size):
        value = (value << 8) | np.int64(source[at])
    return int(value)


@kernel
def scan_batches(
    source: ConstBytes, end_offset: int, table: BatchTable
) -> tuple[int, int, int, int]:
    """Fill the table with whole batches: (batches, position after them, end offset, defect).

    Stops at the end, at a batch that is cut off, when the table is full, or at the first defect.
    """
    count = 0
    position = 0
    while count < len(table) and position + HEADER_BYTES <= len(source):
        size = _LOG_OVERHEAD_BYTES + _read_int(source, position + 8, 4)
        if source[position + 16] != _MAGIC:
            return count, position, end_offset, BAD_MAGIC
        if size < HEADER_BYTES:
            return count, position, end_offset, BAD_LENGTH
        if position + size > len(source):
            break
        batch = table[count]
        batch.position = position
        batch.size = size
        batch.base_offset = _read_int(source, position, 8)
        batch.leader_epoch = _read_int(source, position + 12, 4)
        batch.crc = _read_int(source, position + 17, 4) & 0xFFFFFFFF
        batch.attributes = _read_int(source, position + 21, 2)
        batch.last_offset_delta = _read_int(source, position + 23, 4)
        batch.base_timestamp = _read_int(source, position + 27, 8)
        batch.max_timestamp = _read_int(source, position + 35, 8)
        batch.producer_id = _read_int(source, position + 43, 8)
        batch.producer_epoch = _read_int(source, position + 51, 2)
        batch.base_sequence = _read_int(source, position + 53, 4)
        batch.record_count = _read_int(source, position + 57, 4)
        batch.is_unpacked = 0
        batch.records_at = position + HEADER_BYTES
        batch.records_end = position + size
        if batch.base_offset < end_offset:
            return count, position, end_offset, BAD_OFFSET
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            return count, position, end_offset, BAD_COUNT
        end_offset = batch.base_offset + batch.last_offset_delta + 1
        position += size
        count += 1
    return count, position, end_offset, 0


@inlined
def _read_record(
    source: ConstBytes, position: int, end: int, previous_delta: int, last_delta: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """One record up to its value: (defect, end, body, after timestamp, timestamp delta, offset
    delta, key mark, key size).

    The key mark is the key's position, or its complement if the value is null.
    """
    nothing = (0, 0, 0, 0, 0, 0, 0)
    length, body = read_varint(source, position, end)
    if body < 0:
        return (BAD_VARINT, *nothing)
    if length < RECORD_BYTES_MIN - 1 or length > end - body:
        return (BAD_RECORD, *nothing)
    record_end = body + length
    timestamp_delta, after_timestamp = read_varlong(source, body + 1, record_end)
    if after_timestamp < 0:
        return (BAD_VARINT, *nothing)
    offset_delta, at = read_varint(source, after_timestamp, record_end)
    if at < 0:
        return (BAD_VARINT, *nothing)
    if offset_delta <= previous_delta or offset_delta > last_delta:
        return (BAD_OFFSET_DELTA, *nothing)
    key_size, key_at = read_varint(source, at, record_end)
    if key_at < 0:
        return (BAD_VARINT, *nothing)
    if key_size < -1 or key_size > record_end - key_at:
        return (BAD_KEY, *nothing)
    value_size, value_at = read_varint(source, key_at + max(key_size, 0), record_end)
    if value_at < 0:
        return (BAD_VARINT, *nothing)
    if value_size < -1 or value_size > record_end - value_at:
        return (BAD_VALUE, *nothing)
    key_mark = key_at if value_size >= 0 else ~key_at
    return 0, record_end, body, after_timestamp, timestamp_delta, offset_delta, key_mark, key_size


@inlined
def _find_slot(entries: UInt64Table, low: UInt64, high: UInt64) -> int:
    """The slot of this key, or the empty one where it belongs. The map is never full."""
    slots = np.uint64(len(entries))
    slot = int(np.int64(((low >> _HALF) * slots) >> _HALF))
    while entries[slot, 2] != _EMPTY and (entries[slot, 0] != low or entries[slot, 1] != high):
        slot += 1
        if slot == len(entries):
            slot = 0
    return slot


@kernel
def map_keys(
    packed: ConstBytes,
    unpacked: ConstBytes,
    table: BatchTable,
    skip: Bools,
    first_offset: int,
    entries: UInt64Table,
    used: int,
    used_max: int,
    seed: UInt64s,
) -> tuple[int, int, int, int]:
    """Note the last offset of each key from `first_offset`: (batches, keys, last offset, defect).

    Fewer batches than the table has, and no defect: the map is full, and has all keys of records
    up to the last offset. An entry is two words of hash and the offset plus one; zero is empty.
    """
    last_offset = -1
    for index in range(len(table)):
        batch = table[index]
        last_batch_offset = batch.base_offset + batch.last_offset_delta
        if not skip[index] and last_batch_offset >= first_offset:
            source = unpacked if batch.is_unpacked else packed
            position = batch.records_at
            delta = -1
            for _ in range(batch.record_count):
                defect, position, _, _, _, delta, key_mark, key_size = _read_record(
                    source, position, batch.records_end, delta, batch.last_offset_delta
                )
                if defect:
                    return index, used, last_offset, defect
                offset = batch.base_offset + delta
                if key_size < 0 or offset < first_offset:
                    continue
                key_at = key_mark if key_mark >= 0 else ~key_mark
                low, high = hash_key(source, key_at, key_size, seed)
                slot = _find_slot(entries, low, high)
                if entries[slot, 2] == _EMPTY:
                    if used == used_max:
                        return index, used, last_offset, 0
                    entries[slot, 0] = low
                    entries[slot, 1] = high
                    used += 1
                entries[slot, 2] = np.uint64(offset) + _ONE
                last_offset = offset
            if position != batch.records_end:
                return index, used, last_offset, TRAILING_BYTES
        if last_batch_offset >= first_offset:
            last_offset = last_batch_offset
    return len(table), used, last_offset, 0


@outlined
def _rewrite_records(
    source: ConstBytes, batch: Batch, keep: Bools, timestamp_shift: int, target: Bytes, out: int
) -> int:
    """Copy the kept records of a batch that was read before; the position after them."""
    position = batch.records_at
    delta = -1
    for index in range(batch.record_count):
        start = position
        _, position, body, after_timestamp, timestamp_delta, delta, _, _ = _read_record(
            source, position, batch.records_end, delta, batch.last_offset_delta
        )
        if not keep[index]:
            continue
        if timestamp_shift == 0:
            copy_bytes(target, out, source, start, position - start)
            out += position - start
            continue
        shifted = timestamp_delta + timestamp_shift
        rest = position - after_timestamp
        out = write_varint(target, out, 1 + varint_bytes(shifted) + rest)
        target[out] = source[body]
        out = write_varint(target, out + 1, shifted)
        copy_bytes(target, out, source, after_timestamp, rest)
        out += rest
    return out


@kernel
def filter_records(
    packed: ConstBytes,
    unpacked: ConstBytes,
    table: BatchTable,
    flags: Bytes,
    entries: UInt64Table,
    seed: UInt64s,
    last_offset: int,
    now: int,
    delete_horizon: int,
    keep: Bools,
    target: Bytes,
    outcomes: OutcomeTable,
) -> tuple[int, int]:
    """Decide record by record and write what is rebuilt into `target`: (batches, defect).

    Records above `last_offset`, the last one in the map, stay. `keep` has a flag for each record of
    the largest batch, `target` a byte for each byte of all sections at their greatest growth.
    """
    out = 0
    for index in range(len(table)):
        batch = table[index]
        decided = flags[index]
        source = unpacked if batch.is_unpacked else packed
        has_horizon = batch.attributes & DELETE_HORIZON != 0
        in_grace = not has_horizon or now < batch.base_timestamp
        position = batch.records_at
        delta = -1
        kept = 0
        has_tombstone = False
        max_delta = -(1 << 62)
        for record in range(batch.record_count):
            defect, position, _, _, timestamp_delta, delta, key_mark, key_size = _read_record(
                source, position, batch.records_end, delta, batch.last_offset_delta
            )
            if defect:
                return index, defect
            offset = batch.base_offset + delta
            has_value = key_mark >= 0
            if decided & DISCARD:
                stays = False
            elif decided & MARKER or offset > last_offset:
                stays = True
            elif key_size < 0 or not (has_value or in_grace):
                stays = False
            else:
                low, high = hash_key(source, key_mark if has_value else ~key_mark, key_size, seed)
                slot = _find_slot(entries, low, high)
                stays = np.uint64(offset) + _ONE >= entries[slot, 2]
            keep[record] = stays
            if stays:
                kept += 1
                has_tombstone |= not has_value
                max_delta = max(max_delta, timestamp_delta)
        if position != batch.records_end:
            return index, TRAILING_BYTES
        outcome = outcomes[index]
        outcome.record_count = kept
        outcome.attributes = batch.attributes
        outcome.base_timestamp = batch.base_timestamp
        outcome.max_timestamp = batch.max_timestamp
        sets_horizon = not has_horizon and (has_tombstone or decided & EXPIRES != 0)
        if kept == 0:
            outcome.action = EMPTIED if decided & KEEP_EMPTY else DROPPED
        elif kept == batch.record_count and not sets_horizon:
            outcome.action = UNTOUCHED
        else:
            outcome.action = REBUILT
            outcome.records_at = out
            shift = 0
            if not batch.attributes & _LOG_APPEND_TIME:
                outcome.max_timestamp = batch.base_timestamp + max_delta
            if sets_horizon:
                shift = batch.base_timestamp - delete_horizon
                outcome.attributes |= DELETE_HORIZON
                outcome.base_timestamp = delete_horizon
            out = _rewrite_records(source, batch, keep, shift, target, out)
            outcome.records_end = out
    return len(table), 0
