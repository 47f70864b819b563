"""Small compiled parts of the decoding kernel: tags and numbers in, values into slots.

Every function that can fail returns what is wrong, 0 for nothing. What is refused and what is not
is as upb has it: numbers of up to ten bytes whose excess bits are lost, tags and lengths of up to
five. Memory of slots is zero where nothing was written, so what is taken back is zeroed.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int32s,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    outlined,
)
from penstock.columns.protobuf import read_program as ops
from penstock.columns.protobuf.read_program import Wrong
from penstock.columns.vm.slots import Kind

# the table of slots: where each one's memory is in the arena, in bytes
KIND, WIDTH, SCOPE_OF, ITEMS_SCOPE, SIZE_CAPACITY, VALID_AT, VALUES_AT, BYTES_AT = range(8)
SLOT_FIELDS: Final = 8
NOT_NULLABLE: Final = -1  # in VALID_AT

NOTHING: Final = int(Wrong.NOTHING)
TRUNCATED: Final = int(Wrong.TRUNCATED)
ROTTEN_VARINT: Final = int(Wrong.VARINT)
BAD_TAG: Final = int(Wrong.TAG)
LENGTH: Final = int(Wrong.LENGTH)
BAD_GROUP: Final = int(Wrong.GROUP)
NESTING: Final = int(Wrong.NESTING)
BAD_WIRE: Final = int(Wrong.WIRE)
TIME_RANGE: Final = int(Wrong.TIME_RANGE)
NEEDS_ROOM: Final = ops.NEEDS_ROOM
KIND_FIXED: Final = int(Kind.FIXED)
KIND_SIZED: Final = int(Kind.SIZED)
KIND_LIST: Final = int(Kind.LIST)

_VARINT_BYTES_MAX: Final = 10
_SHORT_BYTES_MAX: Final = 5  # of tags and lengths
_TAG_MAX: Final = 2**32 - 1
_LENGTH_MAX: Final = 2**31 - 1
_NANOS: Final = 1_000_000_000
_FIRST_SECOND: Final = -62_135_596_800  # 0001-01-01, as Timestamp's own comment has it
_LAST_SECOND: Final = 253_402_300_799
_SECONDS_MAX: Final = 315_576_000_000  # of a Duration, either way
_LONG_MAX: Final = 2**63 - 1


class Slots(NamedTuple):
    """The slots as kernels see them: one arena under several types, and how full each one is."""

    table: Int64Table  # (slots, SLOT_FIELDS)
    counts: Int64s  # places that are complete, by scope: the next one is being written to
    capacities: Int64s  # by scope
    sizes: Int64s  # by slot: bytes so far of SIZED, items so far of LIST
    full: Int64s  # (2): the scope or slot that had no room, and for how many bytes; 0: a scope
    bytes: Bytes
    ints: Int32s
    longs: Int64s


class Tables(NamedTuple):
    """A program as kernels see it."""

    fields: Int64Table
    nodes: Int64Table
    dense: Int64s
    sparse: Int64Table
    scopes: Int64Table
    members: Int64s
    closers: Int64Table
    clears: Int64s
    enums: Int64s


@inlined
def read_varint(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """What is wrong, the number as 64 bits without sign, and the position after it."""
    if position >= end:
        return TRUNCATED, np.uint64(0), position
    first = source[position]
    if first < 0x80:
        return NOTHING, np.uint64(first), position + 1
    raw = np.uint64(first & 0x7F)
    shift = np.uint64(7)
    for index in range(position + 1, min(end, position + _VARINT_BYTES_MAX)):
        byte = np.uint64(source[index])
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return NOTHING, raw, index + 1
        shift += np.uint64(7)
    wrong = TRUNCATED if end - position < _VARINT_BYTES_MAX else ROTTEN_VARINT
    return wrong, np.uint64(0), position


@inlined
def read_short(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """What is wrong, a tag or a length, and the position after it."""
    if position >= end:
        return TRUNCATED, np.int64(0), position
    first = np.int64(source[position])
    if first < 0x80:
        return NOTHING, first, position + 1
    number = first & 0x7F
    shift = 7
    for index in range(position + 1, min(end, position + _SHORT_BYTES_MAX)):
        byte = np.int64(source[index])
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return NOTHING, number, index + 1
        shift += 7
    wrong = TRUNCATED if end - position < _SHORT_BYTES_MAX else ROTTEN_VARINT
    return wrong, np.int64(0), position


@inlined
def read_tag(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """What is wrong, a tag that may be one, and the position after it."""
    wrong, tag, after = read_short(source, position, end)
    if wrong == NOTHING and (tag > _TAG_MAX or tag < 8):
        return BAD_TAG, tag, position
    return wrong, tag, after


@inlined
def read_length(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """What is wrong, a length that stays within `end`, and the position after it."""
    wrong, size, after = read_short(source, position, end)
    if wrong == NOTHING and (size > _LENGTH_MAX or size > end - after):
        return LENGTH, size, position
    return wrong, size, after


@inlined
def skip_plain(source: ConstBytes, position: int, end: int, wire: int) -> tuple[int, int]:
    """Step over a value that is no group: what is wrong, and the position after it."""
    if wire == ops.VARINT:
        wrong, _, after = read_varint(source, position, end)
        return wrong, after
    if wire == ops.SIZED:
        wrong, size, after = read_length(source, position, end)
        return wrong, (after + size if wrong == NOTHING else after)
    if wire == ops.SIXTY_FOUR:
        return (NOTHING, position + 8) if end - position >= 8 else (TRUNCATED, position)
    if wire == ops.THIRTY_TWO:
        return (NOTHING, position + 4) if end - position >= 4 else (TRUNCATED, position)
    return BAD_WIRE, position


@outlined
def skip(
    source: ConstBytes, position: int, end: int, tag: int, depth: int, groups: Int64s
) -> tuple[int, int]:
    """Step over a value of any kind, depth messages down: what is wrong, the position after."""
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
            wrong, position = skip_plain(source, position, end, wire)
            if wrong != NOTHING:
                return wrong, position
        if open_groups == 0:
            return NOTHING, position
        wrong, tag, position = read_short(source, position, end)
        if wrong == NOTHING and tag > _TAG_MAX:
            wrong = BAD_TAG  # the number 0 passes here: upb steps over it too
        if wrong != NOTHING:
            return wrong, position


@inlined
def find_field(tables: Tables, node: int, number: int) -> int:
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
def is_symbol(tables: Tables, row: int, number: int) -> bool:
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
def mark_valid(slots: Slots, slot: int, place: int) -> None:
    """Say that there is a value."""
    valid_at = slots.table[slot, VALID_AT]
    if valid_at >= 0:
        slots.bytes[valid_at + place] = 1


@inlined
def put_number(slots: Slots, slot: int, op: int, raw: Any) -> None:
    """A varint into the current place of its slot."""
    place = slots.counts[slots.table[slot, SCOPE_OF]]
    at = slots.table[slot, VALUES_AT]
    if op == ops.INT32 or op == ops.CLOSED_ENUM:
        slots.ints[(at >> 2) + place] = np.int32(raw & np.uint64(0xFFFFFFFF))
    elif op == ops.INT64:
        slots.longs[(at >> 3) + place] = np.int64(raw)
    elif op == ops.BOOL:
        slots.bytes[at + place] = 1 if raw != np.uint64(0) else 0
    elif op == ops.SINT32:
        low = np.int64(raw & np.uint64(0xFFFFFFFF))
        slots.ints[(at >> 2) + place] = np.int32((low >> 1) ^ -(low & 1))
    else:
        folded, sign = np.int64(raw >> np.uint64(1)), np.int64(raw & np.uint64(1))
        slots.longs[(at >> 3) + place] = folded ^ -sign
    mark_valid(slots, slot, place)


@inlined
def put_fixed(slots: Slots, slot: int, source: ConstBytes, position: int, width: int) -> None:
    """Four or eight bytes as they are."""
    place = slots.counts[slots.table[slot, SCOPE_OF]]
    copy_bytes(slots.bytes, slots.table[slot, VALUES_AT] + place * width, source, position, width)
    mark_valid(slots, slot, place)


@inlined
def put_sized(slots: Slots, slot: int, source: ConstBytes, position: int, size: int) -> int:
    """Bytes of any length, in place of those that were there before."""
    place = slots.counts[slots.table[slot, SCOPE_OF]]
    start = slots.ints[(slots.table[slot, VALUES_AT] >> 2) + place]
    if start + size > slots.table[slot, SIZE_CAPACITY]:
        slots.full[0] = slot
        slots.full[1] = size
        return NEEDS_ROOM
    copy_bytes(slots.bytes, slots.table[slot, BYTES_AT] + start, source, position, size)
    slots.sizes[slot] = start + size
    mark_valid(slots, slot, place)
    return NOTHING


@inlined
def open_place(slots: Slots, scope: int) -> int:
    """See to it that the scope's next place can be written to."""
    if slots.counts[scope] >= slots.capacities[scope]:
        slots.full[0] = scope
        slots.full[1] = 0
        return NEEDS_ROOM
    return NOTHING


@inlined
def close_place(tables: Tables, slots: Slots, scope: int) -> int:
    """The scope's place is complete, and the next one comes; what is wrong with it."""
    place = slots.counts[scope]
    for index in range(tables.scopes[scope, ops.CLOSE_FROM], tables.scopes[scope, ops.CLOSE_TO]):
        slot = tables.closers[index, ops.CLOSE_SLOT]
        at = slots.table[slot, VALUES_AT]
        if tables.closers[index, ops.CLOSE_OP] == ops.OFFSETS:
            slots.ints[(at >> 2) + place + 1] = slots.sizes[slot]
            continue
        nanos_at = slots.table[tables.closers[index, ops.CLOSE_NANOS], VALUES_AT]
        wrong, number = joined_time(
            slots.longs[(at >> 3) + place],
            np.int64(slots.ints[(nanos_at >> 2) + place]),
            tables.closers[index, ops.CLOSE_OP],
            tables.closers[index, ops.CLOSE_PER_SECOND],
        )
        if wrong != NOTHING:
            return wrong
        slots.longs[(at >> 3) + place] = number
    slots.counts[scope] = place + 1
    return NOTHING


@outlined
def joined_time(seconds: Any, nanos: Any, op: int, per_second: int) -> tuple[int, Any]:
    """A Timestamp or Duration as one number: what is wrong, and the number."""
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
    return NOTHING, seconds * per_second + part


@outlined
def cut_back(tables: Tables, slots: Slots, scope: int, count: int) -> None:
    """Keep only so many places of a scope, and of the scopes within it what belongs to them."""
    for inner in range(scope, tables.scopes[scope, ops.SUBTREE_END]):
        kept = count
        if inner != scope:
            kept = slots.sizes[tables.scopes[inner, ops.PARENT_LIST]]
        dirty = min(slots.counts[inner] + 1, slots.capacities[inner])
        first = tables.scopes[inner, ops.SLOTS_FROM]
        for index in range(first, tables.scopes[inner, ops.SLOTS_TO]):
            slot = tables.members[index]
            at = slots.table[slot, VALUES_AT]
            if slots.table[slot, KIND] >= KIND_SIZED:
                slots.sizes[slot] = slots.ints[(at >> 2) + kept]
            else:
                width = slots.table[slot, WIDTH]
                for byte in range(at + kept * width, at + dirty * width):
                    slots.bytes[byte] = 0
            valid_at = slots.table[slot, VALID_AT]
            if valid_at >= 0:
                for byte in range(valid_at + kept, valid_at + dirty):
                    slots.bytes[byte] = 0
        slots.counts[inner] = kept


@outlined
def clear_others(tables: Tables, slots: Slots, row: int) -> None:
    """A member of a oneof is being set: what the others had in the current place goes."""
    for index in range(tables.fields[row, ops.CLEAR_FROM], tables.fields[row, ops.CLEAR_TO]):
        slot = tables.clears[index]
        place = slots.counts[slots.table[slot, SCOPE_OF]]
        valid_at = slots.table[slot, VALID_AT]
        if valid_at >= 0:
            slots.bytes[valid_at + place] = 0
        at = slots.table[slot, VALUES_AT]
        kind = slots.table[slot, KIND]
        if kind >= KIND_SIZED:
            slots.sizes[slot] = slots.ints[(at >> 2) + place]
        if kind == KIND_LIST:
            cut_back(tables, slots, slots.table[slot, ITEMS_SCOPE], slots.sizes[slot])
        elif kind == KIND_FIXED:
            width = slots.table[slot, WIDTH]
            for byte in range(at + place * width, at + (place + 1) * width):
                slots.bytes[byte] = 0


@inlined
def is_set(slots: Slots, slot: int) -> bool:
    """Whether a slot that can be null has a value in the current place."""
    place = slots.counts[slots.table[slot, SCOPE_OF]]
    return slots.bytes[slots.table[slot, VALID_AT] + place] != 0  # type: ignore[no-any-return]  # a bool once compiled
