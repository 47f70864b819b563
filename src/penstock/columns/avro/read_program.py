"""What a program that decodes Avro is: instructions, the slots they fill, and the faults of a row.

An instruction is a row of six integers: operation, slot, and four operands. A program reads one
payload from its first byte to its last, in the order of the writer's schema, and adds each value to
a slot. Values of columns that were not requested have instructions that skip them, and no slot.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from penstock.columns.compiled import ConstBytes, Int64s, Int64Table
from penstock.columns.vm.assembler import Assembler, table_of
from penstock.columns.vm.slots import Shape, SlotKind, SlotLayout, SlotPlan

OP, SLOT, A, B, C, D = range(6)
CODE_FIELDS: Final = 6

# Operations that start with a varint: a length, a number, or a choice.
STRING: Final = 0  # text of the length; A: 1 if it is a UUID
BYTES: Final = 1
DECIMAL: Final = 2  # A: width in bytes, B: precision and fault, D: powers of ten to multiply by
SKIP_SIZED: Final = 3
SIZED_LAST: Final = 3  # up to here the varint is a length
INT: Final = 4  # A: the minimum, B: the maximum
LONG: Final = 5
TIME: Final = 6  # A: one more than the last value allowed, B: width in bytes, C: factor
SCALED: Final = 7  # A: the minimum as written, B: the maximum, C: factor, D: divisor
TO_FLOAT: Final = 8  # A: 1 if an int was written, 0 if a long
TO_DOUBLE: Final = 9  # A: as above
ENUM: Final = 10  # A: its first row among the symbols, B: how many symbols the writer has
NULLABLE: Final = 11  # A: which branch is null, B: where to go then, C to D: slots that get a null
UNION: Final = 12  # A: its first entry among the jumps, B: how many branches
SKIP_VARINT: Final = 13  # A: the minimum, B: the maximum, C: the fault beyond them
VARINT_LAST: Final = 13

LIST_NEXT: Final = 14  # A: where an item's instructions start, B: the least bytes of an item
LIST_BEGIN: Final = 15  # A: where its LIST_NEXT is
BOOLEAN: Final = 16
FLOAT: Final = 17
DOUBLE: Final = 18
FLOAT_TO_DOUBLE: Final = 19
FIXED: Final = 20  # A: size in bytes
FIXED_DECIMAL: Final = 21  # A, B, D: as DECIMAL, C: size as written
SKIP_FIXED: Final = 22  # A: size in bytes, B: 1 if they are a boolean
VALID: Final = 23  # a struct that is not null
NULLS: Final = 24  # C to D: slots that get a null, in the lists of slots
JUMP: Final = 25  # A: where to
CALL: Final = 26  # A: where to, B: 1 if it counts as a level; to skip recursive types
RETURN: Final = 27  # A: 1 if the call counted as a level
CONSTANT: Final = 28  # A: position in the pool; as many bytes as the slot is wide
CONSTANT_SIZED: Final = 29  # A: position in the pool, B: size in bytes
CONSTANT_LIST: Final = 30  # A: how many items were put before it
FAIL: Final = 31  # A: the fault
END: Final = 32


class AvroFault(IntEnum):
    """Why a row is invalid; OK if it is not."""

    OK = 0
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
        """The fault as a sentence, for errors and the headers of a quarantined record."""
        return _REASONS[self]


_REASONS: Final = {
    AvroFault.OK: "valid",
    AvroFault.TRUNCATED: "the payload ends before its value does",
    AvroFault.TRAILING: "there are bytes after the value",
    AvroFault.VARINT: "a number is longer than 64 bits",
    AvroFault.INT_RANGE: "a number does not fit its type",
    AvroFault.LENGTH: "a length is negative",
    AvroFault.UTF8: "a string is not UTF-8",
    AvroFault.BOOLEAN: "a boolean is neither 0 nor 1",
    AvroFault.UNION: "a union has no branch of that index",
    AvroFault.ENUM: "an enum has no symbol of that index",
    AvroFault.SYMBOL: "the enum has no such symbol, and no default",
    AvroFault.UNRESOLVABLE: "the reader's schema cannot read what the writer's schema wrote",
    AvroFault.DECIMAL_RANGE: "a decimal has more digits than its precision allows",
    AvroFault.TIME_RANGE: "a date or time is outside the range of its type",
    AvroFault.ITEMS: "an array or map has more items than the limit",
    AvroFault.NESTING: "values are nested deeper than the limit",
    AvroFault.TOO_LARGE: "the payload is larger than the limit",
    AvroFault.NULL: "a required field is null",
    AvroFault.MEMBERS: "a union has not exactly one member that is set",
    AvroFault.UNFIT: "the value does not fit the schema",
    AvroFault.UUID: "a text is not a UUID",
}
FAULT_SHIFT: Final = 8  # a precision has fewer bits
PRECISION_MASK: Final = (1 << FAULT_SHIFT) - 1


def precision_or(precision: int, fault: AvroFault) -> int:
    """The operand of a decimal: its precision, and the fault of one that has more digits."""
    return precision | fault << FAULT_SHIFT


@dataclass(frozen=True, slots=True)
class AvroReadProgram:
    """Instructions and their tables, and how the slots they fill become columns."""

    code: Int64Table
    jumps: Int64s
    symbols: Int64Table  # of all enums: position in the pool and size; -1: no such symbol
    pool: ConstBytes
    slot_lists: Int64s  # lists of slots, for NULLS and NULLABLE
    row_scopes: Int64s  # slots with a value per row; a scope is a slot here
    layout: SlotLayout
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @property
    def scope_count(self) -> int:
        """A scope per slot."""
        return len(self.layout.plans)


class AvroReadAssembler(Assembler):
    """Collects instructions, jumps, slots and lists of slots."""

    def __init__(self) -> None:
        super().__init__(CODE_FIELDS)
        self.jumps: list[int] = []
        self._slot_lists: list[int] = []
        self._slots: list[SlotPlan] = []

    def slot(self, kind: SlotKind, width: int = 0, *, nullable: bool = False) -> int:
        """A new slot."""
        index = len(self._slots)
        self._slots.append(SlotPlan(kind, index, width, nullable))
        return index

    def slot_list(self, slots: list[int]) -> tuple[int, int]:
        """Where the slots are listed: from the first index to the second."""
        start = len(self._slot_lists)
        self._slot_lists += slots
        return start, len(self._slot_lists)

    def assemble(
        self, names: tuple[str, ...], shapes: tuple[Shape, ...], row_slots: list[int]
    ) -> AvroReadProgram:
        """The finished program."""
        return AvroReadProgram(
            code=self.code(),
            jumps=np.array(self.jumps, dtype=np.int64),
            symbols=table_of(self.symbols, 2),
            pool=self.pool(),
            slot_lists=np.array(self._slot_lists, dtype=np.int64),
            row_scopes=np.array(row_slots, dtype=np.int64),
            layout=SlotLayout(self._slots),
            names=names,
            shapes=shapes,
        )
