"""Arrow arrays -> payloads: gives the kernel room to write to, from the end of it to the front.

The last rows show how large the output will be.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.arrow_inputs import Arena, Input
from penstock.columns.compiled import read_only
from penstock.columns.output import first_output, grown_to_the_front
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits
from penstock.columns.protobuf import write_kernels as kernels
from penstock.columns.protobuf.program import DEPTH_MAX
from penstock.columns.protobuf.write_program import EncodeProgram

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
    # What was varints and offsets mostly gets smaller, and each row has its prefix.
    output = first_output(len(inputs.bytes) + rows * len(prefix), limits)
    front = read_only(prefix)
    left = rows
    while left:
        left = kernels.encode_rows(
            inputs, program.code, tables, front, output, distances, stack, errors, left
        )
        if left:
            used = int(distances[left])
            output = grown_to_the_front(output, used, rows - left, rows, limits)
    total = int(distances[0])
    return Encoded(output[len(output) - total :], total - distances, errors)
