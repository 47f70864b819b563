"""What a program over Python values is: instructions that walk dicts and write Avro.

An instruction is a row of six integers as in `program`: operation, object, four operands. There is
one value at hand. FIELD takes the next one from the record that is open; the instructions after it
write that one; lists and maps give their items, one after the other.
"""

from dataclasses import dataclass
from typing import Final

from penstock.columns.compiled import ConstBytes, Int64s

# Values without parts. The object is a converter for what is not exactly an int, or NO_SLOT.
INT: Final = 0
LONG: Final = 1
TIME: Final = 2  # dates and times; A: the least value, B: the greatest
CONVERTED: Final = 3  # the converter makes bytes or None; A: 1 if their length goes in front
ENUM: Final = 4  # the object is a dict of symbols and their numbers
TEXT: Final = 5
SIZED: Final = 6
FIXED: Final = 7  # A: size in bytes
BOOLEAN: Final = 8
FLOAT: Final = 9
DOUBLE: Final = 10
NOTHING: Final = 11  # only None will do
SCALAR_LAST: Final = 11

FIELD: Final = 12  # the object is its name; A: place of its default in the pool or -1, B: size of
# that, C: where to go when the default was written
NULLABLE: Final = 13  # A: which branch is null, B: where to go then
BRANCH: Final = 14  # A: the only branch of a union
RECORD_BEGIN: Final = 15
RECORD_END: Final = 16
LIST_BEGIN: Final = 17  # A: place of its LIST_NEXT
LIST_NEXT: Final = 18  # A: where an item's instructions start
MAP_BEGIN: Final = 19  # A: place of its MAP_NEXT
MAP_NEXT: Final = 20  # A: where a value's instructions start
END: Final = 21

NO_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class DictProgram:
    """Instructions and their tables. The addresses hold as long as the objects do."""

    code: Int64s
    pool: ConstBytes
    objects: tuple[object, ...]
    addresses: Int64s
    depth: int  # how many records, lists and maps are within each other
