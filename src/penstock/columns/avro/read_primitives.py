"""Parts of the kernel that decodes Avro: numbers and text in, values into slots.

Every function that can fail returns a fault, or OK. A slot that is full is no fault: OUTPUT_FULL
stops the kernel before anything of the row stays.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.avro.read_program import AvroFault
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    UInt64s,
    copy_bytes,
    inlined,
    outlined,
)
from penstock.columns.vm.slots import (
    BYTES_AT,
    KIND,
    OK,
    OUTPUT_FULL,
    SCRATCH_BYTES,
    SIZE_CAPACITY,
    VALID_AT,
    VALUES_AT,
    WIDTH,
    SlotKind,
    Slots,
    mark_valid,
)

VARINT_BYTES_MAX: Final = 10
TRUNCATED: Final = int(AvroFault.TRUNCATED)
BAD_VARINT: Final = int(AvroFault.VARINT)
DECIMAL_RANGE: Final = int(AvroFault.DECIMAL_RANGE)
KIND_FIXED: Final = int(SlotKind.FIXED)
KIND_SIZED: Final = int(SlotKind.SIZED)


_LIMBS: Final = 4  # of 64 bits: the widest decimal has 256
_DIGITS_MAX: Final = 76
# 10^n in limbs, the lowest first: a decimal of precision n is below that
_TENS: Final = np.array(
    [
        [(10**n >> (64 * limb)) & (2**64 - 1) for limb in range(_LIMBS)]
        for n in range(_DIGITS_MAX + 1)
    ],
    dtype=np.uint64,
)


@inlined
def read_varint(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """A fault, a zigzag number of up to 64 bits, and the position after it."""
    if position >= end:
        return TRUNCATED, np.int64(0), position
    first = np.int64(source[position])
    if first < 0x80:  # nearly all
        return OK, (first >> 1) ^ -(first & 1), position + 1
    raw = np.uint64(first & 0x7F)
    shift = np.uint64(7)
    for index in range(position + 1, min(end, position + VARINT_BYTES_MAX)):
        byte = np.uint64(source[index])
        if shift == np.uint64(63) and byte > np.uint64(1):
            return BAD_VARINT, np.int64(0), position
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            folded, sign = np.int64(raw >> np.uint64(1)), np.int64(raw & np.uint64(1))
            return OK, folded ^ -sign, index + 1
        shift += np.uint64(7)
    return TRUNCATED, np.int64(0), position


@inlined
def add(slots: Slots, slot: int) -> int:
    """Take the next index of a slot and mark it valid; the index, or -1 when the slot is full."""
    index = slots.counts[slot]
    if index >= slots.capacities[slot]:
        slots.full[0] = slot
        slots.full[1] = 0
        return -1
    mark_valid(slots, slot, index)
    slots.counts[slot] = index + 1
    return index  # type: ignore[no-any-return]  # an int once compiled


@inlined
def add_int(slots: Slots, slot: int, value: Any) -> int:
    """A value of four bytes."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + index] = value
    return OK


@inlined
def add_long(slots: Slots, slot: int, value: Any) -> int:
    """A value of eight bytes."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    slots.longs[(slots.table[slot, VALUES_AT] >> 3) + index] = value
    return OK


@inlined
def add_float(slots: Slots, slot: int, value: Any) -> int:
    """A float."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    slots.floats[(slots.table[slot, VALUES_AT] >> 2) + index] = value
    return OK


@inlined
def add_double(slots: Slots, slot: int, value: Any) -> int:
    """A double."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    slots.doubles[(slots.table[slot, VALUES_AT] >> 3) + index] = value
    return OK


@inlined
def add_fixed(slots: Slots, slot: int, source: ConstBytes, position: int) -> int:
    """As many bytes as the slot is wide."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    width = slots.table[slot, WIDTH]
    copy_bytes(slots.bytes, slots.table[slot, VALUES_AT] + index * width, source, position, width)
    return OK


@inlined
def add_sized(slots: Slots, slot: int, source: ConstBytes, position: int, size: int) -> int:
    """Bytes of any length."""
    start = slots.sizes[slot]
    if start + size > slots.table[slot, SIZE_CAPACITY]:
        slots.full[0] = slot
        slots.full[1] = size
        return OUTPUT_FULL
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    copy_bytes(slots.bytes, slots.table[slot, BYTES_AT] + start, source, position, size)
    slots.sizes[slot] = start + size
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + index + 1] = start + size
    return OK


@inlined
def add_list(slots: Slots, slot: int) -> int:
    """A list of the items since the last one."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    slots.ints[(slots.table[slot, VALUES_AT] >> 2) + index + 1] = slots.sizes[slot]
    return OK


@inlined
def add_null(slots: Slots, slot: int) -> int:
    """A null, or what stands in its index below a parent that is null."""
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    valid_at = slots.table[slot, VALID_AT]
    if valid_at >= 0:
        slots.bytes[valid_at + index] = 0
    kind = slots.table[slot, KIND]
    if kind == KIND_FIXED:
        width = slots.table[slot, WIDTH]
        start = slots.table[slot, VALUES_AT] + index * width
        for byte in range(start, start + width):
            slots.bytes[byte] = 0
    elif kind >= KIND_SIZED:
        slots.ints[(slots.table[slot, VALUES_AT] >> 2) + index + 1] = slots.sizes[slot]
    return OK


@inlined
def add_nulls(slots: Slots, aligned: Int64s, start: int, end: int) -> int:
    """A null for each slot of a stretch."""
    for index in range(start, end):
        if add_null(slots, aligned[index]) != OK:
            return OUTPUT_FULL
    return OK


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
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    at = slots.table[slot, VALUES_AT] + index * width
    sign = 0xFF if size > 0 and source[position] >= 0x80 else 0
    for byte_index in range(at, at + width):
        slots.bytes[byte_index] = sign
    for byte_index in range(min(size, width)):
        slots.bytes[at + byte_index] = source[position + size - 1 - byte_index]
    for byte_index in range(position, position + size - width):
        if source[byte_index] != sign:
            return DECIMAL_RANGE
    if (sign != 0) != (slots.bytes[at + width - 1] >= 0x80):
        return DECIMAL_RANGE
    return OK if is_below(slots.limbs, at // 8, width // 8, precision) else DECIMAL_RANGE


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
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL
    digits = slots.scratch  # digits of the number without its sign, low first
    negative = size > 0 and source[position] >= 0x80
    sign = 0xFF if negative else 0
    for byte_index in range(position, position + size - SCRATCH_BYTES):
        if source[byte_index] != sign:
            return DECIMAL_RANGE
    carry = np.int64(1) if negative else np.int64(0)
    for byte_index in range(SCRATCH_BYTES):
        byte = (
            np.int64(source[position + size - 1 - byte_index])
            if byte_index < size
            else np.int64(sign)
        )
        if negative:
            byte = (byte ^ 0xFF) + carry
            carry = byte >> 8
        digits[byte_index] = byte & 0xFF
    if not shift_digits(digits, shift):
        return DECIMAL_RANGE
    at = slots.table[slot, VALUES_AT] + index * width
    carry = np.int64(1) if negative else np.int64(0)
    for byte_index in range(SCRATCH_BYTES):
        byte = np.int64(digits[byte_index])
        if negative:
            byte = (byte ^ 0xFF) + carry
            carry = byte >> 8
        if byte_index < width:
            slots.bytes[at + byte_index] = byte & 0xFF
        elif digits[byte_index] != 0:
            return DECIMAL_RANGE
    if digits[width - 1] >= 0x80:
        return DECIMAL_RANGE
    return OK if is_below(slots.limbs, at // 8, width // 8, precision) else DECIMAL_RANGE


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
