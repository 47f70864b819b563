"""Runs programs over Protobuf: payloads to Arrow arrays, Arrow arrays and dicts to payloads."""

from typing import Any, Final

import numpy as np

from penstock.columns.compiled import Bytes, ConstBytes, Int64s, read_only
from penstock.columns.protobuf import dict_kernels, read_kernels, write_kernels
from penstock.columns.protobuf.dict_program import ProtobufDictProgram
from penstock.columns.protobuf.read_program import DEPTH_MAX, ProtobufReadProgram
from penstock.columns.protobuf.write_program import ProtobufWriteProgram
from penstock.columns.vm import driver
from penstock.columns.vm.arrow_inputs import Input, inputs_of
from penstock.columns.vm.dict_walk import new_walk
from penstock.columns.vm.payloads import USUAL_LIMITS, Decoded, Encoded, PayloadLimits
from penstock.columns.vm.slots import Slots

_STACK_CELLS: Final = 4 * DEPTH_MAX


def decode(
    program: ProtobufReadProgram,
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    limits: PayloadLimits = USUAL_LIMITS,
) -> Decoded:
    """Run the program over the payloads source[starts[i]:ends[i]]."""
    frames = np.zeros((DEPTH_MAX + 1, read_kernels.FRAME_FIELDS), dtype=np.int64)
    groups = np.zeros(DEPTH_MAX, dtype=np.int64)
    payloads = (source, starts, ends, program.tables)

    def kernel(slots: Slots, faults: Bytes, positions: Int64s, state: Int64s) -> int:
        return read_kernels.decode_rows(*payloads, slots, frames, groups, faults, positions, state)

    return driver.decode(program, source, starts, ends, limits, kernel)


def encode(
    program: ProtobufWriteProgram,
    columns: list[tuple[Any, Input]],
    rows: int,
    prefix: bytes = b"",
    limits: PayloadLimits = USUAL_LIMITS,
) -> Encoded:
    """Run the program over the rows of the arrays, from the last one to the first."""
    inputs = inputs_of(program.inputs, columns)
    tables = write_kernels.ProtobufWriteTables(program.members, program.symbols, program.pool)
    stack = np.empty(_STACK_CELLS, dtype=np.int64)
    front = read_only(prefix)

    def kernel(output: Bytes, distances: Int64s, faults: Bytes, done: int) -> int:
        return rows - write_kernels.encode_rows(
            inputs, program.code, tables, front, output, distances, stack, faults, rows - done
        )

    # Numbers and offsets mostly get smaller, and each row has its prefix.
    expected_bytes = len(inputs.bytes) + rows * len(prefix)
    return driver.encode(kernel, rows, limits, expected_bytes=expected_bytes, is_backward=True)


def encode_dicts(
    program: ProtobufDictProgram,
    rows: list[Any],
    prefix: bytes = b"",
    limits: PayloadLimits = USUAL_LIMITS,
) -> Encoded | None:
    """Run the program over the rows; None if there is one that it cannot take as it is."""
    tables = dict_kernels.ProtobufDictTables(
        new_walk(program.addresses, program.depth),
        np.empty(program.depth, dtype=np.int64),
        np.empty(program.depth, dtype=np.int64),
    )
    given = (id(rows), program.code, tables, read_only(prefix))

    def kernel(output: Bytes, offsets: Int64s, _: Bytes, start: int, end: int) -> Any:
        return dict_kernels.encode_dicts(*given, output, offsets, start, end)

    return driver.encode_dicts(kernel, len(rows), limits)
