"""The decoding kernel: runs a program over many payloads. It trusts no byte of them.

A row is all or nothing: when something is wrong with it, the slots are cut back to where they were
and get a null for it, and its neighbours never know. When there is no room, the row is cut back as
well and the kernel returns, to be called again from that row with more.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    inlined,
    kernel,
)
from penstock.columns.protobuf import read_program as ops
from penstock.columns.protobuf.read_primitives import (
    BAD_GROUP,
    NEEDS_ROOM,
    NESTING,
    NOTHING,
    SCOPE_OF,
    TRUNCATED,
    Slots,
    Tables,
    clear_others,
    close_place,
    cut_back,
    find_field,
    is_set,
    is_symbol,
    mark_valid,
    open_place,
    put_fixed,
    put_number,
    put_sized,
    read_length,
    read_tag,
    read_varint,
    skip,
)
from penstock.columns.protobuf.read_program import Wrong
from penstock.columns.vm.python_objects import is_text

UTF8: Final = int(Wrong.UTF8)
ITEMS: Final = int(Wrong.ITEMS)
TOO_LARGE: Final = int(Wrong.TOO_LARGE)

# what decode_rows is told: which rows (it moves NEXT_ROW on), and the limits of a payload
NEXT_ROW, END_ROW, VALUE_BYTES_MAX, ITEMS_MAX, ITEMS_SO_FAR = range(5)
STATE_FIELDS: Final = 5

# a message that is being read: those around it wait in `frames`
END, NODE, SCOPE, GROUP, IS_DROPPED = range(5)
FRAME_FIELDS: Final = 5


@inlined
def put_scalar(
    tables: Tables, slots: Slots, row: int, source: ConstBytes, position: int, end: int
) -> tuple[int, int, bool]:
    """A number: what is wrong, the position after it, and whether it is an unknown one."""
    op, slot = tables.fields[row, ops.OP], tables.fields[row, ops.SLOT]
    if op >= ops.FIXED32:
        width = 4 if op == ops.FIXED32 else 8
        if end - position < width:
            return TRUNCATED, position, False
        if slot >= 0:
            put_fixed(slots, slot, source, position, width)
        return NOTHING, position + width, False
    wrong, raw, after = read_varint(source, position, end)
    if wrong != NOTHING:
        return wrong, position, False
    if op == ops.CLOSED_ENUM:
        number: Any = np.int64(np.int32(raw & np.uint64(0xFFFFFFFF)))
        if not is_symbol(tables, row, number):
            return NOTHING, after, True
    if slot >= 0:
        put_number(slots, slot, op, raw)
    return NOTHING, after, False


@inlined
def count_item(state: Int64s) -> int:
    """One more item of this row, if it may have one."""
    state[ITEMS_SO_FAR] += 1
    return ITEMS if state[ITEMS_SO_FAR] > state[ITEMS_MAX] else NOTHING


@inlined
def put_numbers(
    tables: Tables,
    slots: Slots,
    row: int,
    wire: int,
    source: ConstBytes,
    position: int,
    end: int,
    state: Int64s,
) -> tuple[int, int, bool]:
    """A number, one more of a repeated field, or several back to back, as put_scalar does it."""
    stop = position + 1  # one number, however long it is
    if wire == ops.SIZED:
        wrong, size, position = read_length(source, position, end)
        stop = end = position + size
        if wrong != NOTHING:
            return wrong, position, False
    scope, list_slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.LIST]
    is_unknown = False
    while position < stop:
        if scope >= 0:
            wrong = open_place(slots, scope)
            if wrong == NOTHING:
                wrong = count_item(state)
            if wrong != NOTHING:
                return wrong, position, False
        wrong, position, is_unknown = put_scalar(tables, slots, row, source, position, end)
        if wrong != NOTHING:
            return wrong, position, False
        if scope >= 0 and not is_unknown:
            slots.counts[scope] += 1  # a number has nothing to close
            slots.sizes[list_slot] += 1
    return NOTHING, position, is_unknown


@inlined
def put_content(
    tables: Tables,
    slots: Slots,
    row: int,
    source: ConstBytes,
    position: int,
    end: int,
    state: Int64s,
) -> tuple[int, int]:
    """Text or bytes, repeated or not: what is wrong, and the position after them."""
    wrong, size, start = read_length(source, position, end)
    if wrong != NOTHING:
        return wrong, position
    if tables.fields[row, ops.OP] == ops.TEXT and not is_text(source, start, start + size):
        return UTF8, position
    scope, slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.SLOT]
    if scope < 0:
        return put_sized(slots, slot, source, start, size), start + size
    wrong = open_place(slots, scope)
    if wrong == NOTHING:
        wrong = count_item(state)
    if wrong == NOTHING:
        wrong = put_sized(slots, slot, source, start, size)
    if wrong == NOTHING:
        wrong = close_place(tables, slots, scope)
        slots.sizes[tables.fields[row, ops.LIST]] += 1
    return wrong, start + size


@inlined
def begin_message(
    tables: Tables, slots: Slots, row: int, frames: Int64Table, depth: int, state: Int64s
) -> int:
    """A message begins in frames[depth], whose end and group are known; what is wrong."""
    scope, slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.SLOT]
    frames[depth, NODE] = tables.fields[row, ops.NODE]
    frames[depth, SCOPE] = scope
    frames[depth, IS_DROPPED] = 0
    if scope >= 0:
        wrong = open_place(slots, scope)
        return wrong if wrong != NOTHING else count_item(state)
    if slot >= 0:
        if tables.fields[row, ops.CLEAR_FROM] < tables.fields[row, ops.CLEAR_TO] and not is_set(
            slots, slot
        ):
            clear_others(tables, slots, row)
        mark_valid(slots, slot, slots.counts[slots.table[slot, SCOPE_OF]])
    return NOTHING


@inlined
def end_message(tables: Tables, slots: Slots, frames: Int64Table, depth: int) -> int:
    """A message has been read; if it is an item or an entry, its place is complete."""
    scope = frames[depth, SCOPE]
    if scope < 0:
        return NOTHING
    if frames[depth, IS_DROPPED] != 0:
        cut_back(tables, slots, scope, slots.counts[scope])
        return NOTHING
    wrong = close_place(tables, slots, scope)
    if wrong == NOTHING:
        slots.sizes[tables.scopes[scope, ops.PARENT_LIST]] += 1
    return wrong


@inlined
def fits(tables: Tables, row: int, wire: int) -> bool:
    """Whether a field comes in a way that it can come in; if not it counts as unknown."""
    if wire == tables.fields[row, ops.WIRE]:
        return True
    return (
        wire == ops.SIZED
        and tables.fields[row, ops.SCOPE] >= 0
        and tables.fields[row, ops.OP] <= ops.PACKABLE_LAST
    )


@inlined
def put_value(
    tables: Tables,
    slots: Slots,
    row: int,
    wire: int,
    source: ConstBytes,
    position: int,
    end: int,
    state: Int64s,
) -> tuple[int, int, bool]:
    """A value that is no message: what is wrong, the position after it, whether it is unknown.

    A member of a oneof clears the others, once it is known that it is set.
    """
    slot = tables.fields[row, ops.SLOT]
    is_member = tables.fields[row, ops.CLEAR_FROM] < tables.fields[row, ops.CLEAR_TO]
    clears = is_member and (slot < 0 or not is_set(slots, slot))
    is_unknown = False
    if tables.fields[row, ops.OP] <= ops.PACKABLE_LAST:
        wrong, after, is_unknown = put_numbers(
            tables, slots, row, wire, source, position, end, state
        )
    else:
        wrong, after = put_content(tables, slots, row, source, position, end, state)
    if clears and wrong == NOTHING and not is_unknown:
        clear_others(tables, slots, row)
    return wrong, after, is_unknown


@inlined
def run_row(
    source: ConstBytes,
    position: int,
    end: int,
    tables: Tables,
    slots: Slots,
    frames: Int64Table,
    groups: Int64s,
    state: Int64s,
) -> tuple[int, int]:
    """One payload: what is wrong, and where."""
    depth = 0
    frames[0, END] = end
    frames[0, NODE] = 0
    frames[0, SCOPE] = ops.NONE
    frames[0, GROUP] = 0
    frames[0, IS_DROPPED] = 0
    while True:
        limit = frames[depth, END]
        is_end = position >= limit
        wire, after = ops.GROUP_END, position
        number: Any = np.int64(0)
        if not is_end:
            wrong, tag, after = read_tag(source, position, limit)
            if wrong != NOTHING:
                return wrong, position
            wire, number = tag & 7, tag >> 3
        if wire == ops.GROUP_END:
            if frames[depth, GROUP] != number:
                return BAD_GROUP, position
            if depth == 0:
                return NOTHING, position
            wrong = end_message(tables, slots, frames, depth)
            if wrong != NOTHING:
                return wrong, position
            depth -= 1
            position = after
            continue
        node = frames[depth, NODE]
        row = find_field(tables, node, number)
        is_unknown = row < 0 or not fits(tables, row, wire)
        op = ops.SKIP if is_unknown else tables.fields[row, ops.OP]
        if op < ops.MESSAGE:
            wrong, after, is_unknown = put_value(
                tables, slots, row, wire, source, after, limit, state
            )
        elif op == ops.SKIP:
            wrong, after = skip(source, after, limit, number << 3 | wire, depth, groups)
            if wrong == NOTHING and not is_unknown:
                clear_others(tables, slots, row)
        else:
            size: Any = limit - after
            if op == ops.MESSAGE:
                wrong, size, after = read_length(source, after, limit)
                number = 0
            if wrong == NOTHING:
                depth += 1
                if depth > ops.DEPTH_MAX:
                    return NESTING, position
                frames[depth, END] = after + size
                frames[depth, GROUP] = number
                wrong = begin_message(tables, slots, row, frames, depth, state)
        if wrong != NOTHING:
            return wrong, position
        if is_unknown and tables.nodes[node, ops.IS_ENTRY] != 0:
            frames[depth, IS_DROPPED] = 1  # an entry with anything unknown in it is unknown itself
        position = after


@kernel
def decode_rows(
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    tables: Tables,
    slots: Slots,
    frames: Int64Table,
    groups: Int64s,
    errors: Bytes,
    error_places: Int64s,
    state: Int64s,
) -> int:
    """Rows from NEXT_ROW to END_ROW; NEEDS_ROOM if there was none at NEXT_ROW, else 0.

    The first scope has room for all rows from the beginning, so a wrong row can always be put.
    """
    for row in range(state[NEXT_ROW], state[END_ROW]):
        start, end = starts[row], ends[row]
        state[ITEMS_SO_FAR] = 0
        if end - start > state[VALUE_BYTES_MAX]:
            wrong, position = TOO_LARGE, start
        else:
            wrong, position = run_row(source, start, end, tables, slots, frames, groups, state)
        if wrong == NOTHING:
            wrong = close_place(tables, slots, 0)
        if wrong != NOTHING:
            cut_back(tables, slots, 0, row)
            if wrong == NEEDS_ROOM:
                state[NEXT_ROW] = row
                return NEEDS_ROOM
            close_place(tables, slots, 0)
            error_places[row] = position - start
        errors[row] = wrong
    state[NEXT_ROW] = state[END_ROW]
    return NOTHING
