"""What a program over Python values is: instructions that walk dicts and write Avro.

An instruction is a row of six integers as in `read_program`: operation, object, operands. There is
one current value. FIELD takes the next one from the record that is open; the instructions after it
write that one; lists and maps give their items, one after the other.
"""

from dataclasses import dataclass
from typing import Final

from penstock.columns.compiled import ConstBytes, Int64s, Int64Table

# Values without parts. The object is a converter for what is not exactly an int, or NOTHING.
INT: Final = 0
LONG: Final = 1
TIME: Final = 2  # dates and times; A: the minimum, B: the maximum
CONVERTED: Final = 3  # the converter makes bytes or None; A: 1 if their length is written too
ENUM: Final = 4  # the object is a dict of symbols and their numbers
TEXT: Final = 5
SIZED: Final = 6
FIXED: Final = 7  # A: size in bytes
BOOLEAN: Final = 8
FLOAT: Final = 9
DOUBLE: Final = 10
NULL: Final = 11  # must be None
SCALAR_LAST: Final = 11

# The object of a field is its name; A: position of its default in the pool or -1, B: size of that,
# C: where to go when the default was written.
FIELD: Final = 12
NULLABLE: Final = 13  # A: which branch is null, B: where to go then
BRANCH: Final = 14  # A: the only branch of a union
RECORD_BEGIN: Final = 15
RECORD_END: Final = 16
LIST_BEGIN: Final = 17  # A: index of its LIST_NEXT
LIST_NEXT: Final = 18  # A: where an item's instructions start
MAP_BEGIN: Final = 19  # A: index of its MAP_NEXT
MAP_NEXT: Final = 20  # A: where a value's instructions start
END: Final = 21

NO_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class AvroDictProgram:
    """Instructions and their tables. The addresses are valid as long as the objects live."""

    code: Int64Table
    pool: ConstBytes
    objects: tuple[object, ...]
    addresses: Int64s
    depth: int  # how many records, lists and maps are within each other
