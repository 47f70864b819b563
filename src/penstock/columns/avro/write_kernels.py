"""The kernel that encodes Avro: runs a program over the rows of Arrow arrays.

A row is all or nothing: nothing of an invalid one is in the output. When the output is full the
kernel returns, to be called again from that row with a larger one.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro import write_program as ops
from penstock.columns.avro.read_program import OP, SLOT, A, AvroFault, B, C
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    kernel,
)
from penstock.columns.vm.arrow_inputs import BYTES_AT, VALUES_AT, Inputs, is_null
from penstock.columns.vm.slots import OK, OUTPUT_FULL
from penstock.columns.vm.text import is_text, is_uuid

NULL: Final = int(AvroFault.NULL)
UTF8: Final = int(AvroFault.UTF8)
UNKNOWN_SYMBOL: Final = int(AvroFault.SYMBOL)
MEMBERS: Final = int(AvroFault.MEMBERS)
DECIMAL_RANGE: Final = int(AvroFault.DECIMAL_RANGE)
TIME_RANGE: Final = int(AvroFault.TIME_RANGE)
BAD_UUID: Final = int(AvroFault.UUID)
NESTING: Final = int(AvroFault.NESTING)
_VARINT_BYTES_MAX: Final = 10


class AvroWriteTables(NamedTuple):
    """What instructions refer to."""

    members: Int64Table
    symbols: Int64Table
    pool: ConstBytes


@inlined
def write_varint(output: Bytes, position: int, value: Int64) -> int:
    """A zigzag number; the caller has checked for ten bytes. The position after it."""
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
    inputs: Inputs, start: int, size: int, tables: AvroWriteTables, first: int, count: int
) -> int:
    """The index of a symbol, -1 if the enum does not have it."""
    for index in range(count):
        if tables.symbols[first + index, 1] != size:
            continue
        start_in_pool = tables.symbols[first + index, 0]
        same = True
        for byte in range(size):
            if tables.pool[start_in_pool + byte] != inputs.bytes[start + byte]:
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
    inputs: Inputs,
    code: Int64Table,
    pc: int,
    tables: AvroWriteTables,
    at: int,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """A value without parts: a fault, and the position after it."""
    op, source = code[pc, OP], code[pc, SLOT]
    if is_null(inputs, source, at):
        return NULL, position
    if position + _VARINT_BYTES_MAX > len(output):
        return OUTPUT_FULL, position
    values_at = inputs.table[source, VALUES_AT]
    if op == ops.LONG:
        return OK, write_varint(output, position, inputs.longs[(values_at >> 3) + at])
    if op == ops.INT:
        return OK, write_varint(output, position, inputs.ints[(values_at >> 2) + at])
    if op == ops.TIME:
        is_int = code[pc, C] == 4
        value = np.int64(0)
        if is_int:
            value = np.int64(inputs.ints[(values_at >> 2) + at])
        else:
            value = inputs.longs[(values_at >> 3) + at]
        if value < code[pc, A] or value > code[pc, B]:
            return TIME_RANGE, position
        return OK, write_varint(output, position, value)
    width = code[pc, A]
    if op == ops.RAW:
        if position + width > len(output):
            return OUTPUT_FULL, position
        copy_bytes(output, position, inputs.bytes, values_at + at * width, width)
        return OK, position + width
    start = values_at + at * width
    if op == ops.DECIMAL:
        size = decimal_size(inputs, start, width)
        if position + _VARINT_BYTES_MAX + size > len(output):
            return OUTPUT_FULL, position
        position = write_varint(output, position, size)
        return OK, write_decimal(inputs, start, width, size, output, position)
    if op == ops.FIXED_DECIMAL:
        size = code[pc, B]
        if decimal_size(inputs, start, width) > size:
            return DECIMAL_RANGE, position
        if position + size > len(output):
            return OUTPUT_FULL, position
        return OK, write_decimal(inputs, start, width, size, output, position)
    start = inputs.ints[(values_at >> 2) + at] + inputs.table[source, BYTES_AT]
    size = inputs.ints[(values_at >> 2) + at + 1] + inputs.table[source, BYTES_AT] - start
    if op == ops.ENUM:
        symbol = find_symbol(inputs, start, size, tables, code[pc, A], code[pc, B])
        if symbol < 0:
            return UNKNOWN_SYMBOL, position
        return OK, write_varint(output, position, symbol)
    if op == ops.TEXT and not is_text(inputs.bytes, start, start + size):
        return UTF8, position
    if op == ops.TEXT and code[pc, A] == 1 and not is_uuid(inputs.bytes, start, size):
        return BAD_UUID, position
    if position + _VARINT_BYTES_MAX + size > len(output):
        return OUTPUT_FULL, position
    position = write_varint(output, position, size)
    copy_bytes(output, position, inputs.bytes, start, size)
    return OK, position + size


@inlined
def choose_member(
    inputs: Inputs, code: Int64Table, pc: int, tables: AvroWriteTables, at: int
) -> tuple[int, int]:
    """The row of the one member of a union that is set: a fault, and the row."""
    chosen = -1
    for member in range(code[pc, A], code[pc, A] + code[pc, B]):
        if not is_null(inputs, tables.members[member, ops.MEMBER_INPUT], at):
            if chosen >= 0:
                return MEMBERS, 0
            chosen = member
    return (OK, chosen) if chosen >= 0 else (MEMBERS, 0)


@inlined
def run_row(
    inputs: Inputs,
    row: int,
    code: Int64Table,
    tables: AvroWriteTables,
    stack: Int64s,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """One row through the program: a fault, and the position after it."""
    pc = 0
    depth = 0
    at: Any = row
    while True:
        op, source = code[pc, OP], code[pc, SLOT]
        if op <= ops.ENUM:
            fault, position = write_scalar(inputs, code, pc, tables, at, output, position)
            if fault != OK:
                return fault, position
        elif op == ops.END:
            return OK, position
        elif op == ops.JUMP:
            pc = code[pc, A] - 1
        elif op == ops.REQUIRED:
            if is_null(inputs, source, at):
                return NULL, position
        elif position + _VARINT_BYTES_MAX > len(output):
            return OUTPUT_FULL, position
        elif op == ops.NULLABLE:
            if is_null(inputs, source, at):
                position = write_varint(output, position, code[pc, A])
                pc = code[pc, B] - 1
            else:
                position = write_varint(output, position, 1 - code[pc, A])
        elif op == ops.LIST_BEGIN:
            if is_null(inputs, source, at):
                return NULL, position
            first = (inputs.table[source, VALUES_AT] >> 2) + at
            start, end = np.int64(inputs.ints[first]), np.int64(inputs.ints[first + 1])
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
                pc = tables.members[code[pc, A] + code[pc, B], ops.MEMBER_CODE] - 1
            else:
                fault, member = choose_member(inputs, code, pc, tables, at)
                if fault != OK:
                    return fault, position
                branch = tables.members[member, ops.MEMBER_BRANCH]
                position = write_varint(output, position, branch)
                pc = tables.members[member, ops.MEMBER_CODE] - 1
        pc += 1


@kernel
def encode_rows(
    inputs: Inputs,
    code: Int64Table,
    tables: AvroWriteTables,
    prefix: ConstBytes,
    output: Bytes,
    offsets: Int64s,
    stack: Int64s,
    faults: Bytes,
    start_row: int,
    end_row: int,
) -> int:
    """Rows from start_row to end_row, each after the prefix; the first row that did not fit."""
    for row in range(start_row, end_row):
        position = offsets[row]
        if position + len(prefix) > len(output):
            return row
        copy_bytes(output, position, prefix, 0, len(prefix))
        fault, end = run_row(inputs, row, code, tables, stack, output, position + len(prefix))
        if fault == OUTPUT_FULL:
            return row
        faults[row] = fault
        offsets[row + 1] = end if fault == OK else position
    return end_row
