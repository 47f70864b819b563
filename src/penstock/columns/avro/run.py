"""Payloads -> Arrow arrays: gives the kernel room to write to, and lays Arrow over what it wrote.

All slots live in one arena. The first rows show how much each slot takes; the arena is laid out for
all rows from that, and again, larger, when the guess was too low. Nothing is copied on the way to
Arrow but validity and truth values, which become bits.

Arrow arrays -> payloads: gives the kernel room to write to.

Dicts -> payloads of Avro: what the kernel needs besides a place to write to.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray, packed_bits
from penstock.columns.avro import dict_kernels, read_kernels, write_kernels
from penstock.columns.avro.dict_program import DictProgram
from penstock.columns.avro.read_primitives import (
    BYTES_AT,
    CAPACITY,
    DIGITS_BYTES,
    KIND,
    NOT_NULLABLE,
    SIZE_CAPACITY,
    SLOT_FIELDS,
    VALID_AT,
    VALUES_AT,
    WIDTH,
    Slots,
)
from penstock.columns.avro.read_program import NO_SLOT, DecodeProgram, Shape
from penstock.columns.avro.write_program import EncodeProgram
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.vm import dict_walk
from penstock.columns.vm.arrow_arena import Arena, Input, first_output, grown
from penstock.columns.vm.dict_walk import encoded_rows
from penstock.columns.vm.python_objects import KNOWN
from penstock.columns.vm.slots import (
    USUAL_LIMITS,
    Decoded,
    Encoded,
    Kind,
    Limits,
    OutputTooLarge,
)

_TRIAL_ROWS: Final = 64
_SPARE: Final = 1.125  # of what the rows so far say that all rows will take
_FIRST_ROOM: Final = 1024  # values, and bytes, of a slot at least
_TRIAL_ROOM_BYTES: Final = 4 << 20  # of all slots together at first, row slots aside
_CALLS_PER_LEVEL: Final = 8  # of records that are no levels, between two that are
_ITEMS_MAX: Final = 2**31 - 1  # what Arrow's offsets can count


def decode(
    program: DecodeProgram,
    source: Bytes,
    starts: Int64s,
    ends: Int64s,
    limits: Limits = USUAL_LIMITS,
) -> Decoded:
    """Run the program over the payloads source[starts[i]:ends[i]]."""
    rows = len(starts)
    assert rows == len(ends), "a start and an end for each payload"
    assert rows == 0 or (starts.min() >= 0 and ends.max() <= len(source) and (starts <= ends).all())
    trial_bytes = int((ends[:_TRIAL_ROWS] - starts[:_TRIAL_ROWS]).sum())
    return _Decoding(program, rows, trial_bytes, limits).run(source, starts, ends)


class _Decoding:
    """One call's memory. `counts` and `sizes` say how much of each slot is in use."""

    def __init__(self, program: DecodeProgram, rows: int, trial_bytes: int, limits: Limits) -> None:
        self._program = program
        self._rows = rows
        self._limits = limits
        slot_count = len(program.slots)
        self._counts = np.zeros(slot_count, dtype=np.int64)
        self._sizes = np.zeros(slot_count, dtype=np.int64)
        self._full = np.zeros(2, dtype=np.int64)
        # Nearly every value and byte of the first rows takes a byte of their payloads.
        share = max(_FIRST_ROOM, min(trial_bytes, _TRIAL_ROOM_BYTES // max(slot_count, 1)))
        self._reserve(share)
        places = self._places()
        if places[1] > limits.output_bytes_max:
            self._reserve(_FIRST_ROOM)
            places = self._checked(0)
        self._slots = self._laid_out(*places, None)

    def _reserve(self, room: int) -> None:
        self._capacities = np.full((len(self._program.slots), 2), room, dtype=np.int64)
        # So that any row can become null, whatever else is full:
        self._capacities[self._row_slots(), 0] = self._rows

    def _row_slots(self) -> Int64s:
        return self._program.aligned[slice(*self._program.row_slots)]

    def run(self, source: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        program = self._program
        tables = read_kernels.Tables(
            program.jumps, program.symbols, program.pool, program.aligned, *program.row_slots
        )
        errors = np.zeros(self._rows, dtype=np.uint8)
        places = np.zeros(self._rows, dtype=np.int64)
        marks = np.empty((2, len(program.slots)), dtype=np.int64)
        stack = np.empty(_CALLS_PER_LEVEL * self._limits.nesting_max, dtype=np.int64)
        state = np.zeros(read_kernels.STATE_FIELDS, dtype=np.int64)
        state[read_kernels.VALUE_BYTES_MAX] = self._limits.value_bytes_max
        state[read_kernels.ITEMS_MAX] = self._limits.items_max
        state[read_kernels.NESTING_MAX] = self._limits.nesting_max
        state[read_kernels.END_ROW] = min(self._rows, _TRIAL_ROWS)
        inputs = (source, starts, ends, program.code, tables)
        while state[read_kernels.NEXT_ROW] < self._rows:
            is_full = read_kernels.decode_rows(
                *inputs, self._slots, marks, stack, errors, places, state
            )
            done = int(state[read_kernels.NEXT_ROW])
            if is_full:
                self._grow(done)
            elif done < self._rows:
                self._foresee(done)
                state[read_kernels.END_ROW] = self._rows
        laid = _Laid(program, self._slots, packed_bits(errors == 0) if errors.any() else None)
        columns = tuple(laid.array(shape, self._rows, laid.rows_valid) for shape in program.shapes)
        return Decoded(program.names, columns, errors, places)

    def _grow(self, done: int) -> None:
        """Room for what was full just now, and for what all rows will take going by those done."""
        slot, size = (int(one) for one in self._full)
        values, content = (int(one) for one in self._capacities[slot])
        # Twice what there was, not what is in use: the row that wanted more has been set back.
        self._capacities[slot] = (values, 2 * content + size) if size else (2 * values, content)
        places = self._checked(done)
        if done >= _TRIAL_ROWS:
            self._foresee(done)
        else:
            self._slots = self._laid_out(*places, self._slots)

    def _foresee(self, done: int) -> None:
        used = np.column_stack((self._counts, self._sizes))
        foreseen = (used * (self._rows / done) * _SPARE).astype(np.int64) + _FIRST_ROOM
        modest = self._capacities.copy()
        self._capacities = np.maximum(self._capacities, foreseen)
        self._capacities[self._row_slots(), 0] = self._rows
        places = self._places()
        if places[1] > self._limits.output_bytes_max:
            self._capacities = modest  # the first rows may have been the large ones
            places = self._places()
        self._slots = self._laid_out(*places, self._slots)

    def _checked(self, done: int) -> tuple[Int64s, int]:
        places = self._places()
        if places[1] > self._limits.output_bytes_max:
            raise OutputTooLarge(done, self._rows, self._limits.output_bytes_max)
        return places

    def _places(self) -> tuple[Int64s, int]:
        """The table of slots for the capacities, and the bytes they take together."""
        forms = self._program.forms
        capacities, size_capacities = self._capacities.T
        starts, end = forms.laid_out(capacities, size_capacities)
        table = np.empty((len(starts), SLOT_FIELDS), dtype=np.int64)
        table[:, KIND], table[:, WIDTH] = forms.kinds, forms.widths
        table[:, CAPACITY] = capacities
        table[:, SIZE_CAPACITY] = np.where(forms.has_content, size_capacities, _ITEMS_MAX)
        table[:, VALID_AT:] = starts
        table[~forms.is_nullable, VALID_AT] = NOT_NULLABLE
        return table, end

    def _laid_out(self, table: Int64s, size_bytes: int, old: Slots | None) -> Slots:
        """An arena for the capacities, with what there is already in its new places."""
        arena = np.empty(size_bytes, dtype=np.uint8)
        ints = arena.view(np.int32)
        forms = self._program.forms
        ints[table[forms.has_offsets, VALUES_AT] >> 2] = 0  # the first offsets
        if old is not None:
            places = (old.bytes, old.table[:, VALID_AT:]), (arena, table[:, VALID_AT:])
            forms.move(self._counts, self._sizes, *places)
        return Slots(
            table=table,
            counts=self._counts,
            sizes=self._sizes,
            full=self._full,
            bytes=arena,
            ints=ints,
            longs=arena.view(np.int64),
            floats=arena.view(np.float32),
            doubles=arena.view(np.float64),
            limbs=arena.view(np.uint64),
            digits=np.empty(DIGITS_BYTES, dtype=np.uint8),
        )


class _Laid:
    """Arrow over the slots."""

    def __init__(self, program: DecodeProgram, slots: Slots, rows_valid: pa.Buffer | None) -> None:
        self.rows_valid = rows_valid  # None: no row was wrong
        self._plans = program.slots
        self._arena = pa.py_buffer(slots.bytes.data)
        self._bytes = slots.bytes
        self._places: list[list[int]] = slots.table.tolist()
        self._sizes: list[int] = slots.sizes.tolist()

    def array(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        """`valid` is for a shape that has no validity of its own."""
        if pa.types.is_null(shape.type):
            return pa.nulls(length)
        if shape.slot == NO_SLOT:
            return self._struct(shape, length, valid)
        plan, places = self._plans[shape.slot], self._places[shape.slot]
        if plan.nullable:
            start = places[VALID_AT]
            valid = packed_bits(self._bytes[start : start + length])
        if plan.kind is Kind.VALIDITY:
            return self._struct(shape, length, valid)
        start = places[VALUES_AT]
        if plan.kind is Kind.FIXED:
            size = length * plan.width
            if pa.types.is_boolean(shape.type):
                content = packed_bits(self._bytes[start : start + size])
            else:
                content = self._arena.slice(start, size)
            return pa.Array.from_buffers(shape.type, length, [valid, content])
        offsets = self._arena.slice(start, (length + 1) * 4)
        size = self._sizes[shape.slot]
        if plan.kind is Kind.SIZED:
            content = self._arena.slice(places[BYTES_AT], size)
            return pa.Array.from_buffers(shape.type, length, [valid, offsets, content])
        items = [self.array(child, size, None) for child in shape.children]
        return pa.Array.from_buffers(shape.type, length, [valid, offsets], children=items)

    def _struct(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        parts = [self.array(child, length, None) for child in shape.children]
        return pa.Array.from_buffers(shape.type, length, [valid], children=parts)


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
    tables = write_kernels.Tables(program.members, program.symbols, program.pool)
    offsets = np.zeros(rows + 1, dtype=np.int64)
    errors = np.zeros(rows, dtype=np.uint8)
    stack = np.empty(2 * limits.nesting_max, dtype=np.int64)
    # What was varints and offsets mostly gets smaller, and each row has its prefix.
    output = first_output(len(inputs.bytes) + rows * len(prefix), limits)
    front = read_only(prefix)
    done = 0
    while done < rows:
        done = write_kernels.encode_rows(
            inputs, program.code, tables, front, output, offsets, stack, errors, done, rows
        )
        if done < rows:
            output = grown(output, int(offsets[done]), done, rows, limits)
    return Encoded(output[: offsets[-1]], offsets, errors)


def encode_dicts(
    program: DictProgram, rows: list[Any], prefix: bytes = b"", limits: Limits = USUAL_LIMITS
) -> Encoded | None:
    """Run the program over the rows; None if there is one that it cannot take as it is."""
    tables = dict_kernels.Tables(
        program.pool,
        program.addresses,
        KNOWN,
        np.empty(max(program.depth, 1) * dict_walk.FRAME_CELLS, dtype=np.int64),
        np.empty(dict_walk.SCRATCH_CELLS, dtype=np.int64),
    )
    errors = np.zeros(len(rows), dtype=np.uint8)
    kernel = partial(
        dict_kernels.encode_dicts, id(rows), program.code, tables, read_only(prefix), errors
    )
    written = encoded_rows(kernel, len(rows), limits)
    return None if written is None else Encoded(*written, errors)
