"""Compiled loops of compaction: batch headers, keys and records of whole stretches of a segment.

They trust no byte: each varint and length is checked against the end of its record before it is
followed, and what does not fit comes back as a rot code, with the batch it was found in. They open
no header of a record, and change nothing of a record but its length and timestamp delta.

A key is remembered as its SipHash-2-4 of 128 bits under a seed drawn for each job, next to the last
offset it was seen at: 24 bytes however long the key is. Of two keys that collide one would be lost.
By chance that takes 2**64 keys for an even bet, and one map holds millions (about 2**-84); by
intent it takes the seed, which is written nowhere.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.columns.compiled import Bools, Bytes, kernel

Table: TypeAlias = NDArray[Any]  # rows of BATCH or of OUTCOME
Verdicts: TypeAlias = NDArray[np.uint8]
Words: TypeAlias = NDArray[np.uint64]

HEADER_BYTES: Final = 61
RECORD_BYTES_MIN: Final = 7  # a byte for each field, no key, no value, no header
RECORD_GROWTH_MAX: Final = 13  # the widest timestamp delta and length instead of the narrowest
_LOG_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length does not count
_MAGIC: Final = 2
_LOG_APPEND_TIME: Final = 0x08
DELETE_HORIZON: Final = 0x40
_LOGICAL_7: Final = (1 << 57) - 1  # what a logical shift by seven leaves of 64 bits

_BATCH_FIELDS: Final = (
    "position",  # in the stretch that was scanned
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
    "is_unpacked",  # the records lie in the second buffer, decompressed
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


# what becomes of a batch
DROPPED, UNTOUCHED, REBUILT = 0, 1, 2
EMPTIED: Final = 3  # the header alone stays: it holds a last sequence or a last offset

# what was decided about a batch without looking at its records; flags, none means key by key
DISCARD: Final = 1  # no record stays
KEEP_EMPTY: Final = 2  # the header stays even without records
MARKER: Final = 4  # a control batch: records stay whatever their keys
EXPIRES: Final = 8  # no record of the marker's transaction is left: its grace period starts

# why a batch cannot be what it claims
NO_ROT, ROT_MAGIC, ROT_LENGTH, ROT_COUNT, ROT_OFFSET = range(5)
ROT_VARINT, ROT_RECORD, ROT_KEY, ROT_VALUE, ROT_OFFSET_DELTA, ROT_LEFTOVER = range(5, 11)
REASONS: Final = {
    ROT_MAGIC: "a batch is not of format 2",
    ROT_LENGTH: "a batch's length cannot hold its header",
    ROT_COUNT: "a batch claims more records than its offsets or bytes allow",
    ROT_OFFSET: "a batch starts before the end of the one before it",
    ROT_VARINT: "a varint is cut off or too long",
    ROT_RECORD: "a record's length does not fit its batch",
    ROT_KEY: "a key is longer than its record",
    ROT_VALUE: "a value is longer than its record",
    ROT_OFFSET_DELTA: "a record's offset delta is not above the last one's, or beyond the batch",
    ROT_LEFTOVER: "a batch has bytes after its last record",
}


@kernel
def _read_int(source: Bytes, position: int, size: int) -> int:
    """A big-endian signed integer of `size` bytes."""
    value = np.int64(source[position])
    if value >= 128:
        value -= 256
    for at in range(position + 1, position + size):
        value = (value << 8) | np.int64(source[at])
    return int(value)


@kernel
def scan_batches(source: Bytes, end_offset: int, table: Table) -> tuple[int, int, int, int]:
    """Fill the table with whole batches: (batches, position after them, end offset, rot).

    Stops at the end, at a batch that is cut off, when the table is full, or at the first rot.
    """
    count = 0
    position = 0
    while count < len(table) and position + HEADER_BYTES <= len(source):
        size = _LOG_OVERHEAD_BYTES + _read_int(source, position + 8, 4)
        if source[position + 16] != _MAGIC:
            return count, position, end_offset, ROT_MAGIC
        if size < HEADER_BYTES:
            return count, position, end_offset, ROT_LENGTH
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
            return count, position, end_offset, ROT_OFFSET
        if not 0 <= batch.record_count <= batch.last_offset_delta + 1:
            return count, position, end_offset, ROT_COUNT
        end_offset = batch.base_offset + batch.last_offset_delta + 1
        position += size
        count += 1
    return count, position, end_offset, 0


@kernel
def _read_varint(source: Bytes, position: int, end: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits, and the position after it or -1."""
    raw = 0
    shift = 0
    while position < end and shift < 64:
        byte = int(np.int64(source[position]))
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((raw >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(raw & 1), position
        shift += 7
    return 0, -1


@kernel
def _varint_bytes(value: int) -> int:
    """How many bytes a zigzag varint takes."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw & ~0x7F != 0:
        raw = (raw >> 7) & _LOGICAL_7
        size += 1
    return size


@kernel
def _write_varint(target: Bytes, position: int, value: int) -> int:
    """Write a zigzag varint; the position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw & ~0x7F != 0:
        target[position] = (raw & 0x7F) | 0x80
        raw = (raw >> 7) & _LOGICAL_7
        position += 1
    target[position] = raw
    return position + 1


@kernel
def _read_record(
    source: Bytes, position: int, end: int, previous_delta: int, last_delta: int
) -> tuple[int, int, int, int, int, int, int, int]:
    """One record up to its value:
    (rot, end, body, after timestamp, timestamp delta, offset delta, key, key size or value flag).

    The last two are the key's position and size; a null value is told by a negative key position
    kept as `~position`, so that the common case needs no further field.
    """
    nothing = (0, 0, 0, 0, 0, 0, 0)
    length, body = _read_varint(source, position, end)
    if body < 0:
        return (ROT_VARINT, *nothing)
    if length < RECORD_BYTES_MIN - 1 or length > end - body:
        return (ROT_RECORD, *nothing)
    record_end = body + length
    timestamp_delta, after_timestamp = _read_varint(source, body + 1, record_end)
    if after_timestamp < 0:
        return (ROT_VARINT, *nothing)
    offset_delta, at = _read_varint(source, after_timestamp, record_end)
    if at < 0:
        return (ROT_VARINT, *nothing)
    if offset_delta <= previous_delta or offset_delta > last_delta:
        return (ROT_OFFSET_DELTA, *nothing)
    key_size, key_at = _read_varint(source, at, record_end)
    if key_at < 0:
        return (ROT_VARINT, *nothing)
    if key_size < -1 or key_size > record_end - key_at:
        return (ROT_KEY, *nothing)
    value_size, value_at = _read_varint(source, key_at + max(key_size, 0), record_end)
    if value_at < 0:
        return (ROT_VARINT, *nothing)
    if value_size < -1 or value_size > record_end - value_at:
        return (ROT_VALUE, *nothing)
    key_mark = key_at if value_size >= 0 else ~key_at
    return 0, record_end, body, after_timestamp, timestamp_delta, offset_delta, key_mark, key_size


_S0: Final = np.uint64(0)
_S8: Final = np.uint64(8)
_S13: Final = np.uint64(13)
_S16: Final = np.uint64(16)
_S17: Final = np.uint64(17)
_S21: Final = np.uint64(21)
_S32: Final = np.uint64(32)
_S43: Final = np.uint64(43)
_S47: Final = np.uint64(47)
_S48: Final = np.uint64(48)
_S51: Final = np.uint64(51)
_S56: Final = np.uint64(56)
_LOW_BYTE: Final = np.uint64(0xFF)
_WIDE: Final = np.uint64(0xEE)  # SipHash's marks for an output of 128 bits
_WIDER: Final = np.uint64(0xDD)
_V0: Final = np.uint64(0x736F6D6570736575)
_V1: Final = np.uint64(0x646F72616E646F6D)
_V2: Final = np.uint64(0x6C7967656E657261)
_V3: Final = np.uint64(0x7465646279746573)
_ONE: Final = np.uint64(1)


@kernel
def _sip_round(
    v0: np.uint64, v1: np.uint64, v2: np.uint64, v3: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    v0 += v1
    v1 = (v1 << _S13) | (v1 >> _S51)
    v1 ^= v0
    v0 = (v0 << _S32) | (v0 >> _S32)
    v2 += v3
    v3 = (v3 << _S16) | (v3 >> _S48)
    v3 ^= v2
    v0 += v3
    v3 = (v3 << _S21) | (v3 >> _S43)
    v3 ^= v0
    v2 += v1
    v1 = (v1 << _S17) | (v1 >> _S47)
    v1 ^= v2
    v2 = (v2 << _S32) | (v2 >> _S32)
    return v0, v1, v2, v3


@kernel
def hash_key(source: Bytes, position: int, size: int, seed: Words) -> tuple[np.uint64, np.uint64]:
    """SipHash-2-4 with 128 bits of output, as two little-endian words."""
    v0, v1, v2, v3 = seed[0] ^ _V0, seed[1] ^ _V1 ^ _WIDE, seed[0] ^ _V2, seed[1] ^ _V3
    whole = size & ~7
    for block in range(position, position + whole, 8):
        word = _S0
        for at in range(7, -1, -1):
            word = (word << _S8) | np.uint64(source[block + at])
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
    word = _S0
    for at in range(position + size - 1, position + whole - 1, -1):
        word = (word << _S8) | np.uint64(source[at])
    word |= (np.uint64(size) & _LOW_BYTE) << _S56
    v3 ^= word
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _WIDE
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= _WIDER
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def _find_slot(entries: Words, low: np.uint64, high: np.uint64) -> int:
    """The slot of this key, or the empty one where it belongs. The map is never full."""
    slots = np.uint64(len(entries))
    slot = int(np.int64(((low >> _S32) * slots) >> _S32))
    while entries[slot, 2] != _S0 and (entries[slot, 0] != low or entries[slot, 1] != high):
        slot += 1
        if slot == len(entries):
            slot = 0
    return slot


@kernel
def map_keys(
    packed: Bytes,
    unpacked: Bytes,
    table: Table,
    skip: Bools,
    first_offset: int,
    entries: Words,
    used: int,
    used_max: int,
    seed: Words,
) -> tuple[int, int, int, int]:
    """Note the last offset of each key from `first_offset` on: (batches, keys, last offset, rot).

    Fewer batches than the table has, without rot: the map is full, and holds all keys of records
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
                rot, position, _, _, _, delta, key_mark, key_size = _read_record(
                    source, position, batch.records_end, delta, batch.last_offset_delta
                )
                if rot:
                    return index, used, last_offset, rot
                offset = batch.base_offset + delta
                if key_size < 0 or offset < first_offset:
                    continue
                key_at = key_mark if key_mark >= 0 else ~key_mark
                low, high = hash_key(source, key_at, key_size, seed)
                slot = _find_slot(entries, low, high)
                if entries[slot, 2] == _S0:
                    if used == used_max:
                        return index, used, last_offset, 0
                    entries[slot, 0] = low
                    entries[slot, 1] = high
                    used += 1
                entries[slot, 2] = np.uint64(offset) + _ONE
                last_offset = offset
            if position != batch.records_end:
                return index, used, last_offset, ROT_LEFTOVER
        if last_batch_offset >= first_offset:
            last_offset = last_batch_offset
    return len(table), used, last_offset, 0


@kernel
def _copy(source: Bytes, start: int, end: int, target: Bytes, out: int) -> int:
    """Copy bytes; the position after them. A loop: a slice would be copied once in between."""
    for at in range(end - start):
        target[out + at] = source[start + at]
    return out + end - start


@kernel
def _rewrite_records(
    source: Bytes, batch: Any, keep: Bools, timestamp_shift: int, target: Bytes, out: int
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
            out = _copy(source, start, position, target, out)
            continue
        shifted = timestamp_delta + timestamp_shift
        rest = position - after_timestamp
        out = _write_varint(target, out, 1 + _varint_bytes(shifted) + rest)
        target[out] = source[body]
        out = _write_varint(target, out + 1, shifted)
        out = _copy(source, after_timestamp, position, target, out)
    return out


@kernel
def filter_records(
    packed: Bytes,
    unpacked: Bytes,
    table: Table,
    verdicts: Verdicts,
    entries: Words,
    seed: Words,
    last_offset: int,
    now: int,
    delete_horizon: int,
    keep: Bools,
    target: Bytes,
    outcomes: Table,
) -> tuple[int, int]:
    """Decide record by record and write what is rebuilt into `target`: (batches, rot).

    `last_offset` is the last one the map knows: records above it stay. `keep` has room for the
    records of the largest batch, `target` for all sections at their greatest growth.
    """
    out = 0
    for index in range(len(table)):
        batch = table[index]
        verdict = verdicts[index]
        source = unpacked if batch.is_unpacked else packed
        has_horizon = batch.attributes & DELETE_HORIZON != 0
        in_grace = not has_horizon or now < batch.base_timestamp
        position = batch.records_at
        delta = -1
        kept = 0
        has_tombstone = False
        max_delta = -(1 << 62)
        for record in range(batch.record_count):
            rot, position, _, _, timestamp_delta, delta, key_mark, key_size = _read_record(
                source, position, batch.records_end, delta, batch.last_offset_delta
            )
            if rot:
                return index, rot
            offset = batch.base_offset + delta
            has_value = key_mark >= 0
            if verdict & DISCARD:
                stays = False
            elif verdict & MARKER or offset > last_offset:
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
            return index, ROT_LEFTOVER
        outcome = outcomes[index]
        outcome.record_count = kept
        outcome.attributes = batch.attributes
        outcome.base_timestamp = batch.base_timestamp
        outcome.max_timestamp = batch.max_timestamp
        sets_horizon = not has_horizon and (has_tombstone or verdict & EXPIRES != 0)
        if kept == 0:
            outcome.action = EMPTIED if verdict & KEEP_EMPTY else DROPPED
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
