"""What a program that encodes Avro is: instructions over Arrow columns, one row at a time.

An instruction is a row of six integers as in `read_program`: operation, input, operands. An input
is an Arrow array laid out in the arena; all inputs of one level of nesting are read at the same
index, and entering a list changes the index for the inputs below it.
"""

from dataclasses import dataclass
from typing import Final

from penstock.columns.compiled import ConstBytes, Int64Table

INT: Final = 0  # four bytes to a varint
LONG: Final = 1
TIME: Final = 2  # dates and times; A: the minimum, B: the maximum, C: width in bytes
RAW: Final = 3  # A: width in bytes: booleans, floats, fixed
TEXT: Final = 4  # A: 1 if it is a UUID
SIZED: Final = 5
DECIMAL: Final = 6  # A: width in bytes; written in the fewest bytes
FIXED_DECIMAL: Final = 7  # A: width in bytes, B: size to write
ENUM: Final = 8  # A: its first row among the symbols, B: how many
NULLABLE: Final = 9  # A: which branch is null, B: where to go then
UNION: Final = 10  # A: its first row among the members, B: how many, C: which branch is null or -1
REQUIRED: Final = 11  # a struct that must not be null
LIST_BEGIN: Final = 12  # A: index of its LIST_NEXT
LIST_NEXT: Final = 13  # A: where an item's instructions start
JUMP: Final = 14  # A: where to
END: Final = 15

MEMBER_INPUT, MEMBER_BRANCH, MEMBER_CODE = range(3)  # a row of the members of unions
MEMBER_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class AvroWriteProgram:
    """Instructions and their tables. `inputs` is how many arrays they read."""

    code: Int64Table
    members: Int64Table
    symbols: Int64Table  # position in the pool and size
    pool: ConstBytes
    inputs: int
