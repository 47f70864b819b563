"""Arrow arrays in the making: what a slot collects, and where its parts are in a kernel's arena.

A slot has up to three parts: a byte of validity for each value; the values, or the offsets of what
has no one width; and the content of what has offsets. All parts of all slots are in one arena.

What payloads of any language decode to and are encoded from, and how much they may ask for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray
from penstock.columns.compiled import Bools, Bytes, Int64s

PARTS: Final = 3
_ALIGNMENT: Final = 64  # as Arrow likes it; more than any value needs
_OFFSET_BYTES: Final = 4


class Kind(IntEnum):
    """What a slot collects."""

    NOTHING = 0  # a count: Arrow's null type
    VALIDITY = 1  # of structs
    FIXED = 2  # values of one width
    SIZED = 3  # offsets and bytes
    LIST = 4  # offsets; the items have slots of their own


class Plan(Protocol):
    """What is known of a slot before there is memory for it."""

    @property
    def kind(self) -> Kind:
        """What it collects."""

    @property
    def width(self) -> int:
        """Bytes of a value, if they are FIXED."""

    @property
    def nullable(self) -> bool:
        """Whether it has validity."""


class SlotForms:
    """All slots of a program, as vectors: how large their parts are for so many values."""

    def __init__(self, plans: Iterable[Plan]) -> None:
        slots = list(plans)
        self.kinds: Int64s = np.array([plan.kind for plan in slots], dtype=np.int64)
        self.widths: Int64s = np.array([plan.width for plan in slots], dtype=np.int64)
        self.is_nullable: Bools = np.array([plan.nullable for plan in slots], dtype=np.bool_)
        self.has_offsets: Bools = self.kinds >= Kind.SIZED
        self.has_content: Bools = self.kinds == Kind.SIZED
        self._value_bytes: Int64s = np.where(self.kinds == Kind.FIXED, self.widths, 0)
        self._value_bytes[self.has_offsets] = _OFFSET_BYTES

    def part_bytes(self, counts: Int64s, sizes: Int64s) -> Int64s:
        """Bytes of the parts of each slot: (slots, PARTS)."""
        parts = np.empty((len(self.kinds), PARTS), dtype=np.int64)
        parts[:, 0] = counts * self.is_nullable
        parts[:, 1] = (counts + self.has_offsets) * self._value_bytes
        parts[:, 2] = sizes * self.has_content
        return parts

    def laid_out(self, counts: Int64s, sizes: Int64s) -> tuple[Int64s, int]:
        """Where the parts start if one comes after the other, and where the last one ends."""
        taken = -(-self.part_bytes(counts, sizes) // _ALIGNMENT) * _ALIGNMENT
        ends = np.cumsum(taken.reshape(-1))
        end = int(ends[-1]) if len(ends) else 0
        return ends.reshape(-1, PARTS) - taken, max(end, _ALIGNMENT)

    def move(
        self, counts: Int64s, sizes: Int64s, old: tuple[Bytes, Int64s], new: tuple[Bytes, Int64s]
    ) -> None:
        """Copy what is in use from one arena to another, each with the places of the parts."""
        used = self.part_bytes(counts, sizes)
        is_used = used > 0
        places = zip(old[1][is_used].tolist(), new[1][is_used].tolist(), strict=True)
        for (of, to), size in zip(places, used[is_used].tolist(), strict=True):
            new[0][to : to + size] = old[0][of : of + size]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one payload and one batch may ask for; beyond the first three a row is wrong."""

    value_bytes_max: int = 64 << 20
    items_max: int = 1 << 20  # of all arrays and maps of one payload together
    nesting_max: int = 200
    output_bytes_max: int = 1 << 30  # beyond: OutputTooLarge, and the caller decodes fewer rows

    def __post_init__(self) -> None:
        assert 0 < self.output_bytes_max < 1 << 31, "Arrow's offsets have 32 bits"
        assert self.nesting_max > 0


USUAL_LIMITS: Final = Limits()


class OutputTooLarge(Exception):
    """The rows together decode to more than the limit; fewer at a time will do."""

    def __init__(self, row: int, rows: int, limit_bytes: int) -> None:
        super().__init__(
            f"{rows} payloads decode to more than {limit_bytes} bytes; "
            f"the first {row} fit: decode fewer at a time"
        )
        self.row = row


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns with a value per payload, and what is wrong with each: such a row is all nulls."""

    names: tuple[str, ...]
    columns: tuple[ArrowArray, ...]
    errors: Bytes  # a Wrong per row
    error_places: Int64s  # where in the payload; of rows that are wrong only

    def to_batch(self) -> pa.RecordBatch:
        """The columns as a batch of Arrow's."""
        if not self.columns:  # a batch has no length of its own
            nothing: Any = pa.Array.from_buffers(
                pa.struct([]), len(self.errors), [None], children=[]
            )
            return pa.RecordBatch.from_struct_array(nothing)
        return pa.RecordBatch.from_arrays(list(self.columns), names=list(self.names))


class PayloadsTooLarge(Exception):
    """The rows together encode to more than the limit; fewer at a time will do."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Payload i is buffer[offsets[i]:offsets[i + 1]]; that of a wrong row is empty."""

    buffer: Bytes
    offsets: Int64s
    errors: Bytes  # a Wrong per row
