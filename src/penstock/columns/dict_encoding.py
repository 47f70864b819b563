"""Gives a kernel that walks dicts room to write to, and other threads a turn."""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.dict_walk import FOUND, NEEDS_ROOM
from penstock.columns.output import first_output, grown
from penstock.columns.payloads import Limits

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
