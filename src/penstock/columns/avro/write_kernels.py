"""The encoding kernel: runs a program over the rows of Arrow arrays.

A row is all or nothing: when something is wrong with it, nothing of it is in the output. When the
output is full the kernel returns, to be called again from that row with more room.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro import write_program as ops
from penstock.columns.avro.read_primitives import NOTHING
from penstock.columns.avro.read_program import NEEDS_ROOM, OP, SLOT, A, B, C, Wrong
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    kernel,
)
from penstock.columns.vm.arrow_arena import BYTES_AT, VALUES_AT, Inputs, is_null
from penstock.columns.vm.python_objects import is_text, is_uuid

NULL: Final = int(Wrong.NULL)
UTF8: Final = int(Wrong.UTF8)
UNKNOWN_SYMBOL: Final = int(Wrong.SYMBOL)
MEMBERS: Final = int(Wrong.MEMBERS)
DECIMAL_RANGE: Final = int(Wrong.DECIMAL_RANGE)
TIME_RANGE: Final = int(Wrong.TIME_RANGE)
NO_UUID: Final = int(Wrong.UUID)
NESTING: Final = int(Wrong.NESTING)
_VARINT_BYTES_MAX: Final = 10


class Tables(NamedTuple):
    """What instructions refer to."""

    members: Int64Table
    symbols: Int64Table
    pool: ConstBytes


@inlined
def write_varint(output: Bytes, position: int, value: Any) -> int:
    """A zigzag number; the caller has seen to room for ten bytes. The position after it."""
    number = np.int64(value)
    raw = np.uint64((number << 1) ^ (number >> 63))
    while raw >= np.uint64(0x80):
        output[position] = (raw & np.uint64(0x7F)) | np.uint64(0x80)
        raw >>= np.uint64(7)
        position += 1
    output[position] = raw
    return position + 1


@inlined
def find_symbol(
    inputs: Inputs, start: int, size: int, tables: Tables, first: int, count: int
) -> int:
    """The index of a symbol, -1 if the enum has none such."""
    for index in range(count):
        if tables.symbols[first + index, 1] != size:
            continue
        place = tables.symbols[first + index, 0]
        same = True
        for byte in range(size):
            if tables.pool[place + byte] != inputs.bytes[start + byte]:
                same = False
                break
        if same:
            return index
    return -1


@inlined
def write_decimal(
    inputs: Inputs, start: int, width: int, size: int, output: Bytes, position: int
) -> int:
    """A little-endian number as a big-endian one of `size` bytes; the position after it."""
    sign = 0xFF if inputs.bytes[start + width - 1] >= 0x80 else 0
    for index in range(size):
        byte = size - 1 - index
        output[position + index] = inputs.bytes[start + byte] if byte < width else sign
    return position + size


@inlined
def decimal_size(inputs: Inputs, start: int, width: int) -> int:
    """The fewest bytes that hold the number with its sign."""
    sign = 0xFF if inputs.bytes[start + width - 1] >= 0x80 else 0
    size = width
    while size > 1 and inputs.bytes[start + size - 1] == sign:
        if (inputs.bytes[start + size - 2] >= 0x80) != (sign != 0):
            break
        size -= 1
    return size


@inlined
def write_scalar(
    inputs: Inputs, code: Int64Table, pc: int, tables: Tables, at: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A value without parts: what is wrong, and the position after it."""
    op, source = code[pc, OP], code[pc, SLOT]
    if is_null(inputs, source, at):
        return NULL, position
    if position + _VARINT_BYTES_MAX > len(output):
        return NEEDS_ROOM, position
    values_at = inputs.table[source, VALUES_AT]
    if op == ops.LONG:
        return NOTHING, write_varint(output, position, inputs.longs[(values_at >> 3) + at])
    if op == ops.INT:
        return NOTHING, write_varint(output, position, inputs.ints[(values_at >> 2) + at])
    if op == ops.TIME:
        is_int = code[pc, C] == 4
        value = np.int64(0)
        if is_int:
            value = np.int64(inputs.ints[(values_at >> 2) + at])
        else:
            value = inputs.longs[(values_at >> 3) + at]
        if value < code[pc, A] or value > code[pc, B]:
            return TIME_RANGE, position
        return NOTHING, write_varint(output, position, value)
    width = code[pc, A]
    if op == ops.RAW:
        if position + width > len(output):
            return NEEDS_ROOM, position
        copy_bytes(output, position, inputs.bytes, values_at + at * width, width)
        return NOTHING, position + width
    start = values_at + at * width
    if op == ops.DECIMAL:
        size = decimal_size(inputs, start, width)
        if position + _VARINT_BYTES_MAX + size > len(output):
            return NEEDS_ROOM, position
        position = write_varint(output, position, size)
        return NOTHING, write_decimal(inputs, start, width, size, output, position)
    if op == ops.FIXED_DECIMAL:
        size = code[pc, B]
        if decimal_size(inputs, start, width) > size:
            return DECIMAL_RANGE, position
        if position + size > len(output):
            return NEEDS_ROOM, position
        return NOTHING, write_decimal(inputs, start, width, size, output, position)
    start = inputs.ints[(values_at >> 2) + at] + inputs.table[source, BYTES_AT]
    size = inputs.ints[(values_at >> 2) + at + 1] + inputs.table[source, BYTES_AT] - start
    if op == ops.ENUM:
        symbol = find_symbol(inputs, start, size, tables, code[pc, A], code[pc, B])
        if symbol < 0:
            return UNKNOWN_SYMBOL, position
        return NOTHING, write_varint(output, position, symbol)
    if op == ops.TEXT and not is_text(inputs.bytes, start, start + size):
        return UTF8, position
    if op == ops.TEXT and code[pc, A] == 1 and not is_uuid(inputs.bytes, start, size):
        return NO_UUID, position
    if position + _VARINT_BYTES_MAX + size > len(output):
        return NEEDS_ROOM, position
    position = write_varint(output, position, size)
    copy_bytes(output, position, inputs.bytes, start, size)
    return NOTHING, position + size


@inlined
def choose_member(
    inputs: Inputs, code: Int64Table, pc: int, tables: Tables, at: int
) -> tuple[int, int]:
    """The row of the one member of a union that is set: what is wrong, and the row."""
    chosen = -1
    for member in range(code[pc, A], code[pc, A] + code[pc, B]):
        if not is_null(inputs, tables.members[member, ops.MEMBER_INPUT], at):
            if chosen >= 0:
                return MEMBERS, 0
            chosen = member
    return (NOTHING, chosen) if chosen >= 0 else (MEMBERS, 0)


@inlined
def run_row(
    inputs: Inputs,
    row: int,
    code: Int64Table,
    tables: Tables,
    stack: Int64s,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """One row through the program: what is wrong, and the position after it."""
    pc = 0
    depth = 0
    at: Any = row
    while True:
        op, source = code[pc, OP], code[pc, SLOT]
        if op <= ops.ENUM:
            wrong, position = write_scalar(inputs, code, pc, tables, at, output, position)
            if wrong != NOTHING:
                return wrong, position
        elif op == ops.END:
            return NOTHING, position
        elif op == ops.JUMP:
            pc = code[pc, A] - 1
        elif op == ops.REQUIRED:
            if is_null(inputs, source, at):
                return NULL, position
        elif position + _VARINT_BYTES_MAX > len(output):
            return NEEDS_ROOM, position
        elif op == ops.NULLABLE:
            if is_null(inputs, source, at):
                position = write_varint(output, position, code[pc, A])
                pc = code[pc, B] - 1
            else:
                position = write_varint(output, position, 1 - code[pc, A])
        elif op == ops.LIST_BEGIN:
            if is_null(inputs, source, at):
                return NULL, position
            place = (inputs.table[source, VALUES_AT] >> 2) + at
            start, end = np.int64(inputs.ints[place]), np.int64(inputs.ints[place + 1])
            if start < end:
                if depth + 2 > len(stack):
                    return NESTING, position
                stack[depth] = at
                stack[depth + 1] = end
                depth += 2
                at = start
                position = write_varint(output, position, end - start)
            else:
                position = write_varint(output, position, 0)
                pc = code[pc, A]
        elif op == ops.LIST_NEXT:
            at += 1
            if at < stack[depth - 1]:
                pc = code[pc, A] - 1
            else:
                position = write_varint(output, position, 0)
                depth -= 2
                at = stack[depth]
        else:  # UNION
            if is_null(inputs, source, at):
                if code[pc, C] < 0:
                    return NULL, position
                position = write_varint(output, position, code[pc, C])
                pc = tables.members[code[pc, A] + code[pc, B], ops.MEMBER_PLACE] - 1
            else:
                wrong, member = choose_member(inputs, code, pc, tables, at)
                if wrong != NOTHING:
                    return wrong, position
                branch = tables.members[member, ops.MEMBER_BRANCH]
                position = write_varint(output, position, branch)
                pc = tables.members[member, ops.MEMBER_PLACE] - 1
        pc += 1


@kernel
def encode_rows(
    inputs: Inputs,
    code: Int64Table,
    tables: Tables,
    prefix: ConstBytes,
    output: Bytes,
    offsets: Int64s,
    stack: Int64s,
    errors: Bytes,
    start_row: int,
    end_row: int,
) -> int:
    """Rows from start_row to end_row, each after the prefix; the first row that had no room."""
    for row in range(start_row, end_row):
        position = offsets[row]
        if position + len(prefix) > len(output):
            return row
        copy_bytes(output, position, prefix, 0, len(prefix))
        wrong, end = run_row(inputs, row, code, tables, stack, output, position + len(prefix))
        if wrong == NEEDS_ROOM:
            return row
        errors[row] = wrong
        offsets[row + 1] = end if wrong == NOTHING else position
    return end_row
