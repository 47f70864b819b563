"""The decoding kernel: runs a program over many payloads. It trusts no byte of them.

A row is all or nothing: when something is wrong with it, the slots are set back to where they were
and get a null for it, and its neighbours never know. When a slot is full, the row is set back as
well and the kernel returns, to be called again from that row with more room.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro import read_program as ops
from penstock.columns.avro.read_primitives import (
    DECIMAL_RANGE,
    NOTHING,
    TRUNCATED,
    VALUES_AT,
    Slots,
    add,
    add_decimal,
    add_double,
    add_fixed,
    add_float,
    add_int,
    add_list,
    add_long,
    add_nulls,
    add_rescaled,
    add_sized,
    read_varint,
)
from penstock.columns.avro.read_program import OP, SLOT, A, B, C, D, Wrong
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    kernel,
)
from penstock.columns.vm.python_objects import is_text, is_uuid

NEEDS_ROOM: Final = ops.NEEDS_ROOM
TRAILING: Final = int(Wrong.TRAILING)
INT_RANGE: Final = int(Wrong.INT_RANGE)
LENGTH: Final = int(Wrong.LENGTH)
UTF8: Final = int(Wrong.UTF8)
ROTTEN_BOOLEAN: Final = int(Wrong.BOOLEAN)
NO_BRANCH: Final = int(Wrong.UNION)
NO_SYMBOL: Final = int(Wrong.ENUM)
UNKNOWN_SYMBOL: Final = int(Wrong.SYMBOL)
UNRESOLVABLE: Final = int(Wrong.UNRESOLVABLE)
NO_UUID: Final = int(Wrong.UUID)
TIME_RANGE: Final = int(Wrong.TIME_RANGE)
ITEMS: Final = int(Wrong.ITEMS)
NESTING: Final = int(Wrong.NESTING)
TOO_LARGE: Final = int(Wrong.TOO_LARGE)

# what decode_rows is told: which rows (it moves NEXT_ROW on), and the limits of a payload
NEXT_ROW, END_ROW, VALUE_BYTES_MAX, ITEMS_MAX, NESTING_MAX = range(5)
STATE_FIELDS: Final = 5


class Tables(NamedTuple):
    """What instructions refer to."""

    jumps: Int64s
    symbols: Int64Table
    pool: ConstBytes
    aligned: Int64s
    row_start: int  # the stretch of `aligned` with the slots that have a value per row
    row_end: int


_INT_MAX: Final = 2**31 - 1
_INT_MIN: Final = -(2**31)
_LONG_MAX: Final = 2**63 - 1


@inlined
def add_number(slots: Slots, code: Int64Table, pc: int, op: int, slot: int, value: Any) -> int:
    """A varint that is a number, into a slot of the type the reader wants."""
    if op == ops.LONG:
        return add_long(slots, slot, value)
    if op == ops.INT:
        if value < code[pc, A] or value > code[pc, B]:
            return INT_RANGE
        return add_int(slots, slot, value)
    if op == ops.TIME:
        if value < 0 or value >= code[pc, A]:
            return TIME_RANGE
        if code[pc, B] == 4:
            return add_int(slots, slot, value)
        return add_long(slots, slot, value * code[pc, C])
    if op == ops.SCALED:
        factor, divisor = code[pc, C], code[pc, D]
        if value < code[pc, A] or value > code[pc, B]:
            return INT_RANGE if factor == divisor else UNRESOLVABLE
        return add_long(slots, slot, (value * factor) // divisor)
    if code[pc, A] == 1 and (value > _INT_MAX or value < _INT_MIN):
        return INT_RANGE
    if op == ops.TO_FLOAT:
        return add_float(slots, slot, np.float32(value))
    return add_double(slots, slot, np.float64(value))


@inlined
def add_length(
    slots: Slots,
    code: Int64Table,
    pc: int,
    slot: int,
    source: ConstBytes,
    position: int,
    size: int,
    end: int,
) -> int:
    """Bytes whose length was read; the caller steps over them when nothing is wrong."""
    if size < 0:
        return LENGTH
    if size > end - position:
        return TRUNCATED
    op = code[pc, OP]
    if op == ops.STRING:
        if not is_text(source, position, position + size):
            return UTF8
        if code[pc, A] == 1 and not is_uuid(source, position, size):
            return NO_UUID
        return add_sized(slots, slot, source, position, size)
    if op == ops.BYTES:
        return add_sized(slots, slot, source, position, size)
    if op == ops.DECIMAL:
        return put_decimal(slots, code, pc, slot, source, position, size)
    return NOTHING


@inlined
def put_decimal(
    slots: Slots, code: Int64Table, pc: int, slot: int, source: ConstBytes, position: int, size: int
) -> int:
    """A decimal in the reader's scale and precision."""
    precision = code[pc, B] & ops.PRECISION_MASK
    if code[pc, D] == 0:
        wrong = add_decimal(slots, slot, source, position, size, code[pc, A], precision)
    else:
        wrong = add_rescaled(
            slots, slot, source, position, size, code[pc, A], precision, code[pc, D]
        )
    return code[pc, B] >> ops.WRONG_SHIFT if wrong == DECIMAL_RANGE else wrong


@inlined
def add_plain(
    slots: Slots,
    code: Int64Table,
    pc: int,
    op: int,
    slot: int,
    source: ConstBytes,
    position: int,
    end: int,
) -> tuple[int, int]:
    """A value of a size known beforehand: what is wrong, and the position after it."""
    size = code[pc, A]
    if op == ops.BOOLEAN:
        size = 1
    elif op == ops.FLOAT or op == ops.FLOAT_TO_DOUBLE:
        size = 4
    elif op == ops.DOUBLE:
        size = 8
    elif op == ops.FIXED_DECIMAL:
        size = code[pc, C]
    if size > end - position:
        return TRUNCATED, position
    after = position + size
    if op == ops.SKIP_FIXED:
        is_rotten = code[pc, B] == 1 and source[position] > 1
        return (ROTTEN_BOOLEAN if is_rotten else NOTHING), after
    if op == ops.FIXED_DECIMAL:
        return put_decimal(slots, code, pc, slot, source, position, size), after
    if op == ops.BOOLEAN and source[position] > 1:
        return ROTTEN_BOOLEAN, position
    if op == ops.FIXED or op == ops.BOOLEAN:
        return add_fixed(slots, slot, source, position), after
    place = add(slots, slot)
    if place < 0:
        return NEEDS_ROOM, position
    at = slots.table[slot, VALUES_AT]
    if op == ops.FLOAT:
        copy_bytes(slots.bytes, at + place * 4, source, position, 4)
    elif op == ops.DOUBLE:
        copy_bytes(slots.bytes, at + place * 8, source, position, 8)
    else:  # the float is put where half of the double will be, and widened from there
        at += place * 8
        copy_bytes(slots.bytes, at, source, position, 4)
        slots.doubles[at >> 3] = np.float64(slots.floats[at >> 2])
    return NOTHING, after


@inlined
def add_constant(slots: Slots, code: Int64Table, pc: int, tables: Tables) -> int:
    """What is put without anything being read."""
    op = code[pc, OP]
    slot = code[pc, SLOT]
    if op == ops.NULLS:
        return add_nulls(slots, tables.aligned, code[pc, C], code[pc, D])
    if op == ops.VALID:
        return NOTHING if add(slots, slot) >= 0 else NEEDS_ROOM
    if op == ops.CONSTANT:
        return add_fixed(slots, slot, tables.pool, code[pc, A])
    if op == ops.CONSTANT_SIZED:
        return add_sized(slots, slot, tables.pool, code[pc, A], code[pc, B])
    slots.sizes[slot] += code[pc, A]
    return add_list(slots, slot)


@inlined
def read_count(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """The item count of a block: what is wrong, the count, and the position of its first item.

    A negative count is followed by the size of the block in bytes, for those who skip it. Here
    every item is walked, wanted or not, so that a wrong one is found whoever reads.
    """
    wrong, count, after = read_varint(source, position, end)
    if wrong != NOTHING:
        return wrong, count, position
    if count < 0:
        if count < -_LONG_MAX:
            return LENGTH, count, position
        count = -count
        wrong, _, after = read_varint(source, after, end)
        if wrong != NOTHING:
            return wrong, count, position
    return NOTHING, count, after


@inlined
def run_row(
    source: ConstBytes,
    position: int,
    end: int,
    code: Int64Table,
    tables: Tables,
    slots: Slots,
    stack: Int64s,
    state: Int64s,
) -> tuple[int, int]:
    """One payload through the program: what is wrong, and where."""
    pc = 0
    depth = 0
    items = 0
    levels = 0
    while True:
        op = code[pc, OP]
        slot = code[pc, SLOT]
        if op <= ops.VARINT_LAST:
            wrong, value, after = read_varint(source, position, end)
            if wrong != NOTHING:
                return wrong, position
            if op <= ops.SIZED_LAST:
                wrong = add_length(slots, code, pc, slot, source, after, value, end)
                if wrong != NOTHING:
                    return wrong, position
                after += value
            elif op == ops.NULLABLE:
                if value == code[pc, A]:
                    if add_nulls(slots, tables.aligned, code[pc, C], code[pc, D]) != NOTHING:
                        return NEEDS_ROOM, position
                    pc = code[pc, B] - 1
                elif value != 1 - code[pc, A]:
                    return NO_BRANCH, position
            elif op == ops.ENUM:
                if value < 0 or value >= code[pc, B]:
                    return NO_SYMBOL, position
                symbol = code[pc, A] + value
                at, size = tables.symbols[symbol, 0], tables.symbols[symbol, 1]
                if at < 0:
                    return UNKNOWN_SYMBOL, position
                if add_sized(slots, slot, tables.pool, at, size) != NOTHING:
                    return NEEDS_ROOM, position
            elif op == ops.UNION:
                if value < 0 or value >= code[pc, B]:
                    return NO_BRANCH, position
                pc = tables.jumps[code[pc, A] + value] - 1
            elif op == ops.SKIP_VARINT:
                if value < code[pc, A] or value > code[pc, B]:
                    return code[pc, C], position
            else:
                wrong = add_number(slots, code, pc, op, slot, value)
                if wrong != NOTHING:
                    return wrong, position
            position = after
        elif op == ops.LIST_NEXT:
            if stack[depth - 1] == 0:
                wrong, count, position = read_count(source, position, end)
                if wrong != NOTHING:
                    return wrong, position
                items += count
                if items > state[ITEMS_MAX]:
                    return ITEMS, position
                if code[pc, B] != 0 and count > (end - position) // code[pc, B]:
                    return TRUNCATED, position
                stack[depth - 1] = count
            if stack[depth - 1] > 0:
                stack[depth - 1] -= 1
                if slot >= 0:
                    slots.sizes[slot] += 1
                pc = code[pc, A] - 1
            else:
                depth -= 1
                levels -= 1
                if slot >= 0 and add_list(slots, slot) != NOTHING:
                    return NEEDS_ROOM, position
        elif op == ops.LIST_BEGIN or op == ops.CALL:
            levels += 1 if op == ops.LIST_BEGIN else code[pc, B]
            if depth == len(stack) or levels > state[NESTING_MAX]:
                return NESTING, position
            stack[depth] = 0 if op == ops.LIST_BEGIN else pc
            depth += 1
            pc = code[pc, A] - 1
        elif op <= ops.SKIP_FIXED:
            wrong, position = add_plain(slots, code, pc, op, slot, source, position, end)
            if wrong != NOTHING:
                return wrong, position
        elif op == ops.END:
            return (TRAILING if position < end else NOTHING), position
        elif op == ops.JUMP:
            pc = code[pc, A] - 1
        elif op == ops.RETURN:
            depth -= 1
            levels -= code[pc, A]
            pc = stack[depth]
        elif op == ops.FAIL:
            return code[pc, A], position
        else:
            wrong = add_constant(slots, code, pc, tables)
            if wrong != NOTHING:
                return wrong, position
        pc += 1


@kernel
def decode_rows(
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    code: Int64Table,
    tables: Tables,
    slots: Slots,
    marks: Int64Table,
    stack: Int64s,
    errors: Bytes,
    error_places: Int64s,
    state: Int64s,
) -> int:
    """Rows from NEXT_ROW to END_ROW; NEEDS_ROOM if a slot was full at NEXT_ROW, else 0.

    Slots have room for the nulls of all rows from the beginning, so a wrong row can always be put.
    """
    slot_count = len(slots.counts)
    for row in range(state[NEXT_ROW], state[END_ROW]):
        for slot in range(slot_count):
            marks[0, slot] = slots.counts[slot]
            marks[1, slot] = slots.sizes[slot]
        start, end = starts[row], ends[row]
        if end - start > state[VALUE_BYTES_MAX]:
            wrong, position = TOO_LARGE, start
        else:
            wrong, position = run_row(source, start, end, code, tables, slots, stack, state)
        if wrong != NOTHING:
            for slot in range(slot_count):
                slots.counts[slot] = marks[0, slot]
                slots.sizes[slot] = marks[1, slot]
            if wrong == NEEDS_ROOM:
                state[NEXT_ROW] = row
                return NEEDS_ROOM
            add_nulls(slots, tables.aligned, tables.row_start, tables.row_end)
            error_places[row] = position - start
        errors[row] = wrong
    state[NEXT_ROW] = state[END_ROW]
    return NOTHING
