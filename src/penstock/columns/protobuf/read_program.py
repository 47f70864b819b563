"""What a program that decodes Protobuf is: fields of messages, slots they fill, faults of a row.

Fields come in any order and any number of times on the wire, so a program is no sequence but a
table: a node per message, a row per field of it. A scope is a payload, an item of a repeated field,
or an entry of a map. All fields of a scope write to its current index and the last one wins; a
message that is not repeated belongs to the scope around it, so one that comes twice is merged.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from penstock.columns.compiled import Int64s, Int64Table
from penstock.columns.vm.assembler import table_of
from penstock.columns.vm.slots import NO_SCOPE, Shape, SlotKind, SlotLayout, SlotPlan

NONE: Final = -1  # no slot, no scope, no node
DEPTH_MAX: Final = 100  # of messages within the outermost one, as upb has it

# how a value is on the wire: the low bits of its tag
VARINT, SIXTY_FOUR, SIZED, GROUP_START, GROUP_END, THIRTY_TWO = range(6)

# a row of `fields`
WIRE, OP, SLOT, LIST, SCOPE, NODE, CLEAR_FROM, CLEAR_TO, ENUM_FROM, ENUM_TO = range(10)
FIELD_COLUMNS: Final = 10

# The type of a field. SLOT may be NONE: the value is skipped, and clears its oneof.
INT32: Final = 0  # also uint32, and enums that take any number
INT64: Final = 1
BOOL: Final = 2
SINT32: Final = 3
SINT64: Final = 4
CLOSED_ENUM: Final = 5  # other numbers than ENUM_FROM to ENUM_TO are unknown fields
FIXED32: Final = 6
FIXED64: Final = 7
PACKABLE_LAST: Final = 7  # up to here a repeated field may come as one sized value
TEXT: Final = 8
BYTES: Final = 9
MESSAGE: Final = 10  # NODE: which; SLOT: what becomes valid by it
GROUP: Final = 11
SKIP: Final = 12

# a row of `nodes`: where the rows of its fields are found by number
DENSE_AT, DENSE_COUNT, SPARSE_AT, SPARSE_COUNT, IS_ENTRY = range(5)
NODE_COLUMNS: Final = 5

# a row of `scopes`
SLOTS_FROM, SLOTS_TO, CLOSE_FROM, CLOSE_TO, SUBTREE_END, PARENT_LIST = range(6)
SCOPE_COLUMNS: Final = 6

# a row of `closers`: what is done when a value of a scope is complete
CLOSE_OP, CLOSE_SLOT, CLOSE_NANOS, CLOSE_PER_SECOND = range(4)
CLOSE_COLUMNS: Final = 4
OFFSETS: Final = 0  # write where the slot's content ends
TIMESTAMP: Final = 1  # seconds in the slot and nanoseconds in another become one number
DURATION: Final = 2

_DENSE_MIN: Final = 64


class ProtobufFault(IntEnum):
    """Why a row is invalid; OK if it is not."""

    OK = 0
    TRUNCATED = 1
    VARINT = 2
    TAG = 3
    LENGTH = 4
    GROUP = 5
    UTF8 = 6
    NESTING = 7
    ITEMS = 8
    TOO_LARGE = 9
    TIME_RANGE = 10
    UNFIT = 11
    NULL = 12
    MEMBERS = 13
    SYMBOL = 14
    WIRE = 15

    @property
    def reason(self) -> str:
        """The fault as a sentence, for errors and the headers of a quarantined record."""
        return _REASONS[self]


_REASONS: Final = {
    ProtobufFault.OK: "valid",
    ProtobufFault.TRUNCATED: "the payload ends before its value does",
    ProtobufFault.VARINT: "a number has more than ten bytes",
    ProtobufFault.TAG: "a field has the number 0, or one beyond the largest",
    ProtobufFault.LENGTH: "a length goes beyond what it is in",
    ProtobufFault.GROUP: "a group ends that did not begin, or does not end",
    ProtobufFault.UTF8: "a string is not UTF-8",
    ProtobufFault.NESTING: f"messages are nested more than {DEPTH_MAX} deep",
    ProtobufFault.ITEMS: "repeated fields have more items than the limit",
    ProtobufFault.TOO_LARGE: "the payload is larger than the limit",
    ProtobufFault.TIME_RANGE: "a time is outside the range that its type has",
    ProtobufFault.UNFIT: "the value does not fit the schema",
    ProtobufFault.NULL: "a required field, an item or a map's value is null",
    ProtobufFault.MEMBERS: "more than one member of a oneof is set",
    ProtobufFault.SYMBOL: "the enum has no such value",
    ProtobufFault.WIRE: "a field has a wire type that there is not",
}


class ProtobufReadTables(NamedTuple):
    """The tables of a program, as kernels see them."""

    fields: Int64Table  # (fields, FIELD_COLUMNS)
    nodes: Int64Table  # (nodes, NODE_COLUMNS); the first is the payload itself
    dense: Int64s  # rows of `fields` by number, NONE for a number that no field has
    sparse: Int64Table  # (pairs, 2): number and row, for numbers beyond the dense ones
    scopes: Int64Table  # (scopes, SCOPE_COLUMNS); a scope is followed by those within it
    members: Int64s  # slots of scopes
    closers: Int64Table
    clears: Int64s  # slots of the other members of a oneof
    enums: Int64s  # numbers of closed enums, in order


@dataclass(frozen=True, slots=True)
class ProtobufReadProgram:
    """Tables, and how the slots they fill become columns."""

    tables: ProtobufReadTables
    layout: SlotLayout
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]

    @property
    def row_scopes(self) -> Int64s:
        """The first scope is a payload."""
        return _FIRST_SCOPE

    @property
    def scope_count(self) -> int:
        """How many scopes there are."""
        return len(self.tables.scopes)


_FIRST_SCOPE: Final = np.zeros(1, dtype=np.int64)


class Closer(NamedTuple):
    """What is done with a slot when a value of its scope is complete."""

    op: int
    slot: int
    nanos: int = NONE
    per_second: int = 0


@dataclass(slots=True)
class ProtobufReadAssembler:
    """Collects tables; the index of what is put is known immediately."""

    fields: list[list[int]] = field(default_factory=list)
    nodes: list[tuple[dict[int, int], bool]] = field(default_factory=list)
    parents: list[tuple[int, int]] = field(default_factory=list)  # of scopes: list slot, end
    closers: list[tuple[int, Closer]] = field(default_factory=list)
    clears: list[int] = field(default_factory=list)
    enums: list[int] = field(default_factory=list)
    slots: list[SlotPlan] = field(default_factory=list)

    def node(self, *, is_entry: bool = False) -> int:
        """A new message."""
        self.nodes.append(({}, is_entry))
        return len(self.nodes) - 1

    def put(self, message: int, number: int, /, **columns: int) -> int:
        """A field of a message; columns by their name in small letters."""
        row = [NONE] * FIELD_COLUMNS
        row[CLEAR_FROM] = row[CLEAR_TO] = row[ENUM_FROM] = row[ENUM_TO] = 0
        for name, value in columns.items():
            row[_COLUMNS[name]] = value
        self.fields.append(row)
        self.nodes[message][0][number] = len(self.fields) - 1
        return len(self.fields) - 1

    def scope(self, parent_list: int = NONE) -> int:
        """A new scope; those within it are made before it is ended."""
        self.parents.append((parent_list, NONE))
        return len(self.parents) - 1

    def end_scope(self, scope: int) -> None:
        """All scopes within this one have been made."""
        self.parents[scope] = (self.parents[scope][0], len(self.parents))

    def slot(self, kind: SlotKind, scope: int, width: int = 0, *, nullable: bool = False) -> int:
        """A new slot."""
        self.slots.append(SlotPlan(kind, scope, width, nullable, NO_SCOPE))
        slot = len(self.slots) - 1
        if kind >= SlotKind.SIZED:
            self.close(scope, Closer(OFFSETS, slot))
        return slot

    def close(self, scope: int, closer: Closer) -> None:
        """One more thing to do when a value of the scope is complete."""
        self.closers.append((scope, closer))

    def own_list(self, slot: int, items: int) -> None:
        """Say which scope has the items of a list."""
        self.slots[slot] = self.slots[slot]._replace(items=items)

    def numbers(self, numbers: list[int]) -> tuple[int, int]:
        """Where a closed enum's numbers are in `enums`: from the first index to the second."""
        start = len(self.enums)
        self.enums += sorted(set(numbers))
        return start, len(self.enums)

    def clear_each_other(self, members: list[tuple[int, list[int]]]) -> None:
        """Fields of a oneof with the slots each fills: setting one clears the others."""
        for row, _ in members:
            start = len(self.clears)
            for other, slots in members:
                if other != row:
                    self.clears += slots
            self.fields[row][CLEAR_FROM : CLEAR_TO + 1] = [start, len(self.clears)]

    def assemble(self, names: tuple[str, ...], shapes: tuple[Shape, ...]) -> ProtobufReadProgram:
        """The finished program."""
        dense, sparse, nodes = self._lookups()
        scopes, members, closers = self._scopes()
        tables = ProtobufReadTables(
            fields=table_of(self.fields, FIELD_COLUMNS),
            nodes=table_of(nodes, NODE_COLUMNS),
            dense=np.array(dense, dtype=np.int64),
            sparse=table_of(sparse, 2),
            scopes=table_of(scopes, SCOPE_COLUMNS),
            members=np.array(members, dtype=np.int64),
            closers=table_of(closers, CLOSE_COLUMNS),
            clears=np.array(self.clears, dtype=np.int64),
            enums=np.array(self.enums, dtype=np.int64),
        )
        return ProtobufReadProgram(tables, SlotLayout(self.slots), names, shapes)

    def _lookups(self) -> tuple[list[int], list[tuple[int, int]], list[list[int]]]:
        dense: list[int] = []
        sparse: list[tuple[int, int]] = []
        nodes = []
        for by_number, is_entry in self.nodes:
            count = min(max(by_number, default=0) + 1, _DENSE_MIN + 4 * len(by_number))
            far = sorted((number, row) for number, row in by_number.items() if number >= count)
            nodes.append([len(dense), count, len(sparse), len(far), int(is_entry)])
            dense += [by_number.get(number, NONE) for number in range(count)]
            sparse += far
        return dense, sparse, nodes

    def _scopes(self) -> tuple[list[list[int]], list[int], list[Closer]]:
        slots_of: list[list[int]] = [[] for _ in self.parents]
        for slot, plan in enumerate(self.slots):
            slots_of[plan.scope].append(slot)
        closers_of: list[list[Closer]] = [[] for _ in self.parents]
        for scope, closer in self.closers:
            closers_of[scope].append(closer)
        members: list[int] = []
        closers: list[Closer] = []
        scopes = []
        for (parent, end), slots, closing in zip(self.parents, slots_of, closers_of, strict=True):
            assert end != NONE, "every scope is ended"
            ends = (len(members), len(members) + len(slots))
            scopes.append([*ends, len(closers), len(closers) + len(closing), end, parent])
            members += slots
            closers += closing
        return scopes, members, closers


_COLUMNS: Final = {
    "wire": WIRE,
    "op": OP,
    "slot": SLOT,
    "list_slot": LIST,
    "scope": SCOPE,
    "node": NODE,
    "enum_from": ENUM_FROM,
    "enum_to": ENUM_TO,
}
