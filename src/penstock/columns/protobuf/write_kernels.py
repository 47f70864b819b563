"""The kernel that encodes Protobuf: runs a program over rows of Arrow arrays, the last row first.

A row is all or nothing: nothing of an invalid one is in the output. When the output is full the
kernel returns, to be called again for that row with more capacity in front.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    UInt64,
    copy_bytes,
    inlined,
    kernel,
    outlined,
)
from penstock.columns.protobuf import write_program as ops
from penstock.columns.protobuf.read_program import ProtobufFault
from penstock.columns.protobuf.write_program import MODE, OP, SOURCE, TAG, A, B, C
from penstock.columns.vm.arrow_inputs import BYTES_AT, VALUES_AT, Inputs, is_null
from penstock.columns.vm.slots import OK, OUTPUT_FULL
from penstock.columns.vm.text import is_text

NULL: Final = int(ProtobufFault.NULL)
UTF8: Final = int(ProtobufFault.UTF8)
NO_SYMBOL: Final = int(ProtobufFault.SYMBOL)
TIME_RANGE: Final = int(ProtobufFault.TIME_RANGE)
MEMBERS: Final = int(ProtobufFault.MEMBERS)
NESTING: Final = int(ProtobufFault.NESTING)

_VALUE_BYTES_MAX: Final = 40  # what any value, its length and its tag take at most, content aside
_LIST_CELLS: Final = 3  # of the stack: the index around it, its first item, its packed end
_NANOS: Final = 1_000_000_000
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_SECONDS_MAX: Final = 315_576_000_000
_INT_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 11  # of an enum's number, with its sign
_SKIPPED: Final = -1  # no fault: there is nothing to write


class ProtobufWriteTables(NamedTuple):
    """What instructions refer to."""

    members: Int64s
    symbols: Int64Table
    pool: ConstBytes


@inlined
def put_varint(output: Bytes, position: int, value: UInt64) -> int:
    """A number of 64 bits that ends before `position`; where it starts."""
    raw = np.uint64(value)
    size = 1
    rest = raw >> np.uint64(7)
    while rest != np.uint64(0):
        size += 1
        rest >>= np.uint64(7)
    start = position - size
    for index in range(start, position - 1):
        output[index] = (raw & np.uint64(0x7F)) | np.uint64(0x80)
        raw >>= np.uint64(7)
    output[position - 1] = raw
    return start


@outlined
def find_number(
    inputs: Inputs, start: int, size: int, code: Int64Table, pc: int, tables: ProtobufWriteTables
) -> tuple[bool, Any]:
    """Whether an enum has that name or number, and its number."""
    first, last = code[pc, A], code[pc, A] + code[pc, B]
    for index in range(first, last):
        if tables.symbols[index, ops.SYMBOL_SIZE] != size:
            continue
        start_in_pool = tables.symbols[index, ops.SYMBOL_AT]
        same = True
        for byte in range(size):
            if tables.pool[start_in_pool + byte] != inputs.bytes[start + byte]:
                same = False
                break
        if same:
            return True, tables.symbols[index, ops.SYMBOL_NUMBER]
    is_negative = size > 1 and inputs.bytes[start] == ord("-")
    number = np.int64(0)
    if size == 0 or size > _DIGITS_MAX:
        return False, number
    for byte in range(start + (1 if is_negative else 0), start + size):
        digit = np.int64(inputs.bytes[byte]) - ord("0")
        if digit < 0 or digit > 9:
            return False, number
        number = number * 10 + digit
    number = -number if is_negative else number
    if number > _INT_MAX or number < -_INT_MAX - 1:
        return False, number
    if code[pc, C] == 0:
        return True, number
    for index in range(first, last):
        if tables.symbols[index, ops.SYMBOL_NUMBER] == number:
            return True, number
    return False, number


@outlined
def put_time(value: Any, op: int, per_second: int, output: Bytes, position: int) -> tuple[int, int]:
    """A Timestamp or Duration without its tag: a fault, and where it starts."""
    seconds = value // per_second
    rest = value - seconds * per_second
    if op == ops.TIMESTAMP:
        if seconds < _FIRST_SECOND or seconds > _LAST_SECOND:
            return TIME_RANGE, position
    else:
        if seconds < 0 and rest > 0:  # both parts of a Duration have the same sign
            seconds += 1
            rest -= per_second
        if seconds < -_SECONDS_MAX or seconds > _SECONDS_MAX:
            return TIME_RANGE, position
    end = position
    nanos = rest * (_NANOS // per_second)
    if nanos != 0:
        position = put_varint(output, position, np.int64(nanos))
        position = put_varint(output, position, 0x10)
    if seconds != 0:
        position = put_varint(output, position, np.int64(seconds))
        position = put_varint(output, position, 0x08)
    return OK, put_varint(output, position, end - position)


@inlined
def number_of(inputs: Inputs, op: int, values_at: int, at: int) -> Any:
    """A number as it is on the wire before it is cut into sevens of bits."""
    if op == ops.INT64:
        return np.uint64(inputs.longs[(values_at >> 3) + at])
    if op == ops.INT32:
        return np.uint64(np.int64(inputs.ints[(values_at >> 2) + at]))
    if op == ops.UINT32:
        return np.uint64(np.uint32(inputs.ints[(values_at >> 2) + at]))
    if op == ops.BOOL:
        return np.uint64(inputs.bytes[values_at + at])
    if op == ops.SINT32:
        value = np.int64(inputs.ints[(values_at >> 2) + at])
        return np.uint64(((value << 1) ^ (value >> 63)) & 0xFFFFFFFF)
    wide = inputs.longs[(values_at >> 3) + at]
    return np.uint64((wide << 1) ^ (wide >> 63))


@inlined
def put_raw(
    inputs: Inputs, values_at: int, at: int, width: int, mode: int, output: Bytes, position: int
) -> tuple[int, int]:
    """Four or eight bytes as they are."""
    start = values_at + at * width
    if mode == ops.IMPLICIT:
        bits = np.uint8(0)
        for index in range(start, start + width):
            bits |= inputs.bytes[index]
        if bits == 0:
            return _SKIPPED, position
    copy_bytes(output, position - width, inputs.bytes, start, width)
    return OK, position - width


@inlined
def put_content(
    inputs: Inputs,
    code: Int64Table,
    pc: int,
    tables: ProtobufWriteTables,
    at: int,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """Text, bytes, or an enum's name."""
    op, mode, source = code[pc, OP], code[pc, MODE], code[pc, SOURCE]
    first = (inputs.table[source, VALUES_AT] >> 2) + at
    start = inputs.ints[first] + inputs.table[source, BYTES_AT]
    size = np.int64(inputs.ints[first + 1]) - inputs.ints[first]
    if op == ops.ENUM:
        is_known, number = find_number(inputs, start, size, code, pc, tables)
        if not is_known:
            return NO_SYMBOL, position
        if mode == ops.IMPLICIT and number == 0:
            return _SKIPPED, position
        return OK, put_varint(output, position, np.int64(number))
    if mode == ops.IMPLICIT and size == 0:
        return _SKIPPED, position
    if op == ops.TEXT and not is_text(inputs.bytes, start, start + size):
        return UTF8, position
    if position < size + _VALUE_BYTES_MAX:
        return OUTPUT_FULL, position
    position -= size
    copy_bytes(output, position, inputs.bytes, start, size)
    return OK, put_varint(output, position, size)


@inlined
def put_scalar(
    inputs: Inputs,
    code: Int64Table,
    pc: int,
    tables: ProtobufWriteTables,
    at: int,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """A value without parts, and its tag: a fault, and where it starts."""
    op, mode, source = code[pc, OP], code[pc, MODE], code[pc, SOURCE]
    if is_null(inputs, source, at):
        return (NULL if mode == ops.REQUIRED else OK), position
    if position < _VALUE_BYTES_MAX:
        return OUTPUT_FULL, position
    values_at = inputs.table[source, VALUES_AT]
    fault, start = OK, position
    if op < ops.RAW:
        number = number_of(inputs, op, values_at, at)
        if mode == ops.IMPLICIT and number == np.uint64(0):
            return OK, position
        start = put_varint(output, position, number)
    elif op == ops.RAW:
        fault, start = put_raw(inputs, values_at, at, code[pc, A], mode, output, position)
    elif op <= ops.ENUM:
        fault, start = put_content(inputs, code, pc, tables, at, output, position)
    else:
        value = inputs.longs[(values_at >> 3) + at]
        fault, start = put_time(value, op, code[pc, A], output, position)
    if fault != OK:
        return (OK if fault == _SKIPPED else fault), position
    if code[pc, TAG] != ops.NO_TAG:
        start = put_varint(output, start, code[pc, TAG])
    return OK, start


@inlined
def begin_list(inputs: Inputs, source: int, at: int) -> tuple[int, Any, Any]:
    """Whether a list has items, and the first and last of them."""
    if is_null(inputs, source, at):
        return 0, np.int64(0), np.int64(0)
    first = (inputs.table[source, VALUES_AT] >> 2) + at
    start, end = np.int64(inputs.ints[first]), np.int64(inputs.ints[first + 1])
    return (1 if start < end else 0), start, end - 1


@inlined
def has_two_members(
    inputs: Inputs, code: Int64Table, pc: int, tables: ProtobufWriteTables, at: int
) -> bool:
    """Whether more than one member of a oneof is set."""
    count = 0
    for index in range(code[pc, A], code[pc, A] + code[pc, B]):
        if not is_null(inputs, tables.members[index], at):
            count += 1
    return count > 1


@inlined
def run_row(
    inputs: Inputs,
    row: int,
    code: Int64Table,
    tables: ProtobufWriteTables,
    stack: Int64s,
    output: Bytes,
    position: int,
) -> tuple[int, int]:
    """One row through the program: a fault, and where it starts."""
    pc = 0
    depth = 0
    at: Any = row
    while True:
        op, source = code[pc, OP], code[pc, SOURCE]
        if op <= ops.SCALAR_LAST:
            fault, position = put_scalar(inputs, code, pc, tables, at, output, position)
            if fault != OK:
                return fault, position
        elif op == ops.END:
            return OK, position
        elif op == ops.ONEOF:
            if has_two_members(inputs, code, pc, tables, at):
                return MEMBERS, position
        elif position < _VALUE_BYTES_MAX:
            return OUTPUT_FULL, position
        elif op == ops.MESSAGE_END:
            if source >= 0 and is_null(inputs, source, at):
                if code[pc, MODE] == ops.REQUIRED:
                    return NULL, position
                pc = code[pc, A]
                continue
            if depth + _LIST_CELLS > len(stack):
                return NESTING, position
            if code[pc, B] != 0:
                position = put_varint(output, position, code[pc, B])
            stack[depth] = len(output) - position
            depth += 1
        elif op == ops.MESSAGE_BEGIN:
            depth -= 1
            if code[pc, B] == 0:
                size = len(output) - position - stack[depth]
                position = put_varint(output, position, size)
            position = put_varint(output, position, code[pc, TAG])
        elif op == ops.LIST_END:
            has_items, first, last = begin_list(inputs, source, at)
            if has_items == 0:
                pc = code[pc, A]
                continue
            if depth + _LIST_CELLS > len(stack):
                return NESTING, position
            stack[depth] = at
            stack[depth + 1] = first
            stack[depth + 2] = len(output) - position
            depth += _LIST_CELLS
            at = last
        else:  # LIST_NEXT
            at -= 1
            if at >= stack[depth - 2]:
                pc = code[pc, A]
                continue
            if code[pc, TAG] != ops.NO_TAG:
                size = len(output) - position - stack[depth - 1]
                position = put_varint(output, position, size)
                position = put_varint(output, position, code[pc, TAG])
            depth -= _LIST_CELLS
            at = stack[depth]
        pc += 1


@kernel
def encode_rows(
    inputs: Inputs,
    code: Int64Table,
    tables: ProtobufWriteTables,
    prefix: ConstBytes,
    output: Bytes,
    distances: Int64s,
    stack: Int64s,
    faults: Bytes,
    end_row: int,
) -> int:
    """Rows from end_row - 1 down to 0, each after the prefix; how many are left.

    distances[i] is how far before the end of the output row i starts; that of end_row is known.
    """
    for left in range(end_row, 0, -1):
        row = left - 1
        end = len(output) - distances[left]
        fault, start = run_row(inputs, row, code, tables, stack, output, end)
        if fault == OK and start < len(prefix):
            fault = OUTPUT_FULL
        if fault == OUTPUT_FULL:
            return left
        faults[row] = fault
        if fault == OK:
            start -= len(prefix)
            copy_bytes(output, start, prefix, 0, len(prefix))
        distances[row] = len(output) - (start if fault == OK else end)
    return 0
