"""Arrow arrays -> payloads: lays the arrays out for the kernel, and gives it room to write to.

An array is copied into the arena once, only the part that the rows use; validity and truth values
become bytes on the way. The first rows show how large the output will be.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.avro import write_kernels as kernels
from penstock.columns.avro.program import NO_SLOT, USUAL_LIMITS, Limits
from penstock.columns.avro.write_program import EncodeProgram
from penstock.columns.compiled import Bytes, Int64s, read_only

_TRIAL_ROWS: Final = 64
_FIRST_BYTES: Final = 1 << 16
_SPARE: Final = 1.125
_ALIGNMENT: Final = 8


class PayloadsTooLarge(Exception):
    """The rows together encode to more than the limit; fewer at a time will do."""


@dataclass(frozen=True, slots=True)
class Input:
    """Which input of a program an Arrow array is, and its parts; NO_SLOT: the program has none."""

    slot: int
    children: tuple["Input", ...] = ()


@dataclass(frozen=True, slots=True)
class Encoded:
    """Payload i is buffer[offsets[i]:offsets[i + 1]]; that of a wrong row is empty."""

    buffer: Bytes
    offsets: Int64s
    errors: Bytes  # a Wrong per row


def encode(
    program: EncodeProgram,
    columns: list[tuple[Any, Input]],
    rows: int,
    prefix: bytes = b"",
    limits: Limits = USUAL_LIMITS,
) -> Encoded:
    """Run the program over the rows of the arrays."""
    arena = _Arena(program.inputs)
    for array, source in columns:
        arena.add(array, source)
    inputs = arena.inputs()
    tables = kernels.Tables(program.members, program.symbols, program.pool)
    offsets = np.zeros(rows + 1, dtype=np.int64)
    errors = np.zeros(rows, dtype=np.uint8)
    stack = np.empty(2 * limits.nesting_max, dtype=np.int64)
    output = np.empty(_FIRST_BYTES + len(prefix), dtype=np.uint8)
    done = 0
    while done < rows:
        end = rows if done >= _TRIAL_ROWS else min(rows, _TRIAL_ROWS)
        before = done
        done = kernels.encode_rows(
            inputs,
            program.code,
            tables,
            read_only(prefix),
            output,
            offsets,
            stack,
            errors,
            done,
            end,
        )
        if done < rows:
            used = int(offsets[done])
            foreseen = int(used * rows / done * _SPARE) if done >= _TRIAL_ROWS else 0
            room = max(len(output) if done > before else 2 * len(output), foreseen)
            output = _grown(output, used, room, limits)
    return Encoded(output[: offsets[-1]], offsets, errors)


def _grown(output: Bytes, used: int, room: int, limits: Limits) -> Bytes:
    room = min(room, limits.output_bytes_max)
    if room <= len(output):
        if len(output) >= limits.output_bytes_max:
            raise PayloadsTooLarge(f"the rows take more than {limits.output_bytes_max} bytes")
        return output
    larger = np.empty(room, dtype=np.uint8)
    larger[:used] = output[:used]
    return larger


class _Arena:
    """The arrays' memory, one after another."""

    def __init__(self, inputs: int) -> None:
        self._table = np.full((inputs, kernels.INPUT_FIELDS), kernels.NEVER_NULL, dtype=np.int64)
        self._chunks: list[Bytes] = []
        self._end = 0

    def inputs(self) -> kernels.Inputs:
        """All that was added, as the kernel sees it."""
        empty = np.zeros(_ALIGNMENT, dtype=np.uint8)
        arena = np.concatenate([*self._chunks, empty])
        return kernels.Inputs(self._table, arena, arena.view(np.int32), arena.view(np.int64))

    def add(self, array: Any, source: Input) -> None:
        """An array and its parts."""
        if source.slot != NO_SLOT:
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
            self._put(slot, kernels.VALID_AT, np.zeros(len(array), dtype=np.uint8))
        elif array.null_count:
            self._put(slot, kernels.VALID_AT, _flags(array.buffers()[0], array))

    def _add_offsets(self, array: Any, slot: int) -> tuple[int, int]:
        """Offsets from zero; where the values begin and how many there are."""
        buffer = array.buffers()[1]
        if len(array) == 0 or buffer is None:
            self._put(slot, kernels.VALUES_AT, np.zeros(1, dtype=np.int32))
            return 0, 0
        offsets = np.frombuffer(buffer, dtype=np.int32, count=len(array) + array.offset + 1)
        offsets = offsets[array.offset :]
        start = int(offsets[0])
        self._put(slot, kernels.VALUES_AT, offsets - np.int32(start))
        return start, int(offsets[-1]) - start

    def _add_leaf(self, array: Any, slot: int) -> None:
        kind = array.type
        buffers = array.buffers()
        if pa.types.is_boolean(kind):
            self._put(slot, kernels.VALUES_AT, _flags(buffers[1], array))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            start, length = self._add_offsets(array, slot)
            content = np.frombuffer(buffers[2], np.uint8) if length else np.zeros(0, np.uint8)
            self._put(slot, kernels.BYTES_AT, content[start : start + length])
        else:
            width = kind.byte_width
            values = np.frombuffer(buffers[1], np.uint8) if width and len(array) else _NO_BYTES
            start = array.offset * width
            self._put(slot, kernels.VALUES_AT, values[start : start + len(array) * width])

    def _put(self, slot: int, place: int, values: NDArray[Any]) -> None:
        content = np.ascontiguousarray(values).view(np.uint8)
        self._table[slot, place] = self._end
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
