"""What a decoding program is: instructions, the slots they fill, and what can be wrong with a row.

An instruction is a row of six integers: operation, slot, and four operands. A program reads one
payload from its first byte to its last, in the order the writer wrote; a slot is an Arrow array in
the making and takes one value at a time. Values nobody wants have instructions that step over them
and no slot.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import ConstBytes, Int64s
from penstock.columns.vm.slots import Kind, SlotForms

OP, SLOT, A, B, C, D = range(6)
CODE_FIELDS: Final = 6
NO_SLOT: Final = -1

# Operations that start with a varint: a length, a number, or a choice.
STRING: Final = 0  # text of the length; A: 1 if it is a UUID
BYTES: Final = 1
DECIMAL: Final = 2  # A: width in bytes, B: precision and Wrong, D: powers of ten to multiply by
SKIP_SIZED: Final = 3
SIZED_LAST: Final = 3  # up to here the varint is a length
INT: Final = 4  # A: the least value, B: the greatest
LONG: Final = 5
TIME: Final = 6  # A: one more than the last value allowed, B: width in bytes, C: factor
SCALED: Final = 7  # A: the least value written, B: the greatest, C: factor, D: divisor
TO_FLOAT: Final = 8  # A: 1 if an int was written, 0 if a long
TO_DOUBLE: Final = 9  # A: as above
ENUM: Final = 10  # A: its first row among the symbols, B: how many symbols the writer has
NULLABLE: Final = 11  # A: which branch is null, B: where to go then, C to D: slots that get a null
UNION: Final = 12  # A: its first entry among the jumps, B: how many branches
SKIP_VARINT: Final = 13  # A: the least value, B: the greatest, C: which Wrong beyond them
VARINT_LAST: Final = 13

LIST_NEXT: Final = 14  # A: where an item's instructions start, B: bytes an item has at least
LIST_BEGIN: Final = 15  # A: where its LIST_NEXT is
BOOLEAN: Final = 16
FLOAT: Final = 17
DOUBLE: Final = 18
FLOAT_TO_DOUBLE: Final = 19
FIXED: Final = 20  # A: size in bytes
FIXED_DECIMAL: Final = 21  # A, B, D: as DECIMAL, C: size as written
SKIP_FIXED: Final = 22  # A: size in bytes, B: 1 if they are a boolean
VALID: Final = 23  # a struct that is there
NULLS: Final = 24  # C to D: slots that get a null
JUMP: Final = 25  # A: where to
CALL: Final = 26  # A: where to, B: 1 if it counts as a level; for stepping over recursive types
RETURN: Final = 27  # A: 1 if the call counted as a level
CONSTANT: Final = 28  # A: place in the pool; as many bytes as the slot is wide
CONSTANT_SIZED: Final = 29  # A: place in the pool, B: size in bytes
CONSTANT_LIST: Final = 30  # A: how many items were put before it
FAIL: Final = 31  # A: which Wrong
END: Final = 32


class Wrong(IntEnum):
    """What was wrong with a row; NOTHING if it was right."""

    NOTHING = 0
    TRUNCATED = 1
    TRAILING = 2
    VARINT = 3
    INT_RANGE = 4
    LENGTH = 5
    UTF8 = 6
    BOOLEAN = 7
    UNION = 8
    ENUM = 9
    SYMBOL = 10
    UNRESOLVABLE = 11
    DECIMAL_RANGE = 12
    TIME_RANGE = 13
    ITEMS = 14
    NESTING = 15
    TOO_LARGE = 16
    NULL = 17
    MEMBERS = 18
    UNFIT = 19
    UUID = 20

    @property
    def reason(self) -> str:
        """For people, and for the headers of a quarantined record."""
        return _REASONS[self]


_REASONS: Final = {
    Wrong.NOTHING: "nothing is wrong",
    Wrong.TRUNCATED: "the payload ends before its value does",
    Wrong.TRAILING: "there are bytes after the value",
    Wrong.VARINT: "a number is longer than 64 bits",
    Wrong.INT_RANGE: "a number does not fit its type",
    Wrong.LENGTH: "a length is negative",
    Wrong.UTF8: "a string is not UTF-8",
    Wrong.BOOLEAN: "a boolean is neither 0 nor 1",
    Wrong.UNION: "a union has no branch of that index",
    Wrong.ENUM: "an enum has no symbol of that index",
    Wrong.SYMBOL: "the enum has no such symbol, and no default",
    Wrong.UNRESOLVABLE: "the reader's schema cannot read what the writer's schema wrote",
    Wrong.DECIMAL_RANGE: "a decimal has more digits than its precision allows",
    Wrong.TIME_RANGE: "a date or time is outside the range of its type",
    Wrong.ITEMS: "an array or map has more items than the limit",
    Wrong.NESTING: "values are nested deeper than the limit",
    Wrong.TOO_LARGE: "the payload is larger than the limit",
    Wrong.NULL: "a required field is null",
    Wrong.MEMBERS: "a union has not exactly one member that is set",
    Wrong.UNFIT: "the value does not fit the schema",
    Wrong.UUID: "a text is no UUID",
}
WRONG_SHIFT: Final = 8  # a precision has fewer bits
PRECISION_MASK: Final = (1 << WRONG_SHIFT) - 1


def precision_or(precision: int, wrong: Wrong) -> int:
    """The operand of a decimal: its precision, and what is wrong with one that has more digits."""
    return precision | wrong << WRONG_SHIFT


NEEDS_ROOM: Final = 100  # not an error of the row: the kernel stops and wants larger slots


class SlotPlan(NamedTuple):
    """What a slot collects, before there is memory for it."""

    kind: Kind
    width: int = 0  # bytes of a value, if they are FIXED
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """Which slots make up an Arrow array. A struct that is always there has none of its own."""

    type: pa.DataType
    slot: int = NO_SLOT
    children: tuple["Shape", ...] = ()


@dataclass(frozen=True, slots=True)
class DecodeProgram:
    """Instructions and their tables, and how the slots they fill become columns."""

    code: Int64s  # (instructions, CODE_FIELDS)
    jumps: Int64s
    symbols: Int64s  # (symbols of all enums, 2): place in the pool and size; -1: no such symbol
    pool: ConstBytes
    aligned: Int64s  # lists of slots, for NULLS and NULLABLE
    slots: tuple[SlotPlan, ...]
    forms: SlotForms  # of the slots
    row_slots: tuple[int, int]  # which stretch of `aligned` has a value per row
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]


@dataclass(slots=True)
class Assembler:
    """Collects instructions; places are known as soon as they are put."""

    code: list[tuple[int, ...]] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    symbols: list[tuple[int, int]] = field(default_factory=list)
    pool: bytearray = field(default_factory=bytearray)
    aligned: list[int] = field(default_factory=list)
    slots: list[SlotPlan] = field(default_factory=list)

    @property
    def here(self) -> int:
        """Where the next instruction will be."""
        return len(self.code)

    def put(self, op: int, slot: int = NO_SLOT, *operands: int) -> int:
        """Add an instruction; its place."""
        padded = (*operands, 0, 0, 0, 0)[: CODE_FIELDS - 2]
        self.code.append((op, slot, *padded))
        return len(self.code) - 1

    def patch(self, place: int, operand: int, value: int) -> None:
        """Fill in what was not known when the instruction was put."""
        row = list(self.code[place])
        row[operand] = value
        self.code[place] = tuple(row)

    def slot(self, plan: SlotPlan) -> int:
        """A new slot."""
        self.slots.append(plan)
        return len(self.slots) - 1

    def constant(self, content: bytes) -> int:
        """Where in the pool these bytes are."""
        place = len(self.pool)
        self.pool += content
        return place

    def stretch(self, slots: list[int]) -> tuple[int, int]:
        """The slots as a stretch of `aligned`."""
        start = len(self.aligned)
        self.aligned += slots
        return start, len(self.aligned)

    def assemble(
        self, names: tuple[str, ...], shapes: tuple[Shape, ...], row_slots: list[int]
    ) -> DecodeProgram:
        """The finished program."""
        rows = self.stretch(row_slots)
        return DecodeProgram(
            code=np.array(self.code, dtype=np.int64).reshape(-1, CODE_FIELDS),
            jumps=np.array(self.jumps, dtype=np.int64),
            symbols=np.array(self.symbols, dtype=np.int64).reshape(-1, 2),
            pool=np.frombuffer(bytes(self.pool), dtype=np.uint8),
            aligned=np.array(self.aligned, dtype=np.int64),
            slots=tuple(self.slots),
            forms=SlotForms(self.slots),
            row_slots=rows,
            names=names,
            shapes=shapes,
        )
