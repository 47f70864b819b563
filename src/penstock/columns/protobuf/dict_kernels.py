"""The kernel that encodes dicts as Protobuf: one walk over Python's values, straight to bytes.

It takes values that are exactly what a message asks for and guesses nothing: at the first one that
is not it stops with NOT_TAKEN, and the rows go to upb, which says what is invalid.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Int64Table,
    UInt64,
    inlined,
    object_kernel,
    outlined,
)
from penstock.columns.protobuf import dict_program as ops
from penstock.columns.protobuf.dict_program import MODE, OBJECT, OP, TAG, A, B, C
from penstock.columns.vm import python_objects as python
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

_VALUE_BYTES_MAX: Final = 40  # of any value with its length and its tag, content aside
_ONE_BYTE_MAX: Final = 0x7F
_INT_MAX: Final = 2**31 - 1


class ProtobufDictTables(NamedTuple):
    """The walk, and what is known of each message, list and map that is open, outermost first."""

    walk: Walk
    starts: Int64s  # where what its length measures starts
    oneofs: Int64s  # of a message: the oneofs that have a member


@inlined
def write_varint(output: Bytes, position: int, value: UInt64) -> int:
    """A number of 64 bits; the caller has checked for ten bytes. The position after it."""
    raw = np.uint64(value)
    while raw >= np.uint64(0x80):
        output[position] = (raw & np.uint64(0x7F)) | np.uint64(0x80)
        raw >>= np.uint64(7)
        position += 1
    output[position] = raw
    return position + 1


@inlined
def write_tag(output: Bytes, position: int, tag: int) -> int:
    """A tag, unless there is none; the position after it."""
    return position if tag == ops.NO_TAG else write_varint(output, position, tag)


@outlined
def close_length(output: Bytes, start: int, position: int) -> tuple[int, int]:
    """Put the length of what starts there into the byte before it; move the content if need be."""
    size = position - start
    if size <= _ONE_BYTE_MAX:
        output[start - 1] = size
        return OK, position
    extra = 0
    rest = size >> 7
    while rest > _ONE_BYTE_MAX:
        rest >>= 7
        extra += 1
    extra += 1
    if position + extra > len(output):
        return OUTPUT_FULL, position
    content = output.ctypes.data + start
    python.move_memory(content + extra, content, size)
    write_varint(output, start - 1, size)
    return OK, position + extra


@outlined
def read_unsigned(tables: ProtobufDictTables, value: int) -> tuple[int, Any]:
    """A fault, and a Python int from 0 to 2**64 - 1."""
    fault, number = read_int(tables.walk, value)
    if fault == OK:
        return (OK if number >= 0 else NOT_TAKEN), np.uint64(number)
    wide = python.unsigned_value(value)
    if python.error_raised() != 0:
        python.clear_error()
        return NOT_TAKEN, np.uint64(0)
    return OK, np.uint64(wide)


@inlined
def read_number(
    tables: ProtobufDictTables, code: Int64Table, pc: int, value: int
) -> tuple[int, Any]:
    """A fault, and the bits of a whole number as they are on the wire."""
    op = code[pc, OP]
    if python.type_of(value) != tables.walk.known[python.INT]:
        return NOT_TAKEN, np.uint64(0)
    if op == ops.UNSIGNED or op == ops.UNSIGNED_FIXED:
        return read_unsigned(tables, value)
    fault, number = read_int(tables.walk, value)
    if fault != OK or number < code[pc, A] or number > code[pc, B]:
        return NOT_TAKEN, np.uint64(0)
    if op == ops.ZIGZAG:
        return OK, np.uint64((number << 1) ^ (number >> 63))
    return OK, np.uint64(number)


@outlined
def read_enum(tables: ProtobufDictTables, code: Int64Table, pc: int, value: int) -> tuple[int, Any]:
    """A fault, and the number of an enum's value, given by name or by number."""
    kind = python.type_of(value)
    if kind != tables.walk.known[python.STR] and kind != tables.walk.known[python.INT]:
        return NOT_TAKEN, np.uint64(0)
    number_object = python.dict_value(tables.walk.objects[code[pc, OBJECT]], value)
    if number_object == 0:
        python.clear_error()
        if code[pc, C] == 1 or kind == tables.walk.known[python.STR]:
            return NOT_TAKEN, np.uint64(0)
        number_object = value
    fault, number = read_int(tables.walk, number_object)
    if fault != OK or number > _INT_MAX or number < -_INT_MAX - 1:
        return NOT_TAKEN, np.uint64(0)
    return OK, np.uint64(number)


@inlined
def read_bool(tables: ProtobufDictTables, value: int) -> tuple[int, Any]:
    """A fault, and 1 or 0."""
    if value == tables.walk.known[python.TRUE]:
        return OK, np.uint64(1)
    return (OK if value == tables.walk.known[python.FALSE] else NOT_TAKEN), np.uint64(0)


@inlined
def put_number(
    tables: ProtobufDictTables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A number of any kind with its tag."""
    op = code[pc, OP]
    if op <= ops.NUMBER_LAST:
        fault, bits = read_number(tables, code, pc, value)
    elif op == ops.ENUM:
        fault, bits = read_enum(tables, code, pc, value)
    elif op == ops.BOOL:
        fault, bits = read_bool(tables, value)
    else:
        fault, bits = read_real(tables.walk, value, op == ops.DOUBLE)
    if fault != OK:
        return fault, position
    if bits == np.uint64(0) and code[pc, MODE] == ops.IMPLICIT:
        return OK, position
    position = write_tag(output, position, code[pc, TAG])
    if op == ops.FLOAT or op == ops.DOUBLE or op == ops.FIXED or op == ops.UNSIGNED_FIXED:
        return OK, put_bits(output, position, bits, code[pc, C])
    return OK, write_varint(output, position, bits)


@inlined
def put_sized(tag: int, address: int, size: int, output: Bytes, position: int) -> tuple[int, int]:
    """Bytes from memory, with a tag and their size in front."""
    if position + _VALUE_BYTES_MAX + size > len(output):
        return OUTPUT_FULL, position
    position = write_tag(output, position, tag)
    position = write_varint(output, position, size)
    python.copy_memory(output.ctypes.data + position, address, size)
    return OK, position + size


@inlined
def put_content(
    tables: ProtobufDictTables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """Text or bytes."""
    if code[pc, OP] == ops.TEXT:
        fault, content, size = read_text(tables.walk, value)
        if fault != OK:
            return fault, position
    elif python.type_of(value) == tables.walk.known[python.BYTES]:
        content, size = python.bytes_content(value), python.bytes_size(value)
    else:
        return NOT_TAKEN, position
    if size == 0 and code[pc, MODE] == ops.IMPLICIT:
        return OK, position
    return put_sized(code[pc, TAG], content, size, output, position)


@outlined
def put_converted(
    tables: ProtobufDictTables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A message of which the converter makes bytes."""
    made = convert(tables.walk, code[pc, OBJECT], value)
    if made == 0:
        return NOT_TAKEN, position
    content, size = python.bytes_content(made), python.bytes_size(made)
    if code[pc, C] == 0:
        fault, position = put_sized(code[pc, TAG], content, size, output, position)
    elif position + _VALUE_BYTES_MAX + size > len(output):
        fault = OUTPUT_FULL
    else:
        fault = OK
        position = write_varint(output, position, code[pc, TAG])
        python.copy_memory(output.ctypes.data + position, content, size)
        position = write_varint(output, position + size, code[pc, C])
    python.drop_reference(made)
    return fault, position


@inlined
def put_scalar(
    tables: ProtobufDictTables, code: Int64Table, pc: int, value: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A value without parts: a fault, and the position after it."""
    op = code[pc, OP]
    if op <= ops.DOUBLE:
        return put_number(tables, code, pc, value, output, position)
    if op == ops.CONVERTED:
        return put_converted(tables, code, pc, value, output, position)
    return put_content(tables, code, pc, value, output, position)


@inlined
def open_length(
    tables: ProtobufDictTables, depth: int, tag: int, has_length: bool, output: Bytes, position: int
) -> int:
    """A tag, and a free byte for a length; where what it measures starts."""
    if tag != ops.NO_TAG:
        position = write_varint(output, position, tag) + (1 if has_length else 0)
    tables.starts[depth] = position
    return position


@inlined
def is_second_member(tables: ProtobufDictTables, depth: int, oneof: int) -> bool:
    """Whether another member of that oneof is there already; from now on one is."""
    if tables.oneofs[depth - 1] & oneof != 0:
        return True
    tables.oneofs[depth - 1] |= oneof
    return False


@inlined
def begin(
    tables: ProtobufDictTables,
    code: Int64Table,
    pc: int,
    depth: int,
    value: int,
    output: Bytes,
    position: int,
) -> tuple[int, int, int, int, int]:
    """Open a message, list or map.

    A fault, the value at hand, the position, how many are open, and where to go on.
    """
    op, kind = code[pc, OP], python.type_of(value)
    if op == ops.MESSAGE_BEGIN:
        if kind != tables.walk.known[python.DICT]:
            fault, position = put_converted(tables, code, pc, value, output, position)
            return fault, value, position, depth, code[pc, A]
        position = open_length(tables, depth, code[pc, TAG], code[pc, C] == 0, output, position)
        tables.oneofs[depth] = 0
        return OK, value, position, enter(tables.walk, depth, value, 0), pc + 1
    is_list = op == ops.LIST_BEGIN
    if kind != tables.walk.known[python.LIST if is_list else python.DICT]:
        return NOT_TAKEN, value, position, depth, pc
    count = python.list_size(value) if is_list else python.dict_size(value)
    if count == 0:
        return OK, value, position, depth, code[pc, A] + 1
    depth = enter(tables.walk, depth, value, count)
    if is_list:
        position = open_length(tables, depth - 1, code[pc, TAG], True, output, position)
    fault, item, position = step(tables, code, pc, depth, output, position)
    return fault, item, position, depth, pc + 1


@inlined
def step(
    tables: ProtobufDictTables, code: Int64Table, pc: int, depth: int, output: Bytes, position: int
) -> tuple[int, Any, int]:
    """On to the next item or entry: a fault, the item or key, the position."""
    frame = (depth - 1) * FRAME_CELLS
    if code[pc, OP] == ops.LIST_BEGIN or code[pc, OP] == ops.LIST_NEXT:
        item = next_item(tables.walk, frame)
        return (OK if item != 0 else NOT_TAKEN), item, position
    if not next_entry(tables.walk, frame):  # others have made it smaller
        return NOT_TAKEN, 0, position
    position = open_length(tables, depth - 1, code[pc, TAG], True, output, position)
    return OK, tables.walk.scratch[ENTRY_KEY], position


@inlined
def following(
    tables: ProtobufDictTables, code: Int64Table, pc: int, depth: int, output: Bytes, position: int
) -> tuple[int, Any, int, int, int]:
    """After an item or an entry; the same as `begin`."""
    value: Any = 0
    fault = OK
    count = tables.walk.stack[(depth - 1) * FRAME_CELLS + COUNT] - 1
    tables.walk.stack[(depth - 1) * FRAME_CELLS + COUNT] = count
    is_list = code[pc, OP] == ops.LIST_NEXT
    if not is_list or (count == 0 and code[pc, TAG] != ops.NO_TAG):
        fault, position = close_length(output, tables.starts[depth - 1], position)
        if fault != OK:
            return fault, value, position, depth, pc
    if count == 0:
        return OK, value, position, leave(tables.walk, depth), pc + 1
    fault, value, position = step(tables, code, pc, depth, output, position)
    return fault, value, position, depth, code[pc, A]


@inlined
def end_message(
    tables: ProtobufDictTables, code: Int64Table, pc: int, depth: int, output: Bytes, position: int
) -> tuple[int, int]:
    """A fault with the message that is open, and the position after it."""
    if has_other_keys(tables.walk, depth):  # one that the message does not have
        return NOT_TAKEN, position
    if code[pc, C] != 0:
        return OK, write_varint(output, position, code[pc, C])
    if code[pc, TAG] == ops.NO_TAG:
        return OK, position
    return close_length(output, tables.starts[depth - 1], position)


@inlined
def run_row(
    row: int, code: Int64Table, tables: ProtobufDictTables, output: Bytes, position: int
) -> tuple[int, int, int]:
    """One dict through the program: a fault, the position after it, what is still open."""
    pc = 0
    depth = 0
    value: Any = row
    while True:
        op = code[pc, OP]
        if position + _VALUE_BYTES_MAX > len(output):
            return OUTPUT_FULL, position, depth
        fault = OK
        if op == ops.FIELD:
            value = field_value(tables.walk, depth, code[pc, OBJECT])
            if value == 0 or value == tables.walk.known[python.NONE]:
                if code[pc, MODE] == ops.REQUIRED:
                    fault = NOT_TAKEN
                pc = code[pc, A]
            else:
                if code[pc, B] != 0 and is_second_member(tables, depth, code[pc, B]):
                    fault = NOT_TAKEN
                pc += 1
        elif op <= ops.SCALAR_LAST:
            fault, position = put_scalar(tables, code, pc, value, output, position)
            pc += 1
        elif op == ops.MESSAGE_END:
            fault, position = end_message(tables, code, pc, depth, output, position)
            depth = leave(tables.walk, depth)
            pc += 1
        elif op == ops.LIST_NEXT or op == ops.MAP_NEXT:
            fault, value, position, depth, pc = following(tables, code, pc, depth, output, position)
        elif op == ops.MAP_VALUE:
            value = tables.walk.scratch[ENTRY_VALUE]
            pc += 1
        elif op == ops.END:
            return OK, position, depth
        else:  # MESSAGE_BEGIN, LIST_BEGIN, MAP_BEGIN
            fault, value, position, depth, pc = begin(
                tables, code, pc, depth, value, output, position
            )
        if fault != OK:
            return fault, position, depth


@object_kernel
def encode_dicts(
    rows: int,
    code: Int64Table,
    tables: ProtobufDictTables,
    prefix: ConstBytes,
    output: Bytes,
    offsets: Int64s,
    start_row: int,
    end_row: int,
) -> tuple[int, int]:
    """Rows of a list from start_row to end_row, each after the prefix.

    Returns the first row that was not written, and why: OUTPUT_FULL, NOT_TAKEN or OK.
    """
    for row in range(start_row, end_row):
        fault, value, position = begin_row(rows, row, prefix, output, offsets[row])
        if fault == OK and python.type_of(value) != tables.walk.known[python.DICT]:
            fault = NOT_TAKEN
        if fault != OK:
            return row, fault
        fault, end, depth = run_row(value, code, tables, output, position)
        while depth > 0:
            depth = leave(tables.walk, depth)
        if fault != OK:
            return row, fault
        offsets[row + 1] = end
    return end_row, OK
