"""The kernel that decodes Avro: runs a program over many payloads. It trusts no byte of them.

A row is all or nothing: an invalid one is taken back out of the slots and becomes a null, and the
other rows are not affected. When a slot is full, the row is taken back as well and the kernel
returns, to be called again from that row with larger slots.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro import read_program as ops
from penstock.columns.avro.read_primitives import (
    DECIMAL_RANGE,
    TRUNCATED,
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
from penstock.columns.avro.read_program import OP, SLOT, A, AvroFault, B, C, D
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    kernel,
)
from penstock.columns.vm.slots import (
    END_ROW,
    ITEMS_MAX,
    NESTING_MAX,
    NEXT_ROW,
    OK,
    OUTPUT_FULL,
    VALUE_BYTES_MAX,
    VALUES_AT,
    Slots,
)
from penstock.columns.vm.text import is_text, is_uuid

TRAILING: Final = int(AvroFault.TRAILING)
INT_RANGE: Final = int(AvroFault.INT_RANGE)
LENGTH: Final = int(AvroFault.LENGTH)
UTF8: Final = int(AvroFault.UTF8)
BAD_BOOLEAN: Final = int(AvroFault.BOOLEAN)
NO_BRANCH: Final = int(AvroFault.UNION)
NO_SYMBOL: Final = int(AvroFault.ENUM)
UNKNOWN_SYMBOL: Final = int(AvroFault.SYMBOL)
UNRESOLVABLE: Final = int(AvroFault.UNRESOLVABLE)
BAD_UUID: Final = int(AvroFault.UUID)
TIME_RANGE: Final = int(AvroFault.TIME_RANGE)
ITEMS: Final = int(AvroFault.ITEMS)
NESTING: Final = int(AvroFault.NESTING)
TOO_LARGE: Final = int(AvroFault.TOO_LARGE)


class AvroReadTables(NamedTuple):
    """What instructions refer to."""

    jumps: Int64s
    symbols: Int64Table
    pool: ConstBytes
    slot_lists: Int64s
    row_slots: Int64s  # those with a value per row


_INT_MAX: Final = 2**31 - 1
_INT_MIN: Final = -(2**31)
_LONG_MAX: Final = 2**63 - 1


@inlined
def add_number(slots: Slots, code: Int64Table, pc: int, op: int, slot: int, value: Any) -> int:
    """A varint that is a number, into a slot of the reader's type."""
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
    """Bytes whose length was read; the caller skips them if there is no fault."""
    if size < 0:
        return LENGTH
    if size > end - position:
        return TRUNCATED
    op = code[pc, OP]
    if op == ops.STRING:
        if not is_text(source, position, position + size):
            return UTF8
        if code[pc, A] == 1 and not is_uuid(source, position, size):
            return BAD_UUID
        return add_sized(slots, slot, source, position, size)
    if op == ops.BYTES:
        return add_sized(slots, slot, source, position, size)
    if op == ops.DECIMAL:
        return put_decimal(slots, code, pc, slot, source, position, size)
    return OK


@inlined
def put_decimal(
    slots: Slots, code: Int64Table, pc: int, slot: int, source: ConstBytes, position: int, size: int
) -> int:
    """A decimal in the reader's scale and precision."""
    precision = code[pc, B] & ops.PRECISION_MASK
    if code[pc, D] == 0:
        fault = add_decimal(slots, slot, source, position, size, code[pc, A], precision)
    else:
        fault = add_rescaled(
            slots, slot, source, position, size, code[pc, A], precision, code[pc, D]
        )
    return code[pc, B] >> ops.FAULT_SHIFT if fault == DECIMAL_RANGE else fault


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
    """A value of a size known beforehand: a fault, and the position after it."""
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
        is_bad = code[pc, B] == 1 and source[position] > 1
        return (BAD_BOOLEAN if is_bad else OK), after
    if op == ops.FIXED_DECIMAL:
        return put_decimal(slots, code, pc, slot, source, position, size), after
    if op == ops.BOOLEAN and source[position] > 1:
        return BAD_BOOLEAN, position
    if op == ops.FIXED or op == ops.BOOLEAN:
        return add_fixed(slots, slot, source, position), after
    index = add(slots, slot)
    if index < 0:
        return OUTPUT_FULL, position
    at = slots.table[slot, VALUES_AT]
    if op == ops.FLOAT:
        copy_bytes(slots.bytes, at + index * 4, source, position, 4)
    elif op == ops.DOUBLE:
        copy_bytes(slots.bytes, at + index * 8, source, position, 8)
    else:  # the float is put where half of the double will be, and widened from there
        at += index * 8
        copy_bytes(slots.bytes, at, source, position, 4)
        slots.doubles[at >> 3] = np.float64(slots.floats[at >> 2])
    return OK, after


@inlined
def add_constant(slots: Slots, code: Int64Table, pc: int, tables: AvroReadTables) -> int:
    """What is put without anything being read."""
    op = code[pc, OP]
    slot = code[pc, SLOT]
    if op == ops.NULLS:
        return add_nulls(slots, tables.slot_lists, code[pc, C], code[pc, D])
    if op == ops.VALID:
        return OK if add(slots, slot) >= 0 else OUTPUT_FULL
    if op == ops.CONSTANT:
        return add_fixed(slots, slot, tables.pool, code[pc, A])
    if op == ops.CONSTANT_SIZED:
        return add_sized(slots, slot, tables.pool, code[pc, A], code[pc, B])
    slots.sizes[slot] += code[pc, A]
    return add_list(slots, slot)


@inlined
def read_count(source: ConstBytes, position: int, end: int) -> tuple[int, Any, int]:
    """The item count of a block: a fault, the count, and the position of its first item.

    A negative count is followed by the size of the block in bytes, for skipping it. Here every item
    is read or skipped by itself: whether a payload is valid does not depend on the columns.
    """
    fault, count, after = read_varint(source, position, end)
    if fault != OK:
        return fault, count, position
    if count < 0:
        if count < -_LONG_MAX:
            return LENGTH, count, position
        count = -count
        fault, _, after = read_varint(source, after, end)
        if fault != OK:
            return fault, count, position
    return OK, count, after


@inlined
def run_row(
    source: ConstBytes,
    position: int,
    end: int,
    code: Int64Table,
    tables: AvroReadTables,
    slots: Slots,
    stack: Int64s,
    state: Int64s,
) -> tuple[int, int]:
    """One payload through the program: a fault, and where."""
    pc = 0
    depth = 0
    items = 0
    levels = 0
    while True:
        op = code[pc, OP]
        slot = code[pc, SLOT]
        if op <= ops.VARINT_LAST:
            fault, value, after = read_varint(source, position, end)
            if fault != OK:
                return fault, position
            if op <= ops.SIZED_LAST:
                fault = add_length(slots, code, pc, slot, source, after, value, end)
                if fault != OK:
                    return fault, position
                after += value
            elif op == ops.NULLABLE:
                if value == code[pc, A]:
                    if add_nulls(slots, tables.slot_lists, code[pc, C], code[pc, D]) != OK:
                        return OUTPUT_FULL, position
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
                if add_sized(slots, slot, tables.pool, at, size) != OK:
                    return OUTPUT_FULL, position
            elif op == ops.UNION:
                if value < 0 or value >= code[pc, B]:
                    return NO_BRANCH, position
                pc = tables.jumps[code[pc, A] + value] - 1
            elif op == ops.SKIP_VARINT:
                if value < code[pc, A] or value > code[pc, B]:
                    return code[pc, C], position
            else:
                fault = add_number(slots, code, pc, op, slot, value)
                if fault != OK:
                    return fault, position
            position = after
        elif op == ops.LIST_NEXT:
            if stack[depth - 1] == 0:
                fault, count, position = read_count(source, position, end)
                if fault != OK:
                    return fault, position
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
                if slot >= 0 and add_list(slots, slot) != OK:
                    return OUTPUT_FULL, position
        elif op == ops.LIST_BEGIN or op == ops.CALL:
            levels += 1 if op == ops.LIST_BEGIN else code[pc, B]
            if depth == len(stack) or levels > state[NESTING_MAX]:
                return NESTING, position
            stack[depth] = 0 if op == ops.LIST_BEGIN else pc
            depth += 1
            pc = code[pc, A] - 1
        elif op <= ops.SKIP_FIXED:
            fault, position = add_plain(slots, code, pc, op, slot, source, position, end)
            if fault != OK:
                return fault, position
        elif op == ops.END:
            return (TRAILING if position < end else OK), position
        elif op == ops.JUMP:
            pc = code[pc, A] - 1
        elif op == ops.RETURN:
            depth -= 1
            levels -= code[pc, A]
            pc = stack[depth]
        elif op == ops.FAIL:
            return code[pc, A], position
        else:
            fault = add_constant(slots, code, pc, tables)
            if fault != OK:
                return fault, position
        pc += 1


@kernel
def decode_rows(
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    code: Int64Table,
    tables: AvroReadTables,
    slots: Slots,
    marks: Int64Table,
    stack: Int64s,
    faults: Bytes,
    fault_positions: Int64s,
    state: Int64s,
) -> int:
    """Rows from NEXT_ROW to END_ROW; OUTPUT_FULL if a slot was full at NEXT_ROW, else OK.

    Slots have capacity for the nulls of all rows from the start, so an invalid row always fits.
    """
    slot_count = len(slots.counts)
    for row in range(state[NEXT_ROW], state[END_ROW]):
        for slot in range(slot_count):
            marks[0, slot] = slots.counts[slot]
            marks[1, slot] = slots.sizes[slot]
        start, end = starts[row], ends[row]
        if end - start > state[VALUE_BYTES_MAX]:
            fault, position = TOO_LARGE, start
        else:
            fault, position = run_row(source, start, end, code, tables, slots, stack, state)
        if fault != OK:
            for slot in range(slot_count):
                slots.counts[slot] = marks[0, slot]
                slots.sizes[slot] = marks[1, slot]
            if fault == OUTPUT_FULL:
                state[NEXT_ROW] = row
                return OUTPUT_FULL
            add_nulls(slots, tables.row_slots, 0, len(tables.row_slots))
            fault_positions[row] = position - start
        faults[row] = fault
    state[NEXT_ROW] = state[END_ROW]
    return OK
