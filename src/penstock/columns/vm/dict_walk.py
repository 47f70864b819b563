"""A kernel's walk over dicts and lists: where it is in them, and the bytes of the values there.

A kernel takes values that are exactly what a schema asks for: at the first one that is not it stops
with NOT_TAKEN, and the rows go another way. A container has a reference while it is open: a
converter is Python and may give other threads a turn. One that was changed meanwhile is not taken.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    copy_bytes,
    inlined,
)
from penstock.columns.vm import python_objects as python
from penstock.columns.vm.slots import OK, OUTPUT_FULL

NOT_TAKEN: Final = 101  # no fault of the row: others say whether there is one

# a frame of the stack, for each dict or list that is open
CONTAINER, CURSOR, COUNT = range(3)  # COUNT: fields seen so far, or items left
FRAME_CELLS: Final = 3

# where C functions put what they return besides
SIZE, ENTRY_KEY, ENTRY_VALUE = range(3)
SCRATCH_CELLS: Final = 3
_WORD_BYTES: Final = 8
_FLOAT_INT_MAX: Final = 2**24  # up to here each int is a float, and a double below
_DOUBLE_INT_MAX: Final = 2**53


class Walk(NamedTuple):
    """What a kernel needs to walk dicts and lists."""

    objects: Int64s  # addresses of the program's objects
    known: Int64s  # python_objects.KNOWN
    stack: Int64s  # a frame for each level
    scratch: Int64s  # SCRATCH_CELLS


def new_walk(addresses: Int64s, depth: int) -> Walk:
    """A walk that has not begun, through at most `depth` containers within each other."""
    return Walk(
        addresses,
        python.KNOWN,
        np.empty(max(depth, 1) * FRAME_CELLS, dtype=np.int64),
        np.empty(SCRATCH_CELLS, dtype=np.int64),
    )


@inlined
def read_int(walk: Walk, value: int) -> tuple[int, Any]:
    """A fault, and a Python int of up to 64 bits."""
    walk.scratch[SIZE] = 0
    number = python.int_value(value, walk.scratch.ctypes.data)
    return (OK if walk.scratch[SIZE] == 0 else NOT_TAKEN), number


@inlined
def read_text(walk: Walk, value: int) -> tuple[int, Any, int]:
    """A fault, where the UTF-8 of a str is, and its size."""
    if python.type_of(value) != walk.known[python.STR]:
        return NOT_TAKEN, 0, 0
    content = python.text_content(value, walk.scratch.ctypes.data)
    if content == 0:
        python.clear_error()
        return NOT_TAKEN, 0, 0
    return OK, content, walk.scratch[SIZE]


@inlined
def read_real(walk: Walk, value: int, is_double: bool) -> tuple[int, Any]:
    """A fault, and the bits of a float or of an int that is one."""
    kind = python.type_of(value)
    if kind == walk.known[python.FLOAT]:
        number = python.float_value(value)
    elif kind == walk.known[python.INT]:
        fault, whole = read_int(walk, value)
        largest = _DOUBLE_INT_MAX if is_double else _FLOAT_INT_MAX
        if fault != OK or whole > largest or whole < -largest:
            return NOT_TAKEN, np.uint64(0)
        number = np.float64(whole)
    else:
        return NOT_TAKEN, np.uint64(0)
    if is_double:
        return OK, np.float64(number).view(np.uint64)
    narrow = np.float32(number)
    if np.isinf(narrow) and not np.isinf(number):
        return NOT_TAKEN, np.uint64(0)
    return OK, np.uint64(narrow.view(np.uint32))


@inlined
def convert(walk: Walk, converter: int, value: int) -> int:
    """A new reference to what the converter makes of the value; 0 if it refuses."""
    python.add_reference(value)
    made = python.converted(walk.objects[converter], value)
    python.drop_reference(value)
    if made == 0:
        python.clear_error()
    return made  # type: ignore[no-any-return]  # an int once compiled


@inlined
def enter(walk: Walk, depth: int, container: int, count: int) -> int:
    """Open a dict or a list; how many are open now."""
    python.add_reference(container)
    walk.stack[depth * FRAME_CELLS + CONTAINER] = container
    walk.stack[depth * FRAME_CELLS + CURSOR] = 0
    walk.stack[depth * FRAME_CELLS + COUNT] = count
    return depth + 1


@inlined
def leave(walk: Walk, depth: int) -> int:
    """Close the one opened last."""
    python.drop_reference(walk.stack[(depth - 1) * FRAME_CELLS + CONTAINER])
    return depth - 1


@inlined
def field_value(walk: Walk, depth: int, key: int) -> int:
    """What the dict that is open has under a name, 0 if nothing."""
    frame = (depth - 1) * FRAME_CELLS
    value = python.dict_value(walk.stack[frame + CONTAINER], walk.objects[key])
    if value == 0:
        python.clear_error()
    else:
        walk.stack[frame + COUNT] += 1
    return value  # type: ignore[no-any-return]  # an int once compiled


@inlined
def has_other_keys(walk: Walk, depth: int) -> bool:
    """Whether the dict that is open has keys that were not asked for."""
    frame = (depth - 1) * FRAME_CELLS
    size = python.dict_size(walk.stack[frame + CONTAINER])
    return walk.stack[frame + COUNT] != size  # type: ignore[no-any-return]  # as above


@inlined
def next_item(walk: Walk, frame: int) -> int:
    """The next item of the list that is open, 0 if others have shortened it."""
    container = walk.stack[frame + CONTAINER]
    at = walk.stack[frame + CURSOR]
    walk.stack[frame + CURSOR] = at + 1
    item = python.list_item(container, at)
    if item == 0:
        python.clear_error()
    return item  # type: ignore[no-any-return]  # an int once compiled


@inlined
def next_entry(walk: Walk, frame: int) -> bool:
    """On to the next ENTRY_KEY and ENTRY_VALUE of the dict that is open, if others left one."""
    stack, scratch = walk.stack.ctypes.data, walk.scratch.ctypes.data
    has_entry = python.next_entry(
        walk.stack[frame + CONTAINER],
        stack + (frame + CURSOR) * _WORD_BYTES,
        scratch + ENTRY_KEY * _WORD_BYTES,
        scratch + ENTRY_VALUE * _WORD_BYTES,
    )
    return has_entry != 0  # type: ignore[no-any-return]  # a bool once compiled


@inlined
def begin_row(
    rows: int, row: int, prefix: ConstBytes, output: Bytes, position: int
) -> tuple[int, Any, int]:
    """A fault, a row of a list, and the position after its prefix."""
    if position + len(prefix) > len(output):
        return OUTPUT_FULL, 0, position
    copy_bytes(output, position, prefix, 0, len(prefix))
    value = python.list_item(rows, row)
    if value == 0:  # others have shortened the list
        python.clear_error()
        return NOT_TAKEN, 0, position
    return OK, value, position + len(prefix)


@inlined
def put_bits(output: Bytes, position: int, bits: Any, size: int) -> int:
    """The lowest bytes of a number, the least significant first; the position after them."""
    rest = np.uint64(bits)
    for _ in range(size):
        output[position] = rest & np.uint64(0xFF)
        rest >>= np.uint64(8)
        position += 1
    return position
