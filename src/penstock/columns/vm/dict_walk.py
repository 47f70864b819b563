"""A kernel's walk over dicts and lists: where it is in them, and the bytes of what it finds there.

A kernel takes values that are exactly what a schema asks for: at the first one that is not it stops
with NOT_TAKEN, and the rows go another way. What is open is kept (`enter`) until it is left: a
converter is Python and may let other threads in. One that has changed meanwhile is not taken.

Gives a kernel that walks dicts room to write to, and other threads a turn.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    copy_bytes,
    inlined,
)
from penstock.columns.vm import python_objects as python
from penstock.columns.vm.arrow_arena import first_output, grown
from penstock.columns.vm.slots import Limits

FOUND: Final = 0  # nothing is wrong
NEEDS_ROOM: Final = 100  # nor is it here: the kernel stops and wants a larger output
NOT_TAKEN: Final = 101  # not an error of the row: it is for others to say

# a frame of the stack, for each dict or list that is open
CONTAINER, CURSOR, COUNT = range(3)  # COUNT: fields found so far, or how many items are left
FRAME_CELLS: Final = 3

# where C functions put what they return besides
SIZE, ENTRY_KEY, ENTRY_VALUE = range(3)
SCRATCH_CELLS: Final = 3
_WORD_BYTES: Final = 8
_FLOAT_INT_MAX: Final = 2**24  # up to here each int is a float, and a double below
_DOUBLE_INT_MAX: Final = 2**53


class Places(Protocol):
    """What a kernel's tables have for a walk."""

    @property
    def known(self) -> Int64s:
        """python_objects.KNOWN."""

    @property
    def stack(self) -> Int64s:
        """A frame for each level."""

    @property
    def scratch(self) -> Int64s:
        """SCRATCH_CELLS."""


class Walk(Places, Protocol):
    """The same for one that a program says."""

    @property
    def objects(self) -> Int64s:
        """Addresses of the program's objects."""


@inlined
def read_int(walk: Places, value: int) -> tuple[int, Any]:
    """What is wrong, and a Python int of up to 64 bits."""
    walk.scratch[SIZE] = 0
    number = python.int_value(value, walk.scratch.ctypes.data)
    return (FOUND if walk.scratch[SIZE] == 0 else NOT_TAKEN), number


@inlined
def read_text(walk: Places, value: int) -> tuple[int, Any, int]:
    """What is wrong, where the UTF-8 of a str is, and its size."""
    if python.type_of(value) != walk.known[python.STR]:
        return NOT_TAKEN, 0, 0
    content = python.text_content(value, walk.scratch.ctypes.data)
    if content == 0:
        python.clear_error()
        return NOT_TAKEN, 0, 0
    return FOUND, content, walk.scratch[SIZE]


@inlined
def read_real(walk: Places, value: int, is_double: bool) -> tuple[int, Any]:
    """What is wrong, and the bits of a float or of an int that is one."""
    kind = python.type_of(value)
    if kind == walk.known[python.FLOAT]:
        number = python.float_value(value)
    elif kind == walk.known[python.INT]:
        wrong, whole = read_int(walk, value)
        largest = _DOUBLE_INT_MAX if is_double else _FLOAT_INT_MAX
        if wrong != FOUND or whole > largest or whole < -largest:
            return NOT_TAKEN, np.uint64(0)
        number = np.float64(whole)
    else:
        return NOT_TAKEN, np.uint64(0)
    if is_double:
        return FOUND, np.float64(number).view(np.uint64)
    narrow = np.float32(number)
    if np.isinf(narrow) and not np.isinf(number):
        return NOT_TAKEN, np.uint64(0)
    return FOUND, np.uint64(narrow.view(np.uint32))


@inlined
def convert(walk: Walk, converter: int, value: int) -> int:
    """A new reference to what the converter makes of the value; 0 if it will not have it."""
    python.keep(value)
    made = python.converted(walk.objects[converter], value)
    python.let_go(value)
    if made == 0:
        python.clear_error()
    return made  # type: ignore[no-any-return]  # an int once compiled


@inlined
def enter(walk: Places, depth: int, container: int, count: int) -> int:
    """Open a dict or a list; how many are open now."""
    python.keep(container)
    walk.stack[depth * FRAME_CELLS + CONTAINER] = container
    walk.stack[depth * FRAME_CELLS + CURSOR] = 0
    walk.stack[depth * FRAME_CELLS + COUNT] = count
    return depth + 1


@inlined
def leave(walk: Places, depth: int) -> int:
    """Close the one opened last."""
    python.let_go(walk.stack[(depth - 1) * FRAME_CELLS + CONTAINER])
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
def has_other_keys(walk: Places, depth: int) -> bool:
    """Whether the dict that is open has keys that nobody asked for."""
    frame = (depth - 1) * FRAME_CELLS
    size = python.dict_size(walk.stack[frame + CONTAINER])
    return walk.stack[frame + COUNT] != size  # type: ignore[no-any-return]  # as above


@inlined
def next_item(walk: Places, frame: int) -> int:
    """The next item of the list that is open, 0 if others have shortened it."""
    container = walk.stack[frame + CONTAINER]
    at = walk.stack[frame + CURSOR]
    walk.stack[frame + CURSOR] = at + 1
    item = python.list_item(container, at)
    if item == 0:
        python.clear_error()
    return item  # type: ignore[no-any-return]  # an int once compiled


@inlined
def next_entry(walk: Places, frame: int) -> bool:
    """On to the next ENTRY_KEY and ENTRY_VALUE of the dict that is open, if others left one."""
    stack, scratch = walk.stack.ctypes.data, walk.scratch.ctypes.data
    found = python.next_entry(
        walk.stack[frame + CONTAINER],
        stack + (frame + CURSOR) * _WORD_BYTES,
        scratch + ENTRY_KEY * _WORD_BYTES,
        scratch + ENTRY_VALUE * _WORD_BYTES,
    )
    return found != 0  # type: ignore[no-any-return]  # a bool once compiled


@inlined
def begin_row(
    rows: int, row: int, prefix: ConstBytes, output: Bytes, position: int
) -> tuple[int, Any, int]:
    """What is wrong, a row of a list, and the position after its prefix."""
    if position + len(prefix) > len(output):
        return NEEDS_ROOM, 0, position
    copy_bytes(output, position, prefix, 0, len(prefix))
    value = python.list_item(rows, row)
    if value == 0:  # others have shortened the list
        python.clear_error()
        return NOT_TAKEN, 0, position
    return FOUND, value, position + len(prefix)


@inlined
def put_bits(output: Bytes, position: int, bits: Any, size: int) -> int:
    """The lowest bytes of a number, the least significant first; the position after them."""
    rest = np.uint64(bits)
    for _ in range(size):
        output[position] = rest & np.uint64(0xFF)
        rest >>= np.uint64(8)
        position += 1
    return position


_ROWS_AT_ONCE: Final = 1000  # then the GIL is anyone's

# (output, offsets, start_row, end_row) -> the first row that was not written, and why
Kernel: TypeAlias = Callable[[Bytes, Int64s, int, int], tuple[int, int]]


def encoded_rows(kernel: Kernel, count: int, limits: Limits) -> tuple[Bytes, Int64s] | None:
    """The payloads of so many rows and their offsets; None if there is one that is not taken."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    output = first_output(0, limits)
    done = 0
    while done < count:
        done, stop = kernel(output, offsets, done, min(count, done + _ROWS_AT_ONCE))
        if stop == NEEDS_ROOM:
            output = grown(output, int(offsets[done]), done, count, limits)
        elif stop != FOUND:
            return None
    return output[: offsets[-1]], offsets
