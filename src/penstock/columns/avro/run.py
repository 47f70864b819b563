"""Runs programs over Avro: payloads to Arrow arrays, Arrow arrays and dicts to payloads."""

from typing import Any, Final

import numpy as np

from penstock.columns.avro import dict_kernels, read_kernels, write_kernels
from penstock.columns.avro.dict_program import AvroDictProgram
from penstock.columns.avro.read_program import AvroReadProgram
from penstock.columns.avro.write_program import AvroWriteProgram
from penstock.columns.compiled import Bytes, ConstBytes, Int64s, read_only
from penstock.columns.vm import driver
from penstock.columns.vm.arrow_inputs import Input, inputs_of
from penstock.columns.vm.dict_walk import new_walk
from penstock.columns.vm.payloads import USUAL_LIMITS, Decoded, Encoded, PayloadLimits
from penstock.columns.vm.slots import Slots

_CALLS_PER_LEVEL: Final = 8  # of records that are no levels, between two that are


def decode(
    program: AvroReadProgram,
    source: ConstBytes,
    starts: Int64s,
    ends: Int64s,
    limits: PayloadLimits = USUAL_LIMITS,
) -> Decoded:
    """Run the program over the payloads source[starts[i]:ends[i]]."""
    tables = read_kernels.AvroReadTables(
        program.jumps, program.symbols, program.pool, program.slot_lists, program.row_scopes
    )
    marks = np.empty((2, len(program.layout.plans)), dtype=np.int64)
    stack = np.empty(_CALLS_PER_LEVEL * limits.nesting_max, dtype=np.int64)
    payloads = (source, starts, ends, program.code, tables)

    def kernel(slots: Slots, faults: Bytes, positions: Int64s, state: Int64s) -> int:
        return read_kernels.decode_rows(*payloads, slots, marks, stack, faults, positions, state)

    return driver.decode(program, source, starts, ends, limits, kernel)


def encode(
    program: AvroWriteProgram,
    columns: list[tuple[Any, Input]],
    rows: int,
    prefix: bytes = b"",
    limits: PayloadLimits = USUAL_LIMITS,
) -> Encoded:
    """Run the program over the rows of the arrays."""
    inputs = inputs_of(program.inputs, columns)
    tables = write_kernels.AvroWriteTables(program.members, program.symbols, program.pool)
    stack = np.empty(2 * limits.nesting_max, dtype=np.int64)
    front = read_only(prefix)

    def kernel(output: Bytes, offsets: Int64s, faults: Bytes, done: int) -> int:
        return write_kernels.encode_rows(
            inputs, program.code, tables, front, output, offsets, stack, faults, done, rows
        )

    # Numbers and offsets mostly get smaller, and each row has its prefix.
    expected_bytes = len(inputs.bytes) + rows * len(prefix)
    return driver.encode(kernel, rows, limits, expected_bytes=expected_bytes)


def encode_dicts(
    program: AvroDictProgram,
    rows: list[Any],
    prefix: bytes = b"",
    limits: PayloadLimits = USUAL_LIMITS,
) -> Encoded | None:
    """Run the program over the rows; None if there is one that it cannot take as it is."""
    walk = new_walk(program.addresses, program.depth)
    given = (id(rows), program.code, program.pool, walk, read_only(prefix))

    def kernel(output: Bytes, offsets: Int64s, faults: Bytes, start: int, end: int) -> Any:
        return dict_kernels.encode_dicts(*given, output, offsets, faults, start, end)

    return driver.encode_dicts(kernel, len(rows), limits)
