"""Small compiled parts of the decoding kernel: numbers and text in, values into slots.

Every function that can fail returns what is wrong, 0 for nothing. A slot that is full is not wrong:
NEEDS_ROOM stops the kernel before anything of the row is kept.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro.read_program import NEEDS_ROOM, Wrong
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Doubles,
    Floats,
    Int32s,
    Int64s,
    Int64Table,
    UInt64s,
    copy_bytes,
    inlined,
    outlined,
)
from penstock.columns.vm.slots import Kind

# the table of slots: where each one's memory is in the arena
KIND, WIDTH, CAPACITY, SIZE_CAPACITY, VALID_AT, VALUES_AT, BYTES_AT = range(7)
SLOT_FIELDS: Final = 7  # places are in bytes from the start of the arena
NOT_NULLABLE: Final = -1  # in VALID_AT

VARINT_BYTES_MAX: Final = 10
NOTHING: Final = int(Wrong.NOTHING)
TRUNCATED: Final = int(Wrong.TRUNCATED)
ROTTEN_VARINT: Final = int(Wrong.VARINT)
DECIMAL_RANGE: Final = int(Wrong.DECIMAL_RANGE)
KIND_FIXED: Final = int(Kind.FIXED)
KIND_SIZED: Final = int(Kind.SIZED)
KIND_LIST: Final = int(Kind.LIST)


_LIMBS: Final = 4  # of 64 bits: the widest decimal has 256
_DIGITS_MAX: Final = 76
DIGITS_BYTES: Final = 40  # what takes more has more digits than that
# 10^n in limbs, the lowest first: a decimal of precision n is below that
_TENS: Final = np.array(
    [
        [(10**n >> (64 * limb)) & (2**64 - 1) for limb in range(_LIMBS)]
        for n in range(_DIGITS_MAX + 1)
    ],
    dtype=np.uint64,
)


class Slots(NamedTuple):
    """The slots as kernels see them: one arena under several types, and how full each slot is."""

    table: Int64Table  # (slots, SLOT_FIELDS)
    counts: Int64s  # values so far
    sizes: Int64s  # bytes so far of SIZED, items so far of LIST
    full: Int64s  # (2): the slot that had no room left, and for how many bytes
    bytes: Bytes
    ints: Int32s
    longs: Int64s
    floats: Floats
    doubles: Doubles
    limbs: UInt64s
    digits: Bytes  # (DIGITS_BYTES): for a decimal whose scale changes


@inlined
def read_varint(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """What is wrong, a zigzag number of up to 64 bits, and the position after it."""
    if position >= end:
        return TRUNCATED, np.int64(0), position
    first = np.int64(source[position])
    if first < 0x80:  # nearly all
        return NOTHING, (first >> 1) ^ -(first & 1), position + 1
    raw = np.uint64(first & 0x7F)
    shift = np.uint64(7)
    for index in range(position + 1, min(end, position + VARINT_BYTES_MAX)):
        byte = np.uint64(source[index])
        if shift == np.uint64(63) and byte > np.uint64(1):
            return ROTTEN_VARINT, np.int64(0), position
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            folded, sign = np.int64(raw >> np.uint64(1)), np.int64(raw & np.uint64(1))
            return NOTHING, folded ^ -sign, index + 1
        shift += np.uint64(7)
    return TRUNCATED, np.int64(0), position


@inlined
def add(slots: Slots, slot: int) -> int:
    """Take the next place of a slot and mark it valid; the place, or -1 when the slot is full."""
    place = slots.counts[slot]
    if place >= slots.table[slot, CAPACITY]:
        slots.full[0] = slot
        slots.full[1] = 0
        return -1
    valid_at = slots.table[slot, VALID_AT]
    if valid_at >= 0:
        slots.bytes[valid_at + place] = 1
    slots.counts[slot] = place + 1
    return place  # type: ignore[no-any-return]  # an int once compiled


@inlined
def add_int(slots: Slots, slot: int, value: Any) -> int:
    """A value of four bytes."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + place] = value
    return NOTHING


@inlined
def add_long(slots: Slots, slot: int, value: Any) -> int:
    """A value of eight bytes."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    slots.longs[(slots.table[slot, VALUES_AT] >> 3) + place] = value
    return NOTHING


@inlined
def add_float(slots: Slots, slot: int, value: Any) -> int:
    """A float."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    slots.floats[(slots.table[slot, VALUES_AT] >> 2) + place] = value
    return NOTHING


@inlined
def add_double(slots: Slots, slot: int, value: Any) -> int:
    """A double."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    slots.doubles[(slots.table[slot, VALUES_AT] >> 3) + place] = value
    return NOTHING


@inlined
def add_fixed(slots: Slots, slot: int, source: ConstBytes, position: int) -> int:
    """As many bytes as the slot is wide."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    width = slots.table[slot, WIDTH]
    copy_bytes(slots.bytes, slots.table[slot, VALUES_AT] + place * width, source, position, width)
    return NOTHING


@inlined
def add_sized(slots: Slots, slot: int, source: ConstBytes, position: int, size: int) -> int:
    """Bytes of any length."""
    start = slots.sizes[slot]
    if start + size > slots.table[slot, SIZE_CAPACITY]:
        slots.full[0] = slot
        slots.full[1] = size
        return NEEDS_ROOM
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    copy_bytes(slots.bytes, slots.table[slot, BYTES_AT] + start, source, position, size)
    slots.sizes[slot] = start + size
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + place + 1] = start + size
    return NOTHING


@inlined
def add_list(slots: Slots, slot: int) -> int:
    """A list of the items since the last one."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + place + 1] = slots.sizes[slot]
    return NOTHING


@inlined
def add_null(slots: Slots, slot: int) -> int:
    """A null, or what stands in its place below a parent that is null."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    valid_at = slots.table[slot, VALID_AT]
    if valid_at >= 0:
        slots.bytes[valid_at + place] = 0
    kind = slots.table[slot, KIND]
    if kind == KIND_FIXED:
        width = slots.table[slot, WIDTH]
        start = slots.table[slot, VALUES_AT] + place * width
        for index in range(start, start + width):
            slots.bytes[index] = 0
    elif kind >= KIND_SIZED:
        slots.ints[(slots.table[slot, VALUES_AT] >> 2) + place + 1] = slots.sizes[slot]
    return NOTHING


@inlined
def add_nulls(slots: Slots, aligned: Int64s, start: int, end: int) -> int:
    """A null for each slot of a stretch."""
    for index in range(start, end):
        if add_null(slots, aligned[index]) != NOTHING:
            return NEEDS_ROOM
    return NOTHING


@inlined
def add_decimal(
    slots: Slots,
    slot: int,
    source: ConstBytes,
    position: int,
    size: int,
    width: int,
    precision: int,
) -> int:
    """A big-endian number of any size as a little-endian one of 16 or 32 bytes."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    at = slots.table[slot, VALUES_AT] + place * width
    sign = 0xFF if size > 0 and source[position] >= 0x80 else 0
    for index in range(at, at + width):
        slots.bytes[index] = sign
    for index in range(min(size, width)):
        slots.bytes[at + index] = source[position + size - 1 - index]
    for index in range(position, position + size - width):
        if source[index] != sign:
            return DECIMAL_RANGE
    if (sign != 0) != (slots.bytes[at + width - 1] >= 0x80):
        return DECIMAL_RANGE
    return NOTHING if is_below(slots.limbs, at // 8, width // 8, precision) else DECIMAL_RANGE


@outlined
def add_rescaled(
    slots: Slots,
    slot: int,
    source: ConstBytes,
    position: int,
    size: int,
    width: int,
    precision: int,
    shift: int,
) -> int:
    """The same, times ten to the power of `shift`; no digit may be lost."""
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM
    digits = slots.digits  # of the number without its sign, low first
    negative = size > 0 and source[position] >= 0x80
    sign = 0xFF if negative else 0
    for index in range(position, position + size - DIGITS_BYTES):
        if source[index] != sign:
            return DECIMAL_RANGE
    carry = np.int64(1) if negative else np.int64(0)
    for index in range(DIGITS_BYTES):
        byte = np.int64(source[position + size - 1 - index]) if index < size else np.int64(sign)
        if negative:
            byte = (byte ^ 0xFF) + carry
            carry = byte >> 8
        digits[index] = byte & 0xFF
    if not shift_digits(digits, shift):
        return DECIMAL_RANGE
    at = slots.table[slot, VALUES_AT] + place * width
    carry = np.int64(1) if negative else np.int64(0)
    for index in range(DIGITS_BYTES):
        byte = np.int64(digits[index])
        if negative:
            byte = (byte ^ 0xFF) + carry
            carry = byte >> 8
        if index < width:
            slots.bytes[at + index] = byte & 0xFF
        elif digits[index] != 0:
            return DECIMAL_RANGE
    if digits[width - 1] >= 0x80:
        return DECIMAL_RANGE
    return NOTHING if is_below(slots.limbs, at // 8, width // 8, precision) else DECIMAL_RANGE


@outlined
def shift_digits(digits: Bytes, shift: int) -> bool:
    """Times ten to the power of `shift`; False if a digit is lost at either end."""
    for _ in range(shift):
        carry = np.int64(0)
        for index in range(len(digits)):
            carry += np.int64(digits[index]) * 10
            digits[index] = carry & 0xFF
            carry >>= 8
        if carry != 0:
            return False
    for _ in range(-shift):
        rest = np.int64(0)
        for index in range(len(digits) - 1, -1, -1):
            rest = (rest << 8) | np.int64(digits[index])
            digits[index] = rest // 10
            rest %= 10
        if rest != 0:
            return False
    return True


@inlined
def is_below(limbs: UInt64s, at: int, count: int, precision: int) -> bool:
    """Whether a two's complement number has at most so many decimal digits."""
    negative = limbs[at + count - 1] >> np.uint64(63) != np.uint64(0)
    carry = np.uint64(1)
    below = False  # of the limbs looked at so far, the lowest ones
    for index in range(_LIMBS):
        limb = limbs[at + index] if index < count else np.uint64(0)
        if negative and index < count:
            limb = ~limb + carry
            carry = np.uint64(1) if limb == np.uint64(0) and carry == np.uint64(1) else np.uint64(0)
        if limb != _TENS[precision, index]:
            below = limb < _TENS[precision, index]
    return below
