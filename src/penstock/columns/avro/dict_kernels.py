"""The encoding kernel for dicts: one walk over Python's values, straight to Avro's bytes.

It takes values that are exactly what the schema asks for and guesses nothing: at the first one that
is not it stops with NOT_TAKEN, and the rows go another way. A row is all or nothing, as with Arrow.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.avro import dict_program as ops
from penstock.columns.avro.read_primitives import NOTHING
from penstock.columns.avro.read_program import NO_SLOT, OP, SLOT, A, B, C, Wrong
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
from penstock.columns.vm.dict_walk import (
    COUNT,
    ENTRY_KEY,
    ENTRY_VALUE,
    FRAME_CELLS,
    NEEDS_ROOM,
    NOT_TAKEN,
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

NULL: Final = int(Wrong.NULL)
UNKNOWN_SYMBOL: Final = int(Wrong.SYMBOL)
TIME_RANGE: Final = int(Wrong.TIME_RANGE)
DECIMAL_RANGE: Final = int(Wrong.DECIMAL_RANGE)

_VARINT_BYTES_MAX: Final = 10
_INT_MAX: Final = 2**31 - 1
_INT_MIN: Final = -(2**31)


class Tables(NamedTuple):
    """What instructions refer to, and room for a row's state."""

    pool: ConstBytes
    objects: Int64s
    known: Int64s  # python_objects.KNOWN
    stack: Int64s
    scratch: Int64s


@inlined
def read_number(tables: Tables, converter: int, value: int) -> tuple[int, Any]:
    """What is wrong, and a whole number: an int, or what a converter makes one of."""
    if python.type_of(value) == tables.known[python.INT]:
        return read_int(tables, value)
    if converter == NO_SLOT:
        return NOT_TAKEN, np.int64(0)
    made = convert(tables, converter, value)
    if made == 0:
        return NOT_TAKEN, np.int64(0)
    wrong, number = read_int(tables, made)
    python.let_go(made)
    return wrong, number


@inlined
def put_bytes(
    output: Bytes, position: int, address: int, size: int, with_size: bool
) -> tuple[int, int]:
    """Bytes from memory: what is wrong, and the position after them."""
    if position + _VARINT_BYTES_MAX + size > len(output):
        return NEEDS_ROOM, position
    if with_size:
        position = write_varint(output, position, size)
    python.copy_memory(output.ctypes.data + position, address, size)
    return NOTHING, position + size


@inlined
def put_text(tables: Tables, value: int, output: Bytes, position: int) -> tuple[int, int]:
    """A str with its size in front."""
    wrong, content, size = read_text(tables, value)
    if wrong != NOTHING:
        return wrong, position
    return put_bytes(output, position, content, size, True)


@inlined
def put_content(
    tables: Tables, value: int, size: int, output: Bytes, position: int
) -> tuple[int, int]:
    """Bytes or a bytearray: of that size, or with their own in front if it is negative."""
    kind = python.type_of(value)
    if kind == tables.known[python.BYTES]:
        content, length = python.bytes_content(value), python.bytes_size(value)
    elif kind == tables.known[python.BYTEARRAY]:
        content, length = python.bytearray_content(value), python.bytearray_size(value)
    else:
        return NOT_TAKEN, position
    if size >= 0 and length != size:
        return NOT_TAKEN, position
    return put_bytes(output, position, content, length, size < 0)


@inlined
def put_converted(
    tables: Tables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """What the converter makes of the value: bytes, or None if it has too many digits."""
    made = convert(tables, code[pc, SLOT], value)
    if made == 0:
        return NOT_TAKEN, position
    if made == tables.known[python.NONE]:
        python.let_go(made)
        return DECIMAL_RANGE, position
    content, size = python.bytes_content(made), python.bytes_size(made)
    wrong, position = put_bytes(output, position, content, size, code[pc, A] == 1)
    python.let_go(made)
    return wrong, position


@inlined
def put_real(
    tables: Tables, value: int, is_double: bool, output: Bytes, position: int
) -> tuple[int, int]:
    """A float or a double, of a float or of an int that is one."""
    wrong, bits = read_real(tables, value, is_double)
    if wrong != NOTHING:
        return wrong, position
    return NOTHING, put_bits(output, position, bits, 8 if is_double else 4)


@inlined
def put_symbol(
    tables: Tables, symbols: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """The number of an enum's symbol."""
    if python.type_of(value) != tables.known[python.STR]:
        return NOT_TAKEN, position
    found = python.dict_value(tables.objects[symbols], value)
    if found == 0:
        python.clear_error()
        return UNKNOWN_SYMBOL, position
    _, number = read_int(tables, found)
    return NOTHING, write_varint(output, position, number)


@inlined
def put_scalar(
    tables: Tables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A value without parts: what is wrong, and the position after it."""
    op = code[pc, OP]
    if value == tables.known[python.NONE]:
        return (NOTHING if op == ops.NOTHING else NULL), position
    if position + _VARINT_BYTES_MAX > len(output):
        return NEEDS_ROOM, position
    if op == ops.TEXT:
        return put_text(tables, value, output, position)
    if op <= ops.TIME:
        wrong, number = read_number(tables, code[pc, SLOT], value)
        if wrong != NOTHING:
            return wrong, position
        if op == ops.INT and (number > _INT_MAX or number < _INT_MIN):
            return NOT_TAKEN, position
        if op == ops.TIME and (number < code[pc, A] or number > code[pc, B]):
            return TIME_RANGE, position
        return NOTHING, write_varint(output, position, number)
    if op == ops.DOUBLE or op == ops.FLOAT:
        return put_real(tables, value, op == ops.DOUBLE, output, position)
    if op == ops.ENUM:
        return put_symbol(tables, code[pc, SLOT], value, output, position)
    if op == ops.CONVERTED:
        return put_converted(tables, code, pc, value, output, position)
    if op == ops.SIZED or op == ops.FIXED:
        size = -1 if op == ops.SIZED else code[pc, A]
        return put_content(tables, value, size, output, position)
    if op == ops.BOOLEAN and value == tables.known[python.TRUE]:
        output[position] = 1
        return NOTHING, position + 1
    if op == ops.BOOLEAN and value == tables.known[python.FALSE]:
        output[position] = 0
        return NOTHING, position + 1
    return NOT_TAKEN, position


@inlined
def size_of(tables: Tables, op: int, value: int) -> int:
    """How many parts a container has; -1 if it is not of the kind that is asked for."""
    kind = python.type_of(value)
    if op == ops.LIST_BEGIN and kind == tables.known[python.LIST]:
        return python.list_size(value)  # type: ignore[no-any-return]  # an int once compiled
    if op != ops.LIST_BEGIN and kind == tables.known[python.DICT]:
        return python.dict_size(value)  # type: ignore[no-any-return]  # as above
    return -1


@inlined
def put_entry(tables: Tables, frame: int, output: Bytes, position: int) -> tuple[int, int, int]:
    """The next key of the map that is open: what is wrong, its value, the position after it."""
    if not next_entry(tables, frame):  # others have made it smaller
        return NOT_TAKEN, 0, position
    wrong, position = put_text(tables, tables.scratch[ENTRY_KEY], output, position)
    return wrong, tables.scratch[ENTRY_VALUE], position


@inlined
def run_row(
    row: int, code: Int64Table, tables: Tables, output: Bytes, position: int
) -> tuple[int, int, int]:
    """One dict through the program: what is wrong, the position after it, what is still open."""
    pc = 0
    depth = 0
    value: Any = row
    while True:
        op = code[pc, OP]
        frame = (depth - 1) * FRAME_CELLS
        if op == ops.FIELD:
            value = field_value(tables, depth, code[pc, SLOT])
            if value == 0:
                size = code[pc, B]
                if code[pc, A] == ops.NO_DEFAULT:
                    return NULL, position, depth
                if position + size > len(output):
                    return NEEDS_ROOM, position, depth
                copy_bytes(output, position, tables.pool, code[pc, A], size)
                position += size
                pc = code[pc, C] - 1
        elif op <= ops.SCALAR_LAST:
            wrong, position = put_scalar(tables, code, pc, value, output, position)
            if wrong != NOTHING:
                return wrong, position, depth
        elif op == ops.END:
            return NOTHING, position, depth
        elif position + _VARINT_BYTES_MAX > len(output):
            return NEEDS_ROOM, position, depth
        elif op == ops.NULLABLE:
            if value == tables.known[python.NONE]:
                position = write_varint(output, position, code[pc, A])
                pc = code[pc, B] - 1
            else:
                position = write_varint(output, position, 1 - code[pc, A])
        elif op == ops.BRANCH:
            position = write_varint(output, position, code[pc, A])
        elif op == ops.RECORD_END:
            if has_other_keys(tables, depth):
                return NOT_TAKEN, position, depth  # a key that the record does not have
            depth = leave(tables, depth)
        elif op == ops.LIST_NEXT or op == ops.MAP_NEXT:
            tables.stack[frame + COUNT] -= 1
            if tables.stack[frame + COUNT] == 0:
                position = write_varint(output, position, 0)
                depth = leave(tables, depth)
            else:
                wrong, value, position = step(tables, op, frame, output, position)
                if wrong != NOTHING:
                    return wrong, position, depth
                pc = code[pc, A] - 1
        else:  # RECORD_BEGIN, LIST_BEGIN, MAP_BEGIN
            if value == tables.known[python.NONE]:
                return NULL, position, depth
            count = size_of(tables, op, value)
            if count < 0:
                return NOT_TAKEN, position, depth
            if op == ops.RECORD_BEGIN:
                depth = enter(tables, depth, value, 0)
            elif count == 0:
                position = write_varint(output, position, 0)
                pc = code[pc, A]
            else:
                position = write_varint(output, position, count)
                depth = enter(tables, depth, value, count)
                following = ops.LIST_NEXT if op == ops.LIST_BEGIN else ops.MAP_NEXT
                wrong, value, position = step(
                    tables, following, (depth - 1) * FRAME_CELLS, output, position
                )
                if wrong != NOTHING:
                    return wrong, position, depth
        pc += 1


@inlined
def step(tables: Tables, op: int, frame: int, output: Bytes, position: int) -> tuple[int, int, int]:
    """On to the next item or entry: what is wrong, the value, the position after a key."""
    if op == ops.MAP_NEXT:
        return put_entry(tables, frame, output, position)
    value = next_item(tables, frame)
    return (NOTHING if value != 0 else NOT_TAKEN), value, position


@object_kernel
def encode_dicts(
    rows: int,
    code: Int64Table,
    tables: Tables,
    prefix: ConstBytes,
    errors: Bytes,
    output: Bytes,
    offsets: Int64s,
    start_row: int,
    end_row: int,
) -> tuple[int, int]:
    """Rows of a list from start_row to end_row, each after the prefix.

    Returns the first row that was not written, and why: NEEDS_ROOM, NOT_TAKEN or NOTHING.
    """
    for row in range(start_row, end_row):
        wrong, value, position = begin_row(rows, row, prefix, output, offsets[row])
        if wrong == NOTHING and value == tables.known[python.NONE]:
            wrong = NOT_TAKEN
        if wrong != NOTHING:
            return row, wrong
        wrong, end, depth = run_row(value, code, tables, output, position)
        while depth > 0:
            depth = leave(tables, depth)
        if wrong in (NEEDS_ROOM, NOT_TAKEN):
            return row, wrong
        errors[row] = wrong
        offsets[row + 1] = end if wrong == NOTHING else offsets[row]
    return end_row, NOTHING
