"""Arrow over what the decoding kernel wrote. Nothing is copied but what takes another form.

Validity and truth values become bits, enums their names, and a map with a key twice keeps the last
entry of that key.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int32s
from penstock.columns.payloads import packed_bits
from penstock.columns.protobuf.program import NONE, DecodeProgram, Shape
from penstock.columns.protobuf.reading import BYTES_AT, VALID_AT, VALUES_AT, Slots
from penstock.columns.shape import ArrowArray
from penstock.columns.slots import Kind

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
