"""What a program over Python values is: instructions that walk dicts and write Protobuf.

An instruction is a row of integers. There is one value at hand. FIELD takes the next one from the
message that is open, in the order of the fields' numbers; the instructions after it write that one
with its tag; lists and maps give their items, one after the other. A length is written when what it
measures is complete: a byte is left free for it, and the content moves if it takes more.
"""

from dataclasses import dataclass
from typing import Final

from penstock.columns.compiled import Int64s, Int64Table

OP, OBJECT, TAG, MODE, A, B, C = range(7)
CODE_FIELDS: Final = 7
NO_OBJECT: Final = -1
NO_TAG: Final = 0

# Values without parts. Whole numbers are from A to B.
VARINT: Final = 0
ZIGZAG: Final = 1
UNSIGNED: Final = 2  # a varint of 64 bits without sign
FIXED: Final = 3  # C: width in bytes
UNSIGNED_FIXED: Final = 4  # 64 bits without sign
NUMBER_LAST: Final = 4
ENUM: Final = 5  # the object is a dict of names and numbers to numbers; C: 1 if it is closed
BOOL: Final = 6
FLOAT: Final = 7
DOUBLE: Final = 8
TEXT: Final = 9
BYTES: Final = 10
CONVERTED: Final = 11  # a message: the object makes its bytes; C: the tag that ends a group, or 0
SCALAR_LAST: Final = 11

FIELD: Final = 12  # the object is its name; MODE; A: where to go when it is not there, B: which
# oneofs it is of, as a bit
MESSAGE_BEGIN: Final = 13  # A: where to go after it; the object makes bytes of what is no dict;
# C: the tag that ends a group, or 0
MESSAGE_END: Final = 14  # TAG: that of MESSAGE_BEGIN, C: as well
LIST_BEGIN: Final = 15  # A: index of its LIST_NEXT; TAG: of all items if packed
LIST_NEXT: Final = 16  # A: where an item's instructions start; TAG as above
MAP_BEGIN: Final = 17  # A: index of its MAP_NEXT; TAG: of an entry
MAP_VALUE: Final = 18  # from the key of an entry to its value
MAP_NEXT: Final = 19  # A: where a key's instructions start; TAG as above
END: Final = 20

# what a default means, and what it means that there is nothing
ALWAYS: Final = 0  # written, whatever it is
IMPLICIT: Final = 1  # the default is not written
REQUIRED: Final = 2  # of FIELD: it must be there

ONEOFS_MAX: Final = 62  # in one message: bits of a number


@dataclass(frozen=True, slots=True)
class ProtobufDictProgram:
    """Instructions and their objects. The addresses are valid as long as the objects live."""

    code: Int64Table
    objects: tuple[object, ...]
    addresses: Int64s
    depth: int  # how many messages, lists and maps are within each other
