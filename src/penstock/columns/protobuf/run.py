"""Payloads -> Arrow arrays: gives the kernel room to write to, and lays Arrow over what it wrote.

All slots live in one arena of zeros. The first rows show how much each scope and slot takes; the
arena is laid out for all rows from that, and again, larger, when the guess was too low.

Arrow arrays -> payloads: gives the kernel room to write to, from the end of it to the front.

The last rows show how large the output will be.

Dicts -> payloads of Protobuf: what the kernel needs besides a place to write to.

Arrow over what the decoding kernel wrote. Nothing is copied but what takes another form.

Validity and truth values become bits, enums their names, and a map with a key twice keeps the last
entry of that key.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray, packed_bits
from penstock.columns.compiled import Bytes, Int32s, Int64s, read_only
from penstock.columns.protobuf import dict_kernels, read_kernels, write_kernels
from penstock.columns.protobuf.dict_program import DictProgram
from penstock.columns.protobuf.read_primitives import (
    BYTES_AT,
    ITEMS_SCOPE,
    KIND,
    NOT_NULLABLE,
    SCOPE_OF,
    SIZE_CAPACITY,
    SLOT_FIELDS,
    VALID_AT,
    VALUES_AT,
    WIDTH,
    Slots,
    Tables,
)
from penstock.columns.protobuf.read_program import DEPTH_MAX, NONE, DecodeProgram, Shape
from penstock.columns.protobuf.write_program import EncodeProgram
from penstock.columns.vm import dict_walk
from penstock.columns.vm.arrow_arena import Arena, Input, first_output, grown_to_the_front
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
    tables = write_kernels.Tables(program.members, program.symbols, program.pool)
    distances = np.zeros(rows + 1, dtype=np.int64)
    errors = np.zeros(rows, dtype=np.uint8)
    stack = np.empty(_STACK_CELLS, dtype=np.int64)
    # What was varints and offsets mostly gets smaller, and each row has its prefix.
    output = first_output(len(inputs.bytes) + rows * len(prefix), limits)
    front = read_only(prefix)
    left = rows
    while left:
        left = write_kernels.encode_rows(
            inputs, program.code, tables, front, output, distances, stack, errors, left
        )
        if left:
            used = int(distances[left])
            output = grown_to_the_front(output, used, rows - left, rows, limits)
    total = int(distances[0])
    return Encoded(output[len(output) - total :], total - distances, errors)


def encode_dicts(
    program: DictProgram, rows: list[Any], prefix: bytes = b"", limits: Limits = USUAL_LIMITS
) -> tuple[Bytes, Int64s] | None:
    """The payloads and their offsets; None if there is a row that is not taken as it is."""
    tables = dict_kernels.Tables(
        program.addresses,
        KNOWN,
        np.empty(program.depth * dict_walk.FRAME_CELLS, dtype=np.int64),
        np.empty(dict_walk.SCRATCH_CELLS, dtype=np.int64),
        np.empty(program.depth, dtype=np.int64),
        np.empty(program.depth, dtype=np.int64),
    )
    kernel = partial(dict_kernels.encode_dicts, id(rows), program.code, tables, read_only(prefix))
    return encoded_rows(kernel, len(rows), limits)


_NAMES_MAX: Final = 4096  # of an enum, from its least number to its largest, looked up by place


@dataclass(frozen=True, slots=True)
class Laid:
    """Slots as Arrow arrays."""

    program: DecodeProgram
    slots: Slots

    def array(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        """`valid` is for a shape that has no validity of its own."""
        if shape.slot == NONE:
            return self._struct(shape, length, valid)
        plan = self.program.slots[shape.slot]
        if plan.nullable:
            valid = packed_bits(self._stretch(shape.slot, VALID_AT, length))
        if plan.kind is Kind.VALIDITY:
            return self._struct(shape, length, valid)
        if plan.kind is Kind.FIXED:
            return self._fixed(shape, length, valid, plan.width)
        offsets = self._stretch(shape.slot, VALUES_AT, (length + 1) * 4).view(np.int32)
        if plan.kind is Kind.SIZED:
            size = int(self.slots.sizes[shape.slot])
            content = pa.py_buffer(self._stretch(shape.slot, BYTES_AT, size).data)
            buffers = [valid, pa.py_buffer(offsets.data), content]
            return pa.Array.from_buffers(shape.type, length, buffers)
        items = int(self.slots.sizes[shape.slot])
        children = [self.array(child, items, None) for child in shape.children]
        if pa.types.is_map(shape.type):
            offsets, children = _without_repetition(offsets, children[0])
        buffers = [valid, pa.py_buffer(offsets.data)]
        return pa.Array.from_buffers(shape.type, length, buffers, children=children)

    def _struct(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        parts = [self.array(child, length, None) for child in shape.children]
        return pa.Array.from_buffers(shape.type, length, [valid], children=parts)

    def _fixed(self, shape: Shape, length: int, valid: pa.Buffer | None, width: int) -> ArrowArray:
        values = self._stretch(shape.slot, VALUES_AT, length * width)
        if shape.names is not None:
            return _named(values.view(np.int32), shape.names, valid)
        is_bits = pa.types.is_boolean(shape.type)
        content = packed_bits(values) if is_bits else pa.py_buffer(values.data)
        return pa.Array.from_buffers(shape.type, length, [valid, content])

    def _stretch(self, slot: int, place: int, size: int) -> Bytes:
        start = int(self.slots.table[slot, place])
        return self.slots.bytes[start : start + size]


def _named(
    numbers: Int32s, names: tuple[tuple[int, str], ...], valid: pa.Buffer | None
) -> ArrowArray:
    """Enum values by name; a number without one as its digits."""
    known = dict(names)
    low, high = min(known), max(known)
    if high - low < _NAMES_MAX and (
        len(numbers) == 0 or (low <= numbers.min() and numbers.max() <= high)
    ):
        codes: Any = (numbers - np.int32(low)).astype(np.int32)
        texts = [known.get(number, str(number)) for number in range(low, high + 1)]
    else:
        distinct, inverse = np.unique(numbers, return_inverse=True)
        codes = inverse.astype(np.int32)
        texts = [known.get(number, str(number)) for number in distinct.tolist()]
    places = pa.Array.from_buffers(pa.int32(), len(codes), [valid, pa.py_buffer(codes.data)])
    named: ArrowArray = pa.array(texts, pa.string()).take(places)
    return named


def _without_repetition(offsets: Int32s, entries: Any) -> tuple[Int32s, list[ArrowArray]]:
    """A map's offsets and entries, those left out whose key comes again later in the same map."""
    counts = np.diff(offsets)
    if len(entries) == 0 or counts.max() < 2:
        return offsets, [entries]
    keys: Any = entries.field(0)
    if not pa.types.is_integer(keys.type):
        keys = keys.dictionary_encode().indices
    numbers = np.asarray(keys)
    maps = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((numbers, maps))  # stable: of equal ones the later comes later
    is_last = np.ones(len(order), dtype=np.bool_)
    ordered, of_maps = numbers[order], maps[order]
    is_last[:-1] = (ordered[1:] != ordered[:-1]) | (of_maps[1:] != of_maps[:-1])
    if is_last.all():
        return offsets, [entries]
    kept = np.sort(order[is_last])
    fewer = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum(np.bincount(maps[kept], minlength=len(counts)), out=fewer[1:])
    return fewer, [entries.take(pa.array(kept))]


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
        frames = np.zeros((DEPTH_MAX + 1, read_kernels.FRAME_FIELDS), dtype=np.int64)
        groups = np.zeros(DEPTH_MAX, dtype=np.int64)
        state = np.zeros(read_kernels.STATE_FIELDS, dtype=np.int64)
        state[read_kernels.VALUE_BYTES_MAX] = self._limits.value_bytes_max
        state[read_kernels.ITEMS_MAX] = self._limits.items_max
        state[read_kernels.END_ROW] = min(self._rows, _TRIAL_ROWS)
        while state[read_kernels.NEXT_ROW] < self._rows:
            is_full = read_kernels.decode_rows(
                source, starts, ends, tables, self._slots, frames, groups, errors, places, state
            )
            done = int(state[read_kernels.NEXT_ROW])
            if is_full:
                self._grow(done)
            elif done < self._rows:
                self._foresee(done)
                state[read_kernels.END_ROW] = self._rows
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
