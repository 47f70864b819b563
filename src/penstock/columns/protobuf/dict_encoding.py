"""Dicts -> payloads of Protobuf: what the kernel needs besides a place to write to."""

from functools import partial
from typing import Any

import numpy as np

from penstock.columns import dict_walk
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.dict_encoding import encoded_rows
from penstock.columns.payloads import USUAL_LIMITS, Limits
from penstock.columns.protobuf import dict_kernels as kernels
from penstock.columns.protobuf.dict_program import DictProgram
from penstock.columns.python_objects import KNOWN


def encode_dicts(
    program: DictProgram, rows: list[Any], prefix: bytes = b"", limits: Limits = USUAL_LIMITS
) -> tuple[Bytes, Int64s] | None:
    """The payloads and their offsets; None if there is a row that is not taken as it is."""
    tables = kernels.Tables(
        program.addresses,
        KNOWN,
        np.empty(program.depth * dict_walk.FRAME_CELLS, dtype=np.int64),
        np.empty(dict_walk.SCRATCH_CELLS, dtype=np.int64),
        np.empty(program.depth, dtype=np.int64),
        np.empty(program.depth, dtype=np.int64),
    )
    kernel = partial(kernels.encode_dicts, id(rows), program.code, tables, read_only(prefix))
    return encoded_rows(kernel, len(rows), limits)
