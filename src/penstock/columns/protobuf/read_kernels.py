"""The kernel that decodes Protobuf: runs a program over many payloads. It trusts no byte of them.

A row is all or nothing: an invalid one is taken back out of the slots and becomes a null, and the
other rows are not affected. When a slot is full, the row is taken back as well and the kernel
returns, to be called again from that row with larger slots.
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
    NESTING,
    TRUNCATED,
    begin_value,
    clear_others,
    cut_back,
    end_value,
    find_field,
    is_set,
    is_symbol,
    put_fixed,
    put_number,
    put_sized,
    read_length,
    read_tag,
    read_varint,
    skip,
)
from penstock.columns.protobuf.read_program import ProtobufFault, ProtobufReadTables
from penstock.columns.vm.slots import (
    END_ROW,
    ITEM_COUNT,
    ITEMS_MAX,
    NEXT_ROW,
    OK,
    OUTPUT_FULL,
    SCOPE_OF,
    VALUE_BYTES_MAX,
    Slots,
    mark_valid,
)
from penstock.columns.vm.text import is_text

UTF8: Final = int(ProtobufFault.UTF8)
ITEMS: Final = int(ProtobufFault.ITEMS)
TOO_LARGE: Final = int(ProtobufFault.TOO_LARGE)

# a message that is being read: those around it wait in `frames`
END, NODE, SCOPE, GROUP, IS_DROPPED = range(5)
FRAME_FIELDS: Final = 5


@inlined
def put_scalar(
    tables: ProtobufReadTables, slots: Slots, row: int, source: ConstBytes, position: int, end: int
) -> tuple[int, int, bool]:
    """A number: a fault, the position after it, and whether it is an unknown one."""
    op, slot = tables.fields[row, ops.OP], tables.fields[row, ops.SLOT]
    if op >= ops.FIXED32:
        width = 4 if op == ops.FIXED32 else 8
        if end - position < width:
            return TRUNCATED, position, False
        if slot >= 0:
            put_fixed(slots, slot, source, position, width)
        return OK, position + width, False
    fault, raw, after = read_varint(source, position, end)
    if fault != OK:
        return fault, position, False
    if op == ops.CLOSED_ENUM:
        number: Any = np.int64(np.int32(raw & np.uint64(0xFFFFFFFF)))
        if not is_symbol(tables, row, number):
            return OK, after, True
    if slot >= 0:
        put_number(slots, slot, op, raw)
    return OK, after, False


@inlined
def count_item(state: Int64s) -> int:
    """Count one more item of this row; a fault if there are too many."""
    state[ITEM_COUNT] += 1
    return ITEMS if state[ITEM_COUNT] > state[ITEMS_MAX] else OK


@inlined
def put_numbers(
    tables: ProtobufReadTables,
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
        fault, size, position = read_length(source, position, end)
        stop = end = position + size
        if fault != OK:
            return fault, position, False
    scope, list_slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.LIST]
    is_unknown = False
    while position < stop:
        if scope >= 0:
            fault = begin_value(slots, scope)
            if fault == OK:
                fault = count_item(state)
            if fault != OK:
                return fault, position, False
        fault, position, is_unknown = put_scalar(tables, slots, row, source, position, end)
        if fault != OK:
            return fault, position, False
        if scope >= 0 and not is_unknown:
            slots.counts[scope] += 1  # a number has nothing to close
            slots.sizes[list_slot] += 1
    return OK, position, is_unknown


@inlined
def put_content(
    tables: ProtobufReadTables,
    slots: Slots,
    row: int,
    source: ConstBytes,
    position: int,
    end: int,
    state: Int64s,
) -> tuple[int, int]:
    """Text or bytes, repeated or not: a fault, and the position after them."""
    fault, size, start = read_length(source, position, end)
    if fault != OK:
        return fault, position
    if tables.fields[row, ops.OP] == ops.TEXT and not is_text(source, start, start + size):
        return UTF8, position
    scope, slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.SLOT]
    if scope < 0:
        return put_sized(slots, slot, source, start, size), start + size
    fault = begin_value(slots, scope)
    if fault == OK:
        fault = count_item(state)
    if fault == OK:
        fault = put_sized(slots, slot, source, start, size)
    if fault == OK:
        fault = end_value(tables, slots, scope)
        slots.sizes[tables.fields[row, ops.LIST]] += 1
    return fault, start + size


@inlined
def begin_message(
    tables: ProtobufReadTables,
    slots: Slots,
    row: int,
    frames: Int64Table,
    depth: int,
    state: Int64s,
) -> int:
    """A message begins in frames[depth], whose end and group are known; a fault."""
    scope, slot = tables.fields[row, ops.SCOPE], tables.fields[row, ops.SLOT]
    frames[depth, NODE] = tables.fields[row, ops.NODE]
    frames[depth, SCOPE] = scope
    frames[depth, IS_DROPPED] = 0
    if scope >= 0:
        fault = begin_value(slots, scope)
        return fault if fault != OK else count_item(state)
    if slot >= 0:
        if tables.fields[row, ops.CLEAR_FROM] < tables.fields[row, ops.CLEAR_TO] and not is_set(
            slots, slot
        ):
            clear_others(tables, slots, row)
        mark_valid(slots, slot, slots.counts[slots.table[slot, SCOPE_OF]])
    return OK


@inlined
def end_message(tables: ProtobufReadTables, slots: Slots, frames: Int64Table, depth: int) -> int:
    """A message has been read; if it is an item or an entry, that is complete."""
    scope = frames[depth, SCOPE]
    if scope < 0:
        return OK
    if frames[depth, IS_DROPPED] != 0:
        cut_back(tables, slots, scope, slots.counts[scope])
        return OK
    fault = end_value(tables, slots, scope)
    if fault == OK:
        slots.sizes[tables.scopes[scope, ops.PARENT_LIST]] += 1
    return fault


@inlined
def fits(tables: ProtobufReadTables, row: int, wire: int) -> bool:
    """Whether a field has a wire type that it may have; if not it counts as unknown."""
    if wire == tables.fields[row, ops.WIRE]:
        return True
    return (
        wire == ops.SIZED
        and tables.fields[row, ops.SCOPE] >= 0
        and tables.fields[row, ops.OP] <= ops.PACKABLE_LAST
    )


@inlined
def put_value(
    tables: ProtobufReadTables,
    slots: Slots,
    row: int,
    wire: int,
    source: ConstBytes,
    position: int,
    end: int,
    state: Int64s,
) -> tuple[int, int, bool]:
    """A value that is no message: a fault, the position after it, whether it is unknown.

    A member of a oneof clears the others, once it is known that it is set.
    """
    slot = tables.fields[row, ops.SLOT]
    is_member = tables.fields[row, ops.CLEAR_FROM] < tables.fields[row, ops.CLEAR_TO]
    clears = is_member and (slot < 0 or not is_set(slots, slot))
    is_unknown = False
    if tables.fields[row, ops.OP] <= ops.PACKABLE_LAST:
        fault, after, is_unknown = put_numbers(
            tables, slots, row, wire, source, position, end, state
        )
    else:
        fault, after = put_content(tables, slots, row, source, position, end, state)
    if clears and fault == OK and not is_unknown:
        clear_others(tables, slots, row)
    return fault, after, is_unknown


@inlined
def run_row(
    source: ConstBytes,
    position: int,
    end: int,
    tables: ProtobufReadTables,
    slots: Slots,
    frames: Int64Table,
    groups: Int64s,
    state: Int64s,
) -> tuple[int, int]:
    """One payload: a fault, and where."""
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
            fault, tag, after = read_tag(source, position, limit)
            if fault != OK:
                return fault, position
            wire, number = tag & 7, tag >> 3
        if wire == ops.GROUP_END:
            if frames[depth, GROUP] != number:
                return BAD_GROUP, position
            if depth == 0:
                return OK, position
            fault = end_message(tables, slots, frames, depth)
            if fault != OK:
                return fault, position
            depth -= 1
            position = after
            continue
        node = frames[depth, NODE]
        row = find_field(tables, node, number)
        is_unknown = row < 0 or not fits(tables, row, wire)
        op = ops.SKIP if is_unknown else tables.fields[row, ops.OP]
        if op < ops.MESSAGE:
            fault, after, is_unknown = put_value(
                tables, slots, row, wire, source, after, limit, state
            )
        elif op == ops.SKIP:
            fault, after = skip(source, after, limit, number << 3 | wire, depth, groups)
            if fault == OK and not is_unknown:
                clear_others(tables, slots, row)
        else:
            size: Any = limit - after
            if op == ops.MESSAGE:
                fault, size, after = read_length(source, after, limit)
                number = 0
            if fault == OK:
                depth += 1
                if depth > ops.DEPTH_MAX:
                    return NESTING, position
                frames[depth, END] = after + size
                frames[depth, GROUP] = number
                fault = begin_message(tables, slots, row, frames, depth, state)
        if fault != OK:
            return fault, position
        if is_unknown and tables.nodes[node, ops.IS_ENTRY] != 0:
            frames[depth, IS_DROPPED] = 1  # an entry with anything unknown in it is unknown itself
        position = after


@kernel
def decode_rows(
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    tables: ProtobufReadTables,
    slots: Slots,
    frames: Int64Table,
    groups: Int64s,
    faults: Bytes,
    fault_positions: Int64s,
    state: Int64s,
) -> int:
    """Rows from NEXT_ROW to END_ROW; OUTPUT_FULL if a slot was full at NEXT_ROW, else OK.

    The first scope has capacity for all rows from the start, so an invalid row always fits.
    """
    for row in range(state[NEXT_ROW], state[END_ROW]):
        start, end = starts[row], ends[row]
        state[ITEM_COUNT] = 0
        if end - start > state[VALUE_BYTES_MAX]:
            fault, position = TOO_LARGE, start
        else:
            fault, position = run_row(source, start, end, tables, slots, frames, groups, state)
        if fault == OK:
            fault = end_value(tables, slots, 0)
        if fault != OK:
            cut_back(tables, slots, 0, row)
            if fault == OUTPUT_FULL:
                state[NEXT_ROW] = row
                return OUTPUT_FULL
            end_value(tables, slots, 0)
            fault_positions[row] = position - start
        faults[row] = fault
    state[NEXT_ROW] = state[END_ROW]
    return OK
