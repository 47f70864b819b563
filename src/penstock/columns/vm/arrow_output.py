"""Arrow arrays over the slots that a decoding kernel filled.

Nothing is copied but what takes another form: validity and truth values become bits, enums their
names, and of a map with a key twice only the last entry of that key is left.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray, packed_bits
from penstock.columns.compiled import Bytes, Int32s
from penstock.columns.vm.slots import (
    BYTES_AT,
    NO_SLOT,
    VALID_AT,
    VALUES_AT,
    Shape,
    SlotKind,
    SlotLayout,
    Slots,
)

_NAMES_MAX: Final = 4096  # of an enum, from its least number to its largest, looked up by index


class ArrowOutput:
    """The slots of one call as Arrow arrays."""

    def __init__(self, layout: SlotLayout, slots: Slots) -> None:
        self._plans = layout.plans
        self._bytes = slots.bytes
        self._arena = pa.py_buffer(slots.bytes.data)
        self._positions: list[list[int]] = slots.table.tolist()
        self._sizes: list[int] = slots.sizes.tolist()

    def array(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        """The array of a shape; `valid` is for one that has no validity of its own."""
        if pa.types.is_null(shape.type):
            return pa.nulls(length)
        if shape.slot == NO_SLOT:
            return self._struct(shape, length, valid)
        plan = self._plans[shape.slot]
        if plan.nullable:
            valid = packed_bits(self._part(shape.slot, VALID_AT, length))
        if plan.kind is SlotKind.VALIDITY:
            return self._struct(shape, length, valid)
        if plan.kind is SlotKind.FIXED:
            return self._fixed(shape, length, valid, plan.width)
        start = self._positions[shape.slot][VALUES_AT]
        offsets = self._arena.slice(start, (length + 1) * 4)
        size = self._sizes[shape.slot]
        if plan.kind is SlotKind.SIZED:
            content = self._arena.slice(self._positions[shape.slot][BYTES_AT], size)
            return pa.Array.from_buffers(shape.type, length, [valid, offsets, content])
        items = [self.array(child, size, None) for child in shape.children]
        if shape.has_unique_keys:
            counted = self._part(shape.slot, VALUES_AT, (length + 1) * 4).view(np.int32)
            fewer, items = _with_unique_keys(counted, items[0])
            offsets = pa.py_buffer(fewer.data)
        return pa.Array.from_buffers(shape.type, length, [valid, offsets], children=items)

    def _struct(self, shape: Shape, length: int, valid: pa.Buffer | None) -> ArrowArray:
        parts = [self.array(child, length, None) for child in shape.children]
        return pa.Array.from_buffers(shape.type, length, [valid], children=parts)

    def _fixed(self, shape: Shape, length: int, valid: pa.Buffer | None, width: int) -> ArrowArray:
        if shape.names is not None:
            numbers = self._part(shape.slot, VALUES_AT, length * width).view(np.int32)
            return _named(numbers, shape.names, valid)
        if pa.types.is_boolean(shape.type):
            content = packed_bits(self._part(shape.slot, VALUES_AT, length))
        else:
            content = self._arena.slice(self._positions[shape.slot][VALUES_AT], length * width)
        return pa.Array.from_buffers(shape.type, length, [valid, content])

    def _part(self, slot: int, part: int, size: int) -> Bytes:
        start = self._positions[slot][part]
        return self._bytes[start : start + size]


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
    indexes = pa.Array.from_buffers(pa.int32(), len(codes), [valid, pa.py_buffer(codes.data)])
    named: ArrowArray = pa.array(texts, pa.string()).take(indexes)
    return named


def _with_unique_keys(offsets: Int32s, entries: Any) -> tuple[Int32s, list[ArrowArray]]:
    """A map's offsets and entries, without those whose key comes again later in the same map."""
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
    remaining = np.sort(order[is_last])
    fewer = np.zeros(len(offsets), dtype=np.int32)
    np.cumsum(np.bincount(maps[remaining], minlength=len(counts)), out=fewer[1:])
    return fewer, [entries.take(pa.array(remaining))]
