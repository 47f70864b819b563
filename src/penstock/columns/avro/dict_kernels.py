"""The kernel that encodes dicts as Avro: one walk over Python's values, straight to bytes.

It takes values that are exactly what the schema asks for and guesses nothing: at the first one that
is not it stops with NOT_TAKEN, and the rows go another way. A row is all or nothing, as with Arrow.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.read_program import OP, SLOT, A, AvroFault, B, C
from penstock.columns.avro.write_kernels import write_varint
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    copy_bytes,
    inlined,
    object_kernel,
)
from penstock.columns.vm import python_objects as python
from penstock.columns.vm.assembler import NOTHING
from penstock.columns.vm.dict_walk import (
    COUNT,
    ENTRY_KEY,
    ENTRY_VALUE,
    FRAME_CELLS,
    NOT_TAKEN,
    Walk,
    begin_row,
    convert,
    enter,
    field_value,
    has_other_keys,
    leave,
    next_entry,
    next_item,
    put_bits,
    read_int,
    read_real,
    read_text,
)
from penstock.columns.vm.slots import OK, OUTPUT_FULL

NULL: Final = int(AvroFault.NULL)
UNKNOWN_SYMBOL: Final = int(AvroFault.SYMBOL)
TIME_RANGE: Final = int(AvroFault.TIME_RANGE)
DECIMAL_RANGE: Final = int(AvroFault.DECIMAL_RANGE)

_VARINT_BYTES_MAX: Final = 10
_INT_MAX: Final = 2**31 - 1
_INT_MIN: Final = -(2**31)


@inlined
def read_number(walk: Walk, converter: int, value: int) -> tuple[int, Any]:
    """A fault, and a whole number: an int, or what a converter makes one of."""
    if python.type_of(value) == walk.known[python.INT]:
        return read_int(walk, value)
    if converter == NOTHING:
        return NOT_TAKEN, np.int64(0)
    made = convert(walk, converter, value)
    if made == 0:
        return NOT_TAKEN, np.int64(0)
    fault, number = read_int(walk, made)
    python.drop_reference(made)
    return fault, number


@inlined
def put_bytes(
    output: Bytes, position: int, address: int, size: int, with_size: bool
) -> tuple[int, int]:
    """Bytes from memory: a fault, and the position after them."""
    if position + _VARINT_BYTES_MAX + size > len(output):
        return OUTPUT_FULL, position
    if with_size:
        position = write_varint(output, position, size)
    python.copy_memory(output.ctypes.data + position, address, size)
    return OK, position + size


@inlined
def put_text(walk: Walk, value: int, output: Bytes, position: int) -> tuple[int, int]:
    """A str with its size in front."""
    fault, content, size = read_text(walk, value)
    if fault != OK:
        return fault, position
    return put_bytes(output, position, content, size, True)


@inlined
def put_content(walk: Walk, value: int, size: int, output: Bytes, position: int) -> tuple[int, int]:
    """Bytes or a bytearray: of that size, or with their own in front if it is negative."""
    kind = python.type_of(value)
    if kind == walk.known[python.BYTES]:
        content, length = python.bytes_content(value), python.bytes_size(value)
    elif kind == walk.known[python.BYTEARRAY]:
        content, length = python.bytearray_content(value), python.bytearray_size(value)
    else:
        return NOT_TAKEN, position
    if size >= 0 and length != size:
        return NOT_TAKEN, position
    return put_bytes(output, position, content, length, size < 0)


@inlined
def put_converted(
    walk: Walk, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """What the converter makes of the value: bytes, or None if it has too many digits."""
    made = convert(walk, code[pc, SLOT], value)
    if made == 0:
        return NOT_TAKEN, position
    if made == walk.known[python.NONE]:
        python.drop_reference(made)
        return DECIMAL_RANGE, position
    content, size = python.bytes_content(made), python.bytes_size(made)
    fault, position = put_bytes(output, position, content, size, code[pc, A] == 1)
    python.drop_reference(made)
    return fault, position


@inlined
def put_real(
    walk: Walk, value: int, is_double: bool, output: Bytes, position: int
) -> tuple[int, int]:
    """A float or a double, of a float or of an int that is one."""
    fault, bits = read_real(walk, value, is_double)
    if fault != OK:
        return fault, position
    return OK, put_bits(output, position, bits, 8 if is_double else 4)


@inlined
def put_symbol(
    walk: Walk, symbols: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """The number of an enum's symbol."""
    if python.type_of(value) != walk.known[python.STR]:
        return NOT_TAKEN, position
    index = python.dict_value(walk.objects[symbols], value)
    if index == 0:
        python.clear_error()
        return UNKNOWN_SYMBOL, position
    _, number = read_int(walk, index)
    return OK, write_varint(output, position, number)


@inlined
def put_scalar(
    walk: Walk, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A value without parts: a fault, and the position after it."""
    op = code[pc, OP]
    if value == walk.known[python.NONE]:
        return (OK if op == ops.NULL else NULL), position
    if position + _VARINT_BYTES_MAX > len(output):
        return OUTPUT_FULL, position
    if op == ops.TEXT:
        return put_text(walk, value, output, position)
    if op <= ops.TIME:
        fault, number = read_number(walk, code[pc, SLOT], value)
        if fault != OK:
            return fault, position
        if op == ops.INT and (number > _INT_MAX or number < _INT_MIN):
            return NOT_TAKEN, position
        if op == ops.TIME and (number < code[pc, A] or number > code[pc, B]):
            return TIME_RANGE, position
        return OK, write_varint(output, position, number)
    if op == ops.DOUBLE or op == ops.FLOAT:
        return put_real(walk, value, op == ops.DOUBLE, output, position)
    if op == ops.ENUM:
        return put_symbol(walk, code[pc, SLOT], value, output, position)
    if op == ops.CONVERTED:
        return put_converted(walk, code, pc, value, output, position)
    if op == ops.SIZED or op == ops.FIXED:
        size = -1 if op == ops.SIZED else code[pc, A]
        return put_content(walk, value, size, output, position)
    if op == ops.BOOLEAN and value == walk.known[python.TRUE]:
        output[position] = 1
        return OK, position + 1
    if op == ops.BOOLEAN and value == walk.known[python.FALSE]:
        output[position] = 0
        return OK, position + 1
    return NOT_TAKEN, position


@inlined
def size_of(walk: Walk, op: int, value: int) -> int:
    """How many parts a container has; -1 if it is of another type than is asked for."""
    kind = python.type_of(value)
    if op == ops.LIST_BEGIN and kind == walk.known[python.LIST]:
        return python.list_size(value)  # type: ignore[no-any-return]  # an int once compiled
    if op != ops.LIST_BEGIN and kind == walk.known[python.DICT]:
        return python.dict_size(value)  # type: ignore[no-any-return]  # as above
    return -1


@inlined
def put_entry(walk: Walk, frame: int, output: Bytes, position: int) -> tuple[int, int, int]:
    """The next key of the map that is open: a fault, its value, the position after it."""
    if not next_entry(walk, frame):  # others have made it smaller
        return NOT_TAKEN, 0, position
    fault, position = put_text(walk, walk.scratch[ENTRY_KEY], output, position)
    return fault, walk.scratch[ENTRY_VALUE], position


@inlined
def run_row(
    row: int, code: Int64Table, pool: ConstBytes, walk: Walk, output: Bytes, position: int
) -> tuple[int, int, int]:
    """One dict through the program: a fault, the position after it, what is still open."""
    pc = 0
    depth = 0
    value: Any = row
    while True:
        op = code[pc, OP]
        frame = (depth - 1) * FRAME_CELLS
        if op == ops.FIELD:
            value = field_value(walk, depth, code[pc, SLOT])
            if value == 0:
                size = code[pc, B]
                if code[pc, A] == ops.NO_DEFAULT:
                    return NULL, position, depth
                if position + size > len(output):
                    return OUTPUT_FULL, position, depth
                copy_bytes(output, position, pool, code[pc, A], size)
                position += size
                pc = code[pc, C] - 1
        elif op <= ops.SCALAR_LAST:
            fault, position = put_scalar(walk, code, pc, value, output, position)
            if fault != OK:
                return fault, position, depth
        elif op == ops.END:
            return OK, position, depth
        elif position + _VARINT_BYTES_MAX > len(output):
            return OUTPUT_FULL, position, depth
        elif op == ops.NULLABLE:
            if value == walk.known[python.NONE]:
                position = write_varint(output, position, code[pc, A])
                pc = code[pc, B] - 1
            else:
                position = write_varint(output, position, 1 - code[pc, A])
        elif op == ops.BRANCH:
            position = write_varint(output, position, code[pc, A])
        elif op == ops.RECORD_END:
            if has_other_keys(walk, depth):
                return NOT_TAKEN, position, depth  # a key that the record does not have
            depth = leave(walk, depth)
        elif op == ops.LIST_NEXT or op == ops.MAP_NEXT:
            walk.stack[frame + COUNT] -= 1
            if walk.stack[frame + COUNT] == 0:
                position = write_varint(output, position, 0)
                depth = leave(walk, depth)
            else:
                fault, value, position = step(walk, op, frame, output, position)
                if fault != OK:
                    return fault, position, depth
                pc = code[pc, A] - 1
        else:  # RECORD_BEGIN, LIST_BEGIN, MAP_BEGIN
            if value == walk.known[python.NONE]:
                return NULL, position, depth
            count = size_of(walk, op, value)
            if count < 0:
                return NOT_TAKEN, position, depth
            if op == ops.RECORD_BEGIN:
                depth = enter(walk, depth, value, 0)
            elif count == 0:
                position = write_varint(output, position, 0)
                pc = code[pc, A]
            else:
                position = write_varint(output, position, count)
                depth = enter(walk, depth, value, count)
                following = ops.LIST_NEXT if op == ops.LIST_BEGIN else ops.MAP_NEXT
                fault, value, position = step(
                    walk, following, (depth - 1) * FRAME_CELLS, output, position
                )
                if fault != OK:
                    return fault, position, depth
        pc += 1


@inlined
def step(walk: Walk, op: int, frame: int, output: Bytes, position: int) -> tuple[int, int, int]:
    """On to the next item or entry: a fault, the value, the position after a key."""
    if op == ops.MAP_NEXT:
        return put_entry(walk, frame, output, position)
    value = next_item(walk, frame)
    return (OK if value != 0 else NOT_TAKEN), value, position


@object_kernel
def encode_dicts(
    rows: int,
    code: Int64Table,
    pool: ConstBytes,
    walk: Walk,
    prefix: ConstBytes,
    output: Bytes,
    offsets: Int64s,
    faults: Bytes,
    start_row: int,
    end_row: int,
) -> tuple[int, int]:
    """Rows of a list from start_row to end_row, each after the prefix.

    Returns the first row that was not written, and why: OUTPUT_FULL, NOT_TAKEN or OK.
    """
    for row in range(start_row, end_row):
        fault, value, position = begin_row(rows, row, prefix, output, offsets[row])
        if fault == OK and value == walk.known[python.NONE]:
            fault = NOT_TAKEN
        if fault != OK:
            return row, fault
        fault, end, depth = run_row(value, code, pool, walk, output, position)
        while depth > 0:
            depth = leave(walk, depth)
        if fault in (OUTPUT_FULL, NOT_TAKEN):
            return row, fault
        faults[row] = fault
        offsets[row + 1] = end if fault == OK else offsets[row]
    return end_row, OK
