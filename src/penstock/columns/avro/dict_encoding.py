"""Dicts -> payloads of Avro: what the kernel needs besides a place to write to."""

from functools import partial
from typing import Any

import numpy as np

from penstock.columns import dict_walk
from penstock.columns.avro import dict_kernels as kernels
from penstock.columns.avro.dict_program import DictProgram
from penstock.columns.compiled import read_only
from penstock.columns.dict_encoding import encoded_rows
from penstock.columns.payloads import USUAL_LIMITS, Encoded, Limits
from penstock.columns.python_objects import KNOWN


def encode_dicts(
    program: DictProgram, rows: list[Any], prefix: bytes = b"", limits: Limits = USUAL_LIMITS
) -> Encoded | None:
    """Run the program over the rows; None if there is one that it cannot take as it is."""
    tables = kernels.Tables(
        program.pool,
        program.addresses,
        KNOWN,
        np.empty(max(program.depth, 1) * dict_walk.FRAME_CELLS, dtype=np.int64),
        np.empty(dict_walk.SCRATCH_CELLS, dtype=np.int64),
    )
    errors = np.zeros(len(rows), dtype=np.uint8)
    kernel = partial(
        kernels.encode_dicts, id(rows), program.code, tables, read_only(prefix), errors
    )
    written = encoded_rows(kernel, len(rows), limits)
    return None if written is None else Encoded(*written, errors)
