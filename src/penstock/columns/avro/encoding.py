"""Arrow arrays -> payloads: gives the kernel room to write to."""

from typing import Any

import numpy as np

from penstock.columns.arrow_inputs import Arena, Input
from penstock.columns.avro import write_kernels as kernels
from penstock.columns.avro.write_program import EncodeProgram
from penstock.columns.compiled import read_only
from penstock.columns.output import first_output, grown
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits


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
    offsets = np.zeros(rows + 1, dtype=np.int64)
    errors = np.zeros(rows, dtype=np.uint8)
    stack = np.empty(2 * limits.nesting_max, dtype=np.int64)
    # What was varints and offsets mostly gets smaller, and each row has its prefix.
    output = first_output(len(inputs.bytes) + rows * len(prefix), limits)
    front = read_only(prefix)
    done = 0
    while done < rows:
        done = kernels.encode_rows(
            inputs, program.code, tables, front, output, offsets, stack, errors, done, rows
        )
        if done < rows:
            output = grown(output, int(offsets[done]), done, rows, limits)
    return Encoded(output[: offsets[-1]], offsets, errors)
