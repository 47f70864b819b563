"""Arrow arrays -> payloads: gives the kernel room to write to.

The first rows show how large the output will be.
"""

from typing import Any, Final

import numpy as np

from penstock.columns.arrow_inputs import Arena, Input
from penstock.columns.avro import write_kernels as kernels
from penstock.columns.avro.write_program import EncodeProgram
from penstock.columns.compiled import Bytes, read_only
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits, PayloadsTooLarge

_TRIAL_ROWS: Final = 64
_FIRST_BYTES: Final = 1 << 16
_SPARE: Final = 1.125


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
    output = np.empty(_FIRST_BYTES + len(prefix), dtype=np.uint8)
    done = 0
    while done < rows:
        end = rows if done >= _TRIAL_ROWS else min(rows, _TRIAL_ROWS)
        before = done
        done = kernels.encode_rows(
            inputs,
            program.code,
            tables,
            read_only(prefix),
            output,
            offsets,
            stack,
            errors,
            done,
            end,
        )
        if done < rows:
            used = int(offsets[done])
            foreseen = int(used * rows / done * _SPARE) if done >= _TRIAL_ROWS else 0
            room = max(len(output) if done > before else 2 * len(output), foreseen)
            output = _grown(output, used, room, limits)
    return Encoded(output[: offsets[-1]], offsets, errors)


def _grown(output: Bytes, used: int, room: int, limits: Limits) -> Bytes:
    room = min(room, limits.output_bytes_max)
    if room <= len(output):
        if len(output) >= limits.output_bytes_max:
            raise PayloadsTooLarge(f"the rows take more than {limits.output_bytes_max} bytes")
        return output
    larger = np.empty(room, dtype=np.uint8)
    larger[:used] = output[:used]
    return larger
