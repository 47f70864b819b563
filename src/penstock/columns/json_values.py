"""Whether values are plain: None, bool, int, finite float, str, list and dict with str for keys.

Exactly these types, no subclasses: what JSON says of such a value is the same to all who write it.
"""

from math import isfinite
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Int64s,
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
    SCRATCH_CELLS,
    enter,
    leave,
    next_entry,
    next_item,
)
from penstock.columns.vm.python_objects import KNOWN

NESTING_MAX: Final = 64  # deeper ones are not called plain
_ROWS_AT_ONCE: Final = 10_000  # then the GIL is anyone's


class Tables(NamedTuple):
    """Room for a walk's state."""

    known: Int64s  # python_objects.KNOWN
    stack: Int64s
    scratch: Int64s


def are_plain(values: list[Any]) -> bool:
    """Whether all of them are; looks at most at NESTING_MAX levels."""
    tables = Tables(
        KNOWN,
        np.empty(NESTING_MAX * FRAME_CELLS, dtype=np.int64),
        np.empty(SCRATCH_CELLS, dtype=np.int64),
    )
    count = len(values)
    return all(
        walk_values(id(values), tables, start, min(count, start + _ROWS_AT_ONCE))
        for start in range(0, count, _ROWS_AT_ONCE)
    )


@inlined
def is_plain_scalar(tables: Tables, kind: int, value: int) -> bool:
    """Whether a value that is neither list nor dict is plain."""
    known = tables.known
    if kind == known[python.STR] or kind == known[python.INT]:
        return True
    if kind == known[python.FLOAT]:
        return isfinite(python.float_value(value))
    return (  # type: ignore[no-any-return]  # a bool once compiled
        value == known[python.NONE] or value == known[python.TRUE] or value == known[python.FALSE]
    )


@inlined
def next_value(tables: Tables, depth: int) -> Any:
    """The next value of what is open; 0 if it is under a key that is no str, or gone."""
    frame = (depth - 1) * FRAME_CELLS
    tables.stack[frame + COUNT] -= 1
    if python.type_of(tables.stack[frame + CONTAINER]) == tables.known[python.LIST]:
        return next_item(tables, frame)
    if not next_entry(tables, frame):
        return 0
    if python.type_of(tables.scratch[ENTRY_KEY]) != tables.known[python.STR]:
        return 0
    return tables.scratch[ENTRY_VALUE]


@inlined
def walk_value(tables: Tables, whole: int) -> tuple[bool, int]:
    """Whether a value is plain with all that is in it, and how many are still open."""
    depth = 0
    value: Any = whole
    while value != 0:
        kind = python.type_of(value)
        is_list = kind == tables.known[python.LIST]
        if is_list or kind == tables.known[python.DICT]:
            if depth == NESTING_MAX:
                return False, depth
            size = python.list_size(value) if is_list else python.dict_size(value)
            depth = enter(tables, depth, value, size)
        elif not is_plain_scalar(tables, kind, value):
            return False, depth
        while depth > 0 and tables.stack[(depth - 1) * FRAME_CELLS + COUNT] == 0:
            depth = leave(tables, depth)
        if depth == 0:
            return True, depth
        value = next_value(tables, depth)
    return False, depth


@object_kernel
def walk_values(values: int, tables: Tables, start: int, end: int) -> bool:
    """Whether the values of a list from start to end are plain."""
    for index in range(start, end):
        value = python.list_item(values, index)
        if value == 0:  # others have shortened the list
            python.clear_error()
            return False
        is_plain, depth = walk_value(tables, value)
        while depth > 0:
            depth = leave(tables, depth)
        if not is_plain:
            return False
    return True
