"""The room that encoding kernels write to: the rows so far say how much all of them will take."""

from typing import Final

import numpy as np

from penstock.columns.compiled import Bytes
from penstock.columns.payloads import Limits, PayloadsTooLarge

_FIRST_BYTES: Final = 1 << 16
_SPARE: Final = 1.125


def first_output(expected_bytes: int, limits: Limits) -> Bytes:
    """Room for so much; memory that is not written to costs nothing."""
    return np.empty(min(_FIRST_BYTES + expected_bytes, limits.output_bytes_max), dtype=np.uint8)


def grown(output: Bytes, used: int, done: int, rows: int, limits: Limits) -> Bytes:
    """More room, with the bytes used so far at its front."""
    larger = _larger(len(output), used, done, rows, limits)
    larger[:used] = output[:used]
    return larger


def grown_to_the_front(output: Bytes, used: int, done: int, rows: int, limits: Limits) -> Bytes:
    """The same for a kernel that writes from the end to the front."""
    larger = _larger(len(output), used, done, rows, limits)
    larger[len(larger) - used :] = output[len(output) - used :]
    return larger


def _larger(size: int, used: int, done: int, rows: int, limits: Limits) -> Bytes:
    if size >= limits.output_bytes_max:
        raise PayloadsTooLarge(f"the rows take more than {limits.output_bytes_max} bytes")
    foreseen = int(used * rows / done * _SPARE) if done else 0
    return np.empty(min(max(2 * size, foreseen), limits.output_bytes_max), dtype=np.uint8)
