"""Parts of the kernel that decodes Protobuf: tags and numbers in, values into slots.

Every function that can fail returns a fault, or OK. What is refused and what is not is as in upb:
numbers of up to ten bytes whose excess bits are lost, tags and lengths of up to five. Memory of
slots is zero where nothing was written, so what is taken back is zeroed.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.compiled import ConstBytes, Int64s, copy_bytes, inlined, outlined
from penstock.columns.protobuf import read_program as ops
from penstock.columns.protobuf.read_program import ProtobufFault, ProtobufReadTables
from penstock.columns.vm.slots import (
    BYTES_AT,
    ITEMS_SCOPE,
    KIND,
    OK,
    OUTPUT_FULL,
    SCOPE_OF,
    SIZE_CAPACITY,
    VALID_AT,
    VALUES_AT,
    WIDTH,
    SlotKind,
    Slots,
    mark_valid,
)

TRUNCATED: Final = int(ProtobufFault.TRUNCATED)
BAD_VARINT: Final = int(ProtobufFault.VARINT)
BAD_TAG: Final = int(ProtobufFault.TAG)
LENGTH: Final = int(ProtobufFault.LENGTH)
BAD_GROUP: Final = int(ProtobufFault.GROUP)
NESTING: Final = int(ProtobufFault.NESTING)
BAD_WIRE: Final = int(ProtobufFault.WIRE)
TIME_RANGE: Final = int(ProtobufFault.TIME_RANGE)
KIND_FIXED: Final = int(SlotKind.FIXED)
KIND_SIZED: Final = int(SlotKind.SIZED)
KIND_LIST: Final = int(SlotKind.LIST)

_VARINT_BYTES_MAX: Final = 10
_SHORT_BYTES_MAX: Final = 5  # of tags and lengths
_TAG_MAX: Final = 2**32 - 1
_LENGTH_MAX: Final = 2**31 - 1
_NANOS: Final = 1_000_000_000
_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01, as Timestamp's own comment has it
_LAST_SECOND: Final = 253_402_300_799
_SECONDS_MAX: Final = 315_576_000_000  # of a Duration, either way
_LONG_MAX: Final = 2**63 - 1


@inlined
def read_varint(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """A fault, the number as 64 bits without sign, and the position after it."""
    if position >= end:
        return TRUNCATED, np.uint64(0), position
    first = source[position]
    if first < 0x80:
        return OK, np.uint64(first), position + 1
    raw = np.uint64(first & 0x7F)
    shift = np.uint64(7)
    for index in range(position + 1, min(end, position + _VARINT_BYTES_MAX)):
        byte = np.uint64(source[index])
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return OK, raw, index + 1
        shift += np.uint64(7)
    fault = TRUNCATED if end - position < _VARINT_BYTES_MAX else BAD_VARINT
    return fault, np.uint64(0), position


@inlined
def read_short(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """A fault, a tag or a length, and the position after it."""
    if position >= end:
        return TRUNCATED, np.int64(0), position
    first = np.int64(source[position])
    if first < 0x80:
        return OK, first, position + 1
    number = first & 0x7F
    shift = 7
    for index in range(position + 1, min(end, position + _SHORT_BYTES_MAX)):
        byte = np.int64(source[index])
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return OK, number, index + 1
        shift += 7
    fault = TRUNCATED if end - position < _SHORT_BYTES_MAX else BAD_VARINT
    return fault, np.int64(0), position


@inlined
def read_tag(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """A fault, a tag that may be one, and the position after it."""
    fault, tag, after = read_short(source, position, end)
    if fault == OK and (tag > _TAG_MAX or tag < 8):
        return BAD_TAG, tag, position
    return fault, tag, after


@inlined
def read_length(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """A fault, a length that stays within `end`, and the position after it."""
    fault, size, after = read_short(source, position, end)
    if fault == OK and (size > _LENGTH_MAX or size > end - after):
        return LENGTH, size, position
    return fault, size, after


@inlined
def skip_plain(source: ConstBytes, position: int, end: int, wire: int) -> tuple[int, int]:
    """Skip a value that is no group: a fault, and the position after it."""
    if wire == ops.VARINT:
        fault, _, after = read_varint(source, position, end)
        return fault, after
    if wire == ops.SIZED:
        fault, size, after = read_length(source, position, end)
        return fault, (after + size if fault == OK else after)
    if wire == ops.SIXTY_FOUR:
        return (OK, position + 8) if end - position >= 8 else (TRUNCATED, position)
    if wire == ops.THIRTY_TWO:
        return (OK, position + 4) if end - position >= 4 else (TRUNCATED, position)
    return BAD_WIRE, position


@outlined
def skip(
    source: ConstBytes, position: int, end: int, tag: int, depth: int, groups: Int64s
) -> tuple[int, int]:
    """Skip a value of any kind, depth messages down: a fault, the position after it."""
    open_groups = 0
    while True:
        wire, number = tag & 7, tag >> 3
        if wire == ops.GROUP_START:
            if depth + open_groups >= ops.DEPTH_MAX:
                return NESTING, position
            groups[open_groups] = number
            open_groups += 1
        elif wire == ops.GROUP_END:
            if open_groups == 0 or groups[open_groups - 1] != number:
                return BAD_GROUP, position
            open_groups -= 1
        else:
            fault, position = skip_plain(source, position, end, wire)
            if fault != OK:
                return fault, position
        if open_groups == 0:
            return OK, position
        fault, tag, position = read_short(source, position, end)
        if fault == OK and tag > _TAG_MAX:
            fault = BAD_TAG  # the number 0 passes here: upb steps over it too
        if fault != OK:
            return fault, position


@inlined
def find_field(tables: ProtobufReadTables, node: int, number: int) -> int:
    """The row of a message's field, NONE if it has no such number."""
    if number < tables.nodes[node, ops.DENSE_COUNT]:
        return tables.dense[tables.nodes[node, ops.DENSE_AT] + number]  # type: ignore[no-any-return]  # an int once compiled
    low = tables.nodes[node, ops.SPARSE_AT]
    high = low + tables.nodes[node, ops.SPARSE_COUNT]
    while low < high:
        middle = (low + high) >> 1
        if tables.sparse[middle, 0] < number:
            low = middle + 1
        else:
            high = middle
    end = tables.nodes[node, ops.SPARSE_AT] + tables.nodes[node, ops.SPARSE_COUNT]
    if low < end and tables.sparse[low, 0] == number:
        return tables.sparse[low, 1]  # type: ignore[no-any-return]  # an int once compiled
    return ops.NONE


@inlined
def is_symbol(tables: ProtobufReadTables, row: int, number: int) -> bool:
    """Whether a closed enum has the number."""
    low, high = tables.fields[row, ops.ENUM_FROM], tables.fields[row, ops.ENUM_TO]
    while low < high:
        middle = (low + high) >> 1
        if tables.enums[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < tables.fields[row, ops.ENUM_TO] and tables.enums[low] == number  # type: ignore[no-any-return]  # a bool once compiled


@inlined
def put_number(slots: Slots, slot: int, op: int, raw: Any) -> None:
    """A varint, at the current index of its slot."""
    index = slots.counts[slots.table[slot, SCOPE_OF]]
    at = slots.table[slot, VALUES_AT]
    if op == ops.INT32 or op == ops.CLOSED_ENUM:
        slots.ints[(at >> 2) + index] = np.int32(raw & np.uint64(0xFFFFFFFF))
    elif op == ops.INT64:
        slots.longs[(at >> 3) + index] = np.int64(raw)
    elif op == ops.BOOL:
        slots.bytes[at + index] = 1 if raw != np.uint64(0) else 0
    elif op == ops.SINT32:
        low = np.int64(raw & np.uint64(0xFFFFFFFF))
        slots.ints[(at >> 2) + index] = np.int32((low >> 1) ^ -(low & 1))
    else:
        folded, sign = np.int64(raw >> np.uint64(1)), np.int64(raw & np.uint64(1))
        slots.longs[(at >> 3) + index] = folded ^ -sign
    mark_valid(slots, slot, index)


@inlined
def put_fixed(slots: Slots, slot: int, source: ConstBytes, position: int, width: int) -> None:
    """Four or eight bytes as they are."""
    index = slots.counts[slots.table[slot, SCOPE_OF]]
    copy_bytes(slots.bytes, slots.table[slot, VALUES_AT] + index * width, source, position, width)
    mark_valid(slots, slot, index)


@inlined
def put_sized(slots: Slots, slot: int, source: ConstBytes, position: int, size: int) -> int:
    """Bytes of any length, instead of those from before."""
    index = slots.counts[slots.table[slot, SCOPE_OF]]
    start = slots.ints[(slots.table[slot, VALUES_AT] >> 2) + index]
    if start + size > slots.table[slot, SIZE_CAPACITY]:
        slots.full[0] = slot
        slots.full[1] = size
        return OUTPUT_FULL
    copy_bytes(slots.bytes, slots.table[slot, BYTES_AT] + start, source, position, size)
    slots.sizes[slot] = start + size
    mark_valid(slots, slot, index)
    return OK


@inlined
def begin_value(slots: Slots, scope: int) -> int:
    """Check that there is capacity for the scope's next value."""
    if slots.counts[scope] >= slots.capacities[scope]:
        slots.full[0] = scope
        slots.full[1] = 0
        return OUTPUT_FULL
    return OK


@inlined
def end_value(tables: ProtobufReadTables, slots: Slots, scope: int) -> int:
    """The scope's value is complete, and the next one comes; a fault."""
    index = slots.counts[scope]
    for closer in range(tables.scopes[scope, ops.CLOSE_FROM], tables.scopes[scope, ops.CLOSE_TO]):
        slot = tables.closers[closer, ops.CLOSE_SLOT]
        at = slots.table[slot, VALUES_AT]
        if tables.closers[closer, ops.CLOSE_OP] == ops.OFFSETS:
            slots.ints[(at >> 2) + index + 1] = slots.sizes[slot]
            continue
        nanos_at = slots.table[tables.closers[closer, ops.CLOSE_NANOS], VALUES_AT]
        fault, number = joined_time(
            slots.longs[(at >> 3) + index],
            np.int64(slots.ints[(nanos_at >> 2) + index]),
            tables.closers[closer, ops.CLOSE_OP],
            tables.closers[closer, ops.CLOSE_PER_SECOND],
        )
        if fault != OK:
            return fault
        slots.longs[(at >> 3) + index] = number
    slots.counts[scope] = index + 1
    return OK


@outlined
def joined_time(seconds: Any, nanos: Any, op: int, per_second: int) -> tuple[int, Any]:
    """A Timestamp or Duration as one number: a fault, and the number."""
    if op == ops.TIMESTAMP:
        if seconds < _FIRST_SECOND or seconds > _LAST_SECOND or nanos < 0 or nanos >= _NANOS:
            return TIME_RANGE, np.int64(0)
    elif (
        seconds < -_SECONDS_MAX
        or seconds > _SECONDS_MAX
        or nanos <= -_NANOS
        or nanos >= _NANOS
        or (seconds > 0 and nanos < 0)
        or (seconds < 0 and nanos > 0)
    ):
        return TIME_RANGE, np.int64(0)
    bound = _LONG_MAX // per_second - 1
    if seconds > bound or seconds < -bound:
        return TIME_RANGE, np.int64(0)
    step = _NANOS // per_second
    part = nanos // step if nanos >= 0 else -((-nanos) // step)  # to zero, as Durations are read
    return OK, seconds * per_second + part


@outlined
def cut_back(tables: ProtobufReadTables, slots: Slots, scope: int, count: int) -> None:
    """Leave only `count` values of a scope, and of the scopes within it what belongs to them."""
    for inner in range(scope, tables.scopes[scope, ops.SUBTREE_END]):
        remaining = count
        if inner != scope:
            remaining = slots.sizes[tables.scopes[inner, ops.PARENT_LIST]]
        dirty = min(slots.counts[inner] + 1, slots.capacities[inner])
        first = tables.scopes[inner, ops.SLOTS_FROM]
        for member in range(first, tables.scopes[inner, ops.SLOTS_TO]):
            slot = tables.members[member]
            at = slots.table[slot, VALUES_AT]
            if slots.table[slot, KIND] >= KIND_SIZED:
                slots.sizes[slot] = slots.ints[(at >> 2) + remaining]
            else:
                width = slots.table[slot, WIDTH]
                for byte in range(at + remaining * width, at + dirty * width):
                    slots.bytes[byte] = 0
            valid_at = slots.table[slot, VALID_AT]
            if valid_at >= 0:
                for byte in range(valid_at + remaining, valid_at + dirty):
                    slots.bytes[byte] = 0
        slots.counts[inner] = remaining


@outlined
def clear_others(tables: ProtobufReadTables, slots: Slots, row: int) -> None:
    """A member of a oneof is set: clear what the others have at the current index."""
    for other in range(tables.fields[row, ops.CLEAR_FROM], tables.fields[row, ops.CLEAR_TO]):
        slot = tables.clears[other]
        index = slots.counts[slots.table[slot, SCOPE_OF]]
        valid_at = slots.table[slot, VALID_AT]
        if valid_at >= 0:
            slots.bytes[valid_at + index] = 0
        at = slots.table[slot, VALUES_AT]
        kind = slots.table[slot, KIND]
        if kind >= KIND_SIZED:
            slots.sizes[slot] = slots.ints[(at >> 2) + index]
        if kind == KIND_LIST:
            cut_back(tables, slots, slots.table[slot, ITEMS_SCOPE], slots.sizes[slot])
        elif kind == KIND_FIXED:
            width = slots.table[slot, WIDTH]
            for byte in range(at + index * width, at + (index + 1) * width):
                slots.bytes[byte] = 0


@inlined
def is_set(slots: Slots, slot: int) -> bool:
    """Whether a slot that can be null has a value at the current index."""
    index = slots.counts[slots.table[slot, SCOPE_OF]]
    return slots.bytes[slots.table[slot, VALID_AT] + index] != 0  # type: ignore[no-any-return]  # a bool once compiled
