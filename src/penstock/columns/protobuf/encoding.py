"""Arrow arrays -> payloads: gives the kernel room to write to, from the end of it to the front.

The last rows show how large the output will be.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.arrow_inputs import Arena, Input
from penstock.columns.compiled import Bytes, read_only
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits, PayloadsTooLarge
from penstock.columns.protobuf import write_kernels as kernels
from penstock.columns.protobuf.program import DEPTH_MAX
from penstock.columns.protobuf.write_program import EncodeProgram

_FIRST_BYTES: Final = 1 << 16
_SPARE: Final = 1.125
_STACK_CELLS: Final = 4 * DEPTH_MAX


def encode(
    program: EncodeProgram,
    columns: list[tuple[Any, Input]],
    rows: int,
    prefix: bytes = b"",
    limits: Limits = USUAL_LIMITS,
) -> Encoded:
    """Run the program over the rows of the arrays."""
    arena = Arena(program.inputs)
    for array, source in columns:
        arena.add(array, source)
    inputs = arena.inputs()
    tables = kernels.Tables(program.members, program.symbols, program.pool)
    distances = np.zeros(rows + 1, dtype=np.int64)
    errors = np.zeros(rows, dtype=np.uint8)
    stack = np.empty(_STACK_CELLS, dtype=np.int64)
    output = np.empty(_FIRST_BYTES + len(prefix), dtype=np.uint8)
    front = read_only(prefix)
    left = rows
    while left:
        left = kernels.encode_rows(
            inputs, program.code, tables, front, output, distances, stack, errors, left
        )
        if left:
            used = int(distances[left])
            done = rows - left
            foreseen = int(used * rows / done * _SPARE) if done else 0
            output = _grown(output, used, max(2 * len(output), foreseen), limits)
    total = int(distances[0])
    return Encoded(output[len(output) - total :], total - distances, errors)


def _grown(output: Bytes, used: int, room: int, limits: Limits) -> Bytes:
    room = min(room, limits.output_bytes_max)
    if room <= len(output):
        raise PayloadsTooLarge(f"the rows take more than {limits.output_bytes_max} bytes")
    larger = np.empty(room, dtype=np.uint8)
    larger[room - used :] = output[len(output) - used :]
    return larger
