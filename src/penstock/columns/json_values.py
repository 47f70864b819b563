"""Whether values are JSON's own: None, bool, int, finite float, str, list, dict with str as keys.

Exactly these types, no subclasses: every library writes such a value as the same JSON.
"""

from math import isfinite
from typing import Any, Final

import numpy as np

from penstock.columns.compiled import (
    inlined,
    object_kernel,
)
from penstock.columns.vm import python_objects as python
from penstock.columns.vm.dict_walk import (
    CONTAINER,
    COUNT,
    ENTRY_KEY,
    ENTRY_VALUE,
    FRAME_CELLS,
    Walk,
    enter,
    leave,
    new_walk,
    next_entry,
    next_item,
)

NESTING_MAX: Final = 64  # deeper ones do not count as such
_ROWS_PER_CALL: Final = 10_000  # then other threads have a turn
_NO_OBJECTS: Final = np.zeros(0, dtype=np.int64)


def are_plain(values: list[Any]) -> bool:
    """Whether all of them are; looks at most at NESTING_MAX levels."""
    walk = new_walk(_NO_OBJECTS, NESTING_MAX)
    count = len(values)
    return all(
        walk_values(id(values), walk, start, min(count, start + _ROWS_PER_CALL))
        for start in range(0, count, _ROWS_PER_CALL)
    )


@inlined
def is_plain_scalar(walk: Walk, kind: int, value: int) -> bool:
    """Whether a value that is neither list nor dict is plain."""
    known = walk.known
    if kind == known[python.STR] or kind == known[python.INT]:
        return True
    if kind == known[python.FLOAT]:
        return isfinite(python.float_value(value))
    return (  # type: ignore[no-any-return]  # a bool once compiled
        value == known[python.NONE] or value == known[python.TRUE] or value == known[python.FALSE]
    )


@inlined
def next_value(walk: Walk, depth: int) -> Any:
    """The next value of what is open; 0 if it is under a key that is no str, or was removed."""
    frame = (depth - 1) * FRAME_CELLS
    walk.stack[frame + COUNT] -= 1
    if python.type_of(walk.stack[frame + CONTAINER]) == walk.known[python.LIST]:
        return next_item(walk, frame)
    if not next_entry(walk, frame):
        return 0
    if python.type_of(walk.scratch[ENTRY_KEY]) != walk.known[python.STR]:
        return 0
    return walk.scratch[ENTRY_VALUE]


@inlined
def walk_value(walk: Walk, whole: int) -> tuple[bool, int]:
    """Whether a value is plain with all that is in it, and how many are still open."""
    depth = 0
    value: Any = whole
    while value != 0:
        kind = python.type_of(value)
        is_list = kind == walk.known[python.LIST]
        if is_list or kind == walk.known[python.DICT]:
            if depth == NESTING_MAX:
                return False, depth
            size = python.list_size(value) if is_list else python.dict_size(value)
            depth = enter(walk, depth, value, size)
        elif not is_plain_scalar(walk, kind, value):
            return False, depth
        while depth > 0 and walk.stack[(depth - 1) * FRAME_CELLS + COUNT] == 0:
            depth = leave(walk, depth)
        if depth == 0:
            return True, depth
        value = next_value(walk, depth)
    return False, depth


@object_kernel
def walk_values(values: int, walk: Walk, start: int, end: int) -> bool:
    """Whether the values of a list from start to end are plain."""
    for index in range(start, end):
        value = python.list_item(values, index)
        if value == 0:  # another thread has shortened the list
            python.clear_error()
            return False
        is_plain, depth = walk_value(walk, value)
        while depth > 0:
            depth = leave(walk, depth)
        if not is_plain:
            return False
    return True
