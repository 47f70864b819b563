"""Arrow arrays as encoding kernels read them: one arena, and a table of where each array is in it.

An array is copied into the arena once, only the part that the rows use; validity and truth values
become bytes on the way. All inputs of one level of nesting are read at the same index.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.compiled import (
    Bytes,
    Int32s,
    Int64s,
    Int64Table,
    inlined,
)

# the table of inputs: where each one's memory is in the arena, in bytes
VALID_AT, VALUES_AT, BYTES_AT = range(3)
INPUT_FIELDS: Final = 3
NEVER_NULL: Final = -1  # in VALID_AT

NO_INPUT: Final = -1
_ALIGNMENT: Final = 8


class Inputs(NamedTuple):
    """Arrow arrays as the kernel sees them: one arena under several types."""

    table: Int64Table  # (inputs, INPUT_FIELDS)
    bytes: Bytes
    ints: Int32s
    longs: Int64s


@inlined
def is_null(inputs: Inputs, source: int, at: int) -> bool:
    """Whether the input has a null there."""
    valid_at = inputs.table[source, VALID_AT]
    if valid_at < 0:
        return False
    return inputs.bytes[valid_at + at] == 0  # type: ignore[no-any-return]  # a bool once compiled


@dataclass(frozen=True, slots=True)
class Input:
    """Which input of a program an Arrow array is, and its parts; NO_INPUT: the program has none."""

    slot: int
    children: tuple["Input", ...] = ()


class InputArena:
    """The arrays' memory, one after another."""

    def __init__(self, inputs: int) -> None:
        self._table = np.full((inputs, INPUT_FIELDS), NEVER_NULL, dtype=np.int64)
        self._chunks: list[Bytes] = []
        self._end = 0

    def inputs(self) -> Inputs:
        """All arrays that were added, as the kernel sees them."""
        empty = np.zeros(_ALIGNMENT, dtype=np.uint8)
        arena = np.concatenate([*self._chunks, empty])
        return Inputs(self._table, arena, arena.view(np.int32), arena.view(np.int64))

    def add(self, array: Any, source: Input) -> None:
        """An array and its parts."""
        if source.slot != NO_INPUT:
            self._add_validity(array, source.slot)
        kind = array.type
        if pa.types.is_struct(kind):
            for index, child in enumerate(source.children):
                self.add(array.field(index), child)
        elif pa.types.is_map(kind) or pa.types.is_list(kind):
            start, length = self._add_offsets(array, source.slot)
            parts = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
            for part, child in zip(parts, source.children, strict=True):
                self.add(part.slice(start, length), child)
        elif not pa.types.is_null(kind):
            self._add_leaf(array, source.slot)

    def _add_validity(self, array: Any, slot: int) -> None:
        if pa.types.is_null(array.type):
            self._put(slot, VALID_AT, np.zeros(len(array), dtype=np.uint8))
        elif array.null_count:
            self._put(slot, VALID_AT, _flags(array.buffers()[0], array))

    def _add_offsets(self, array: Any, slot: int) -> tuple[int, int]:
        """Offsets from zero; where the values begin and how many there are."""
        buffer = array.buffers()[1]
        if len(array) == 0 or buffer is None:
            self._put(slot, VALUES_AT, np.zeros(1, dtype=np.int32))
            return 0, 0
        offsets = np.frombuffer(buffer, dtype=np.int32, count=len(array) + array.offset + 1)
        offsets = offsets[array.offset :]
        start = int(offsets[0])
        self._put(slot, VALUES_AT, offsets - np.int32(start))
        return start, int(offsets[-1]) - start

    def _add_leaf(self, array: Any, slot: int) -> None:
        kind = array.type
        buffers = array.buffers()
        if pa.types.is_boolean(kind):
            self._put(slot, VALUES_AT, _flags(buffers[1], array))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            start, length = self._add_offsets(array, slot)
            content = np.frombuffer(buffers[2], np.uint8) if length else np.zeros(0, np.uint8)
            self._put(slot, BYTES_AT, content[start : start + length])
        else:
            width = kind.byte_width
            values = np.frombuffer(buffers[1], np.uint8) if width and len(array) else _NO_BYTES
            start = array.offset * width
            self._put(slot, VALUES_AT, values[start : start + len(array) * width])

    def _put(self, slot: int, part: int, values: NDArray[Any]) -> None:
        content = np.ascontiguousarray(values).view(np.uint8)
        self._table[slot, part] = self._end
        padding = -len(content) % _ALIGNMENT
        self._chunks.append(content)
        if padding:
            self._chunks.append(np.zeros(padding, dtype=np.uint8))
        self._end += len(content) + padding


_NO_BYTES: Final = np.zeros(0, dtype=np.uint8)


def _flags(buffer: Any, array: Any) -> Bytes:
    """Bits as bytes, those of the array's own rows."""
    if len(array) == 0:
        return _NO_BYTES
    end = array.offset + len(array)
    packed = np.frombuffer(buffer, dtype=np.uint8, count=(end + 7) // 8)
    flags: Bytes = np.unpackbits(packed, bitorder="little")[array.offset : end]
    return flags


def inputs_of(count: int, columns: list[tuple[Any, Input]]) -> Inputs:
    """The columns as the inputs of a program that reads a number of arrays."""
    arena = InputArena(count)
    for array, source in columns:
        arena.add(array, source)
    return arena.inputs()
