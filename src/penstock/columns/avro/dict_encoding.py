"""Dicts -> payloads: gives the kernel room to write to, and other threads a turn."""

from typing import Any, Final

import numpy as np

from penstock.columns.avro import dict_kernels as kernels
from penstock.columns.avro.dict_program import DictProgram
from penstock.columns.avro.program import NEEDS_ROOM
from penstock.columns.compiled import read_only
from penstock.columns.output import first_output, grown
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits
from penstock.columns.python_objects import KNOWN

_ROWS_AT_ONCE: Final = 1000  # then the GIL is anyone's


def encode_dicts(
    program: DictProgram, rows: list[Any], prefix: bytes = b"", limits: Limits = USUAL_LIMITS
) -> Encoded | None:
    """Run the program over the rows; None if there is one that it cannot take as it is."""
    count = len(rows)
    tables = kernels.Tables(
        program.pool,
        program.addresses,
        KNOWN,
        np.empty(max(program.depth, 1) * kernels.FRAME_CELLS, dtype=np.int64),
        np.empty(kernels.SCRATCH_CELLS, dtype=np.int64),
    )
    offsets = np.zeros(count + 1, dtype=np.int64)
    errors = np.zeros(count, dtype=np.uint8)
    output = first_output(0, limits)
    front = read_only(prefix)
    done = 0
    while done < count:
        end = min(count, done + _ROWS_AT_ONCE)
        done, stop = kernels.encode_dicts(
            id(rows), program.code, tables, front, output, offsets, errors, done, end
        )
        if stop == NEEDS_ROOM:
            output = grown(output, int(offsets[done]), done, count, limits)
        elif stop == kernels.NOT_TAKEN:
            return None
    return Encoded(output[: offsets[-1]], offsets, errors)
