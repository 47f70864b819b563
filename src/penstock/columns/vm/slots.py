"""Slots: Arrow arrays while a decoding kernel fills them, and how they become columns.

A slot has up to three parts: a byte of validity for each value; the values, or the offsets of what
has no fixed width; and the content of what has offsets. All parts of all slots are in one arena.
A scope is what has an index of its own in its slots: a slot of Avro's, an item of a repeated field
of Protobuf's. All slots of a scope have as many values as the scope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from penstock.columns.compiled import (
    Bools,
    Bytes,
    Doubles,
    Floats,
    Int32s,
    Int64s,
    Int64Table,
    UInt64s,
    inlined,
)

if TYPE_CHECKING:
    import pyarrow as pa

NO_SLOT: Final = -1
NO_SCOPE: Final = -1
NOT_NULLABLE: Final = -1  # in VALID_AT

# the table of slots; positions are in bytes from the start of the arena
KIND, WIDTH, SCOPE_OF, ITEMS_SCOPE, SIZE_CAPACITY, VALID_AT, VALUES_AT, BYTES_AT = range(8)
SLOT_FIELDS: Final = 8
PARTS: Final = SLOT_FIELDS - VALID_AT

# the state of a decoding kernel: which rows (it advances NEXT_ROW), and the limits of a payload
NEXT_ROW, END_ROW, VALUE_BYTES_MAX, ITEMS_MAX, NESTING_MAX, ITEM_COUNT = range(6)
STATE_FIELDS: Final = 6

OK: Final = 0
OUTPUT_FULL: Final = 100  # no fault of the row: the kernel stops and needs larger slots
SCRATCH_BYTES: Final = 40

_ALIGNMENT: Final = 64  # as Arrow recommends; more than any value needs
_OFFSET_BYTES: Final = 4


class SlotKind(IntEnum):
    """What a slot collects."""

    NOTHING = 0  # a count: Arrow's null type
    VALIDITY = 1  # of structs
    FIXED = 2  # values of one width
    SIZED = 3  # offsets and bytes
    LIST = 4  # offsets; the items have slots of their own


class SlotPlan(NamedTuple):
    """What is known of a slot before there is memory for it."""

    kind: SlotKind
    scope: int
    width: int = 0  # bytes of a value, if they are FIXED
    nullable: bool = False
    items: int = NO_SCOPE  # the scope of its items, if that is known to the kernel


@dataclass(frozen=True, slots=True)
class Shape:
    """Which slots make up an Arrow array. A struct that is never null has none of its own."""

    type: "pa.DataType"
    slot: int = NO_SLOT
    children: tuple["Shape", ...] = ()
    names: tuple[tuple[int, str], ...] | None = None  # of an enum: number and name
    has_unique_keys: bool = False  # of a map: the last entry of a key counts


class Slots(NamedTuple):
    """The slots as kernels see them: one arena under several types, and how full each slot is."""

    table: Int64Table  # (slots, SLOT_FIELDS)
    counts: Int64s  # by scope: values that are complete; the next one may be written to
    capacities: Int64s  # by scope
    sizes: Int64s  # by slot: bytes so far of SIZED, items so far of LIST
    full: Int64s  # (2): what was full: a scope and 0, or a slot and how many bytes it needed
    bytes: Bytes
    ints: Int32s
    longs: Int64s
    floats: Floats
    doubles: Doubles
    limbs: UInt64s
    scratch: Bytes  # (SCRATCH_BYTES)


class SlotLayout:
    """All slots of a program as vectors: how large their parts are for a number of values."""

    def __init__(self, plans: Sequence[SlotPlan]) -> None:
        self.plans: tuple[SlotPlan, ...] = tuple(plans)
        self.kinds: Int64s = np.array([plan.kind for plan in plans], dtype=np.int64)
        self.widths: Int64s = np.array([plan.width for plan in plans], dtype=np.int64)
        self.scopes: Int64s = np.array([plan.scope for plan in plans], dtype=np.int64)
        self.items: Int64s = np.array([plan.items for plan in plans], dtype=np.int64)
        self.is_nullable: Bools = np.array([plan.nullable for plan in plans], dtype=np.bool_)
        self.has_offsets: Bools = self.kinds >= SlotKind.SIZED
        self._has_content: Bools = self.kinds == SlotKind.SIZED
        self._value_bytes: Int64s = np.where(self.kinds == SlotKind.FIXED, self.widths, 0)
        self._value_bytes[self.has_offsets] = _OFFSET_BYTES

    def part_bytes(self, counts: Int64s, sizes: Int64s) -> Int64s:
        """Bytes of the parts of each slot: (slots, PARTS)."""
        parts = np.empty((len(self.kinds), PARTS), dtype=np.int64)
        parts[:, 0] = counts * self.is_nullable
        parts[:, 1] = (counts + self.has_offsets) * self._value_bytes
        parts[:, 2] = sizes * self._has_content
        return parts

    def table(self, capacities: Int64s, size_capacities: Int64s) -> tuple[Int64Table, int]:
        """The table of slots for these capacities, and the bytes of an arena that has them."""
        taken = self.part_bytes(capacities[self.scopes], size_capacities)
        taken = -(-taken // _ALIGNMENT) * _ALIGNMENT
        ends = np.cumsum(taken.reshape(-1))
        table = np.empty((len(self.kinds), SLOT_FIELDS), dtype=np.int64)
        table[:, KIND], table[:, WIDTH] = self.kinds, self.widths
        table[:, SCOPE_OF], table[:, ITEMS_SCOPE] = self.scopes, self.items
        table[:, SIZE_CAPACITY] = size_capacities
        table[:, VALID_AT:] = ends.reshape(-1, PARTS) - taken
        table[~self.is_nullable, VALID_AT] = NOT_NULLABLE
        return table, max(int(ends[-1]) if len(ends) else 0, _ALIGNMENT)

    def copy_used(self, counts: Int64s, sizes: Int64s, old: Slots, new: Slots) -> None:
        """Copy what is in use from one arena to another."""
        used = self.part_bytes(counts[self.scopes], sizes)
        is_used = used > 0
        old_starts = old.table[:, VALID_AT:][is_used].tolist()
        new_starts = new.table[:, VALID_AT:][is_used].tolist()
        for start, to, size in zip(old_starts, new_starts, used[is_used].tolist(), strict=True):
            new.bytes[to : to + size] = old.bytes[start : start + size]


@inlined
def mark_valid(slots: Slots, slot: int, index: int) -> None:
    """Set the validity of a value, if the slot has any."""
    valid_at = slots.table[slot, VALID_AT]
    if valid_at >= 0:
        slots.bytes[valid_at + index] = 1
