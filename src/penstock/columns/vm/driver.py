"""Runs kernels of any language over many rows: memory for their output, and more when it is full.

A kernel stops at the row for which there is no capacity; the driver grows the output and calls it
again from that row. What the rows so far took says how much all of them will take.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import numpy as np

from penstock.columns.arrow_records import packed_bits
from penstock.columns.compiled import Bytes, ConstBytes, Int64s
from penstock.columns.vm import slots as vm
from penstock.columns.vm.arrow_output import ArrowOutput
from penstock.columns.vm.payloads import Decoded, Encoded, PayloadLimits, PayloadsTooLargeError
from penstock.columns.vm.slot_memory import TRIAL_ROWS, SlotMemory

_FIRST_BYTES: Final = 1 << 16
_SPARE: Final = 1.125
_ROWS_PER_CALL: Final = 1000  # of a kernel that holds the GIL: then other threads have a turn


class ReadProgram(Protocol):
    """What the driver needs of a program that decodes."""

    @property
    def layout(self) -> vm.SlotLayout:
        """Its slots."""

    @property
    def row_scopes(self) -> Int64s:
        """The scopes that have a value per row."""

    @property
    def scope_count(self) -> int:
        """How many scopes the slots are in."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""

    @property
    def shapes(self) -> tuple[vm.Shape, ...]:
        """How the slots become columns."""


# (slots, faults, fault positions, state) -> OUTPUT_FULL or OK
ReadKernel: TypeAlias = Callable[[vm.Slots, Bytes, Int64s, Int64s], int]
# (output, where each row starts, faults, rows done) -> rows done
WriteKernel: TypeAlias = Callable[[Bytes, Int64s, Bytes, int], int]
# (output, offsets, faults, start row, end row) -> the first row that was not written, and why
DictKernel: TypeAlias = Callable[[Bytes, Int64s, Bytes, int, int], tuple[int, int]]


def decode(
    program: ReadProgram,
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    limits: PayloadLimits,
    kernel: ReadKernel,
) -> Decoded:
    """Run a kernel over the payloads source[starts[i]:ends[i]]."""
    rows = len(starts)
    assert rows == len(ends), "a start and an end for each payload"
    assert rows == 0 or (starts.min() >= 0 and ends.max() <= len(source) and (starts <= ends).all())
    memory = SlotMemory(
        program.layout,
        program.row_scopes,
        scope_count=program.scope_count,
        rows=rows,
        trial_bytes=int((ends[:TRIAL_ROWS] - starts[:TRIAL_ROWS]).sum()),
        limits=limits,
    )
    faults = np.zeros(rows, dtype=np.uint8)
    positions = np.zeros(rows, dtype=np.int64)
    state = np.zeros(vm.STATE_FIELDS, dtype=np.int64)
    state[vm.VALUE_BYTES_MAX] = limits.value_bytes_max
    state[vm.ITEMS_MAX] = limits.items_max
    state[vm.NESTING_MAX] = limits.nesting_max
    state[vm.END_ROW] = min(rows, TRIAL_ROWS)
    while state[vm.NEXT_ROW] < rows:
        is_full = kernel(memory.slots, faults, positions, state)
        done = int(state[vm.NEXT_ROW])
        if is_full:
            memory.grow(done)
        elif done < rows:
            memory.foresee(done)
            state[vm.END_ROW] = rows
    valid = packed_bits(faults == 0) if faults.any() else None
    output = ArrowOutput(program.layout, memory.slots)
    columns = tuple(output.array(shape, rows, valid) for shape in program.shapes)
    return Decoded(program.names, columns, faults, positions)


def encode(
    kernel: WriteKernel,
    rows: int,
    limits: PayloadLimits,
    *,
    expected_bytes: int,
    is_backward: bool = False,
) -> Encoded:
    """Run a kernel until all rows are written: to the end of the output, or backward to its front.

    Backward, the last row comes first, and a row's start is its distance from the output's end.
    """
    starts = np.zeros(rows + 1, dtype=np.int64)
    faults = np.zeros(rows, dtype=np.uint8)
    output = _first_output(expected_bytes, limits)
    done = 0
    while done < rows:
        done = kernel(output, starts, faults, done)
        if done < rows:
            used = int(starts[rows - done if is_backward else done])
            output = _larger(output, used, done, rows, limits, is_backward=is_backward)
    if not is_backward:
        return Encoded(output[: starts[-1]], starts, faults)
    total = int(starts[0])
    return Encoded(output[len(output) - total :], total - starts, faults)


def encode_dicts(kernel: DictKernel, rows: int, limits: PayloadLimits) -> Encoded | None:
    """Run a kernel over rows that are Python's; None if it leaves one of them to others."""
    offsets = np.zeros(rows + 1, dtype=np.int64)
    faults = np.zeros(rows, dtype=np.uint8)
    output = _first_output(0, limits)
    done = 0
    while done < rows:
        done, stop = kernel(output, offsets, faults, done, min(rows, done + _ROWS_PER_CALL))
        if stop == vm.OUTPUT_FULL:
            output = _larger(output, int(offsets[done]), done, rows, limits)
        elif stop != vm.OK:
            return None
    return Encoded(output[: offsets[-1]], offsets, faults)


def _first_output(expected_bytes: int, limits: PayloadLimits) -> Bytes:
    """Memory that is not written to costs nothing."""
    return np.empty(min(_FIRST_BYTES + expected_bytes, limits.output_bytes_max), dtype=np.uint8)


def _larger(
    output: Bytes,
    used: int,
    done: int,
    rows: int,
    limits: PayloadLimits,
    *,
    is_backward: bool = False,
) -> Bytes:
    """More capacity, with the bytes used so far at its start, or at its end."""
    if len(output) >= limits.output_bytes_max:
        raise PayloadsTooLargeError(f"the rows take more than {limits.output_bytes_max} bytes")
    foreseen = int(used * rows / done * _SPARE) if done else 0
    size = min(max(2 * len(output), foreseen), limits.output_bytes_max)
    larger = np.empty(size, dtype=np.uint8)
    if is_backward:
        larger[size - used :] = output[len(output) - used :]
    else:
        larger[:used] = output[:used]
    return larger
