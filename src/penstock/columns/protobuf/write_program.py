"""What a program that encodes Protobuf is: instructions over Arrow columns, run backward.

A length comes before what it measures, so payloads are written from their last byte to their first:
the fields of a message from the largest number to the smallest, the items of a list from the last
to the first, and each value before its tag. An instruction is a row of integers; an input is an
Arrow array laid out in the arena.
"""

from dataclasses import dataclass
from typing import Final

from penstock.columns.compiled import ConstBytes, Int64s, Int64Table

OP, SOURCE, TAG, MODE, A, B, C = range(7)
CODE_FIELDS: Final = 7

# values without parts, by their inputs
INT32: Final = 0
UINT32: Final = 1
INT64: Final = 2
BOOL: Final = 3
SINT32: Final = 4
SINT64: Final = 5
RAW: Final = 6  # A: width in bytes
TEXT: Final = 7
BYTES: Final = 8
ENUM: Final = 9  # A: its first row among the symbols, B: how many, C: 1 if it is closed
TIMESTAMP: Final = 10  # A: units in a second
DURATION: Final = 11
SCALAR_LAST: Final = 11

# Messages and lists, in the order in which they are run: the end comes first.
MESSAGE_END: Final = 12  # A: where to go when it is null, B: the tag that ends a group, or 0
MESSAGE_BEGIN: Final = 13  # TAG; B: 1 if it is a group
LIST_END: Final = 14  # A: where to go when it is empty
LIST_NEXT: Final = 15  # A: where an item's instructions start; TAG: of all items if packed, or 0
ONEOF: Final = 16  # A: its first row among the members, B: how many
END: Final = 17

# what a null means, and what a default
OPTIONAL: Final = 0  # a null is not written, all else is
IMPLICIT: Final = 1  # neither is the default
REQUIRED: Final = 2  # a null is a fault
NO_TAG: Final = 0

SYMBOL_AT, SYMBOL_SIZE, SYMBOL_NUMBER = range(3)
SYMBOL_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class ProtobufWriteProgram:
    """Instructions and their tables. `inputs` is how many arrays they read."""

    code: Int64Table
    members: Int64s  # inputs of oneofs
    symbols: Int64Table  # of all enums: SYMBOL_FIELDS
    pool: ConstBytes
    inputs: int
