"""Payloads -> Arrow arrays: gives the kernel room to write to, and lays Arrow over what it wrote.

All slots live in one arena of zeros. The first rows show how much each scope and slot takes; the
arena is laid out for all rows from that, and again, larger, when the guess was too low.
"""

from typing import Final

import numpy as np

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.payloads import USUAL_LIMITS, Decoded, Limits, OutputTooLarge, packed_bits
from penstock.columns.protobuf import read_kernels as kernels
from penstock.columns.protobuf.laying import Laid
from penstock.columns.protobuf.program import DEPTH_MAX, DecodeProgram
from penstock.columns.protobuf.reading import (
    ITEMS_SCOPE,
    KIND,
    NOT_NULLABLE,
    SCOPE_OF,
    SIZE_CAPACITY,
    SLOT_FIELDS,
    VALID_AT,
    WIDTH,
    Slots,
    Tables,
)

_TRIAL_ROWS: Final = 64
_SPARE: Final = 1.125  # of what the rows so far say that all rows will take
_FIRST_ROOM: Final = 256  # places of a scope, and bytes of a slot, at least
_PLACES_MAX: Final = 2**31 - 2  # what Arrow's offsets can count


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
    return _Decoding(program, rows, limits).run(source, starts, ends)


class _Decoding:
    """One call's memory. `counts` and `sizes` say how much of it is in use."""

    def __init__(self, program: DecodeProgram, rows: int, limits: Limits) -> None:
        self._program = program
        self._rows = rows
        self._limits = limits
        scopes, slots = len(program.scopes), len(program.slots)
        self._counts = np.zeros(scopes, dtype=np.int64)
        self._sizes = np.zeros(slots, dtype=np.int64)
        self._full = np.zeros(2, dtype=np.int64)
        self._places = np.full(scopes, _FIRST_ROOM, dtype=np.int64)  # room, by scope
        self._places[0] = rows  # so that any row can become null, whatever else is full
        self._bytes = np.full(slots, _FIRST_ROOM, dtype=np.int64)  # room, by slot
        self._slots = self._laid_out(*self._checked(0), None)

    def run(self, source: Bytes, starts: Int64s, ends: Int64s) -> Decoded:
        program = self._program
        tables = Tables(
            program.fields,
            program.nodes,
            program.dense,
            program.sparse,
            program.scopes,
            program.members,
            program.closers,
            program.clears,
            program.enums,
        )
        errors = np.zeros(self._rows, dtype=np.uint8)
        places = np.zeros(self._rows, dtype=np.int64)
        frames = np.zeros((DEPTH_MAX + 1, kernels.FRAME_FIELDS), dtype=np.int64)
        groups = np.zeros(DEPTH_MAX, dtype=np.int64)
        state = np.zeros(kernels.STATE_FIELDS, dtype=np.int64)
        state[kernels.VALUE_BYTES_MAX] = self._limits.value_bytes_max
        state[kernels.ITEMS_MAX] = self._limits.items_max
        state[kernels.END_ROW] = min(self._rows, _TRIAL_ROWS)
        while state[kernels.NEXT_ROW] < self._rows:
            is_full = kernels.decode_rows(
                source, starts, ends, tables, self._slots, frames, groups, errors, places, state
            )
            done = int(state[kernels.NEXT_ROW])
            if is_full:
                self._grow(done)
            elif done < self._rows:
                self._foresee(done)
                state[kernels.END_ROW] = self._rows
        valid = packed_bits(errors == 0) if errors.any() else None
        laid = Laid(program, self._slots)
        columns = tuple(laid.array(shape, self._rows, valid) for shape in program.shapes)
        return Decoded(program.names, columns, errors, places)

    def _grow(self, done: int) -> None:
        """Room for what was full just now, and for what all rows will take going by those done."""
        which, size = (int(one) for one in self._full)
        # Twice what there was, not what is in use: the row that wanted more has been set back.
        if size:
            self._bytes[which] = 2 * self._bytes[which] + size
        else:
            self._places[which] = min(2 * self._places[which], _PLACES_MAX)
        table = self._checked(done)
        if done >= _TRIAL_ROWS:
            self._foresee(done)
        else:
            self._slots = self._laid_out(*table, self._slots)

    def _foresee(self, done: int) -> None:
        share = self._rows / done * _SPARE
        modest = (self._places, self._bytes)
        counts = (self._counts * share).astype(np.int64) + _FIRST_ROOM
        sizes = (self._sizes * share).astype(np.int64) + _FIRST_ROOM
        self._places = np.minimum(np.maximum(self._places, counts), _PLACES_MAX)
        self._places[0] = self._rows
        self._bytes = np.maximum(self._bytes, sizes)
        table, size_bytes = self._table()
        if size_bytes > self._limits.output_bytes_max:
            self._places, self._bytes = modest  # the first rows may have been the large ones
            table, size_bytes = self._table()
        self._slots = self._laid_out(table, size_bytes, self._slots)

    def _checked(self, done: int) -> tuple[Int64s, int]:
        table, size_bytes = self._table()
        if size_bytes > self._limits.output_bytes_max:
            raise OutputTooLarge(done, self._rows, self._limits.output_bytes_max)
        return table, size_bytes

    def _table(self) -> tuple[Int64s, int]:
        """The table of slots for the room there is to be, and the bytes they take together."""
        program, forms = self._program, self._program.forms
        starts, end = forms.laid_out(self._places[program.slot_scopes], self._bytes)
        table = np.empty((len(starts), SLOT_FIELDS), dtype=np.int64)
        table[:, KIND], table[:, WIDTH] = forms.kinds, forms.widths
        table[:, SCOPE_OF], table[:, ITEMS_SCOPE] = program.slot_scopes, program.slot_items
        table[:, SIZE_CAPACITY] = self._bytes
        table[:, VALID_AT:] = starts
        table[~forms.is_nullable, VALID_AT] = NOT_NULLABLE
        return table, end

    def _laid_out(self, table: Int64s, size_bytes: int, old: Slots | None) -> Slots:
        """An arena of zeros, with what there is already in its new places."""
        arena = np.zeros(size_bytes, dtype=np.uint8)
        if old is not None:
            places = (old.bytes, old.table[:, VALID_AT:]), (arena, table[:, VALID_AT:])
            counts = self._counts[self._program.slot_scopes]
            self._program.forms.move(counts, self._sizes, *places)
        return Slots(
            table=table,
            counts=self._counts,
            capacities=self._places,
            sizes=self._sizes,
            full=self._full,
            bytes=arena,
            ints=arena.view(np.int32),
            longs=arena.view(np.int64),
        )
