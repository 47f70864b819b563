"""What a decoding program is: the fields of messages, the slots they fill, and what can be wrong.

Fields come in any order and any number of times on the wire, so a program is no sequence but a
table: a node per message, a row per field of it. A slot is an Arrow array in the making. A scope
is what has a place of its own in its slots: a payload, an item of a repeated field, an entry of a
map. All fields of a scope write to its current place, the last one wins, and messages that are not
repeated belong to the scope around them: so those that come twice are merged, as Protobuf says.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Int64s
from penstock.columns.vm.slots import Kind, SlotForms

NONE: Final = -1  # no slot, no scope, no node
DEPTH_MAX: Final = 100  # of messages within the outermost one, as upb has it

# how a value is on the wire: the low bits of its tag
VARINT, SIXTY_FOUR, SIZED, GROUP_START, GROUP_END, THIRTY_TWO = range(6)

# a row of `fields`
WIRE, OP, SLOT, LIST, SCOPE, NODE, CLEAR_FROM, CLEAR_TO, ENUM_FROM, ENUM_TO = range(10)
FIELD_COLUMNS: Final = 10

# What a field holds. SLOT may be NONE: the value is stepped over, and clears its oneof.
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
MESSAGE: Final = 10  # NODE: which; SLOT: what is valid because of it
GROUP: Final = 11
SKIP: Final = 12

# a row of `nodes`: where the rows of its fields are found by number
DENSE_AT, DENSE_COUNT, SPARSE_AT, SPARSE_COUNT, IS_ENTRY = range(5)
NODE_COLUMNS: Final = 5

# a row of `scopes`
SLOTS_FROM, SLOTS_TO, CLOSE_FROM, CLOSE_TO, SUBTREE_END, PARENT_LIST = range(6)
SCOPE_COLUMNS: Final = 6

# a row of `closers`: what is done when a scope's place is complete
CLOSE_OP, CLOSE_SLOT, CLOSE_NANOS, CLOSE_PER_SECOND = range(4)
CLOSE_COLUMNS: Final = 4
OFFSETS: Final = 0  # write down where the slot's content ends
TIMESTAMP: Final = 1  # seconds in the slot and nanoseconds in another become one number
DURATION: Final = 2

_DENSE_MIN: Final = 64


class Wrong(IntEnum):
    """What was wrong with a row; NOTHING if it was right."""

    NOTHING = 0
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
        """For people, and for the headers of a quarantined record."""
        return _REASONS[self]


_REASONS: Final = {
    Wrong.NOTHING: "nothing is wrong",
    Wrong.TRUNCATED: "the payload ends before its value does",
    Wrong.VARINT: "a number has more than ten bytes",
    Wrong.TAG: "a field has the number 0, or one beyond the largest",
    Wrong.LENGTH: "a length goes beyond what it is in",
    Wrong.GROUP: "a group ends that did not begin, or does not end",
    Wrong.UTF8: "a string is not UTF-8",
    Wrong.NESTING: f"messages are nested more than {DEPTH_MAX} deep",
    Wrong.ITEMS: "repeated fields have more items than the limit",
    Wrong.TOO_LARGE: "the payload is larger than the limit",
    Wrong.TIME_RANGE: "a time is outside the range that its type has",
    Wrong.UNFIT: "the value does not fit the schema",
    Wrong.NULL: "a required field, an item or a map's value is null",
    Wrong.MEMBERS: "more than one member of a oneof is set",
    Wrong.SYMBOL: "the enum has no such value",
    Wrong.WIRE: "a field has a wire type that there is not",
}

NEEDS_ROOM: Final = 100  # not an error of the row: the kernel stops and wants larger slots


class SlotPlan(NamedTuple):
    """What a slot collects, before there is memory for it."""

    kind: Kind
    scope: int
    width: int = 0  # bytes of a value, if they are FIXED
    nullable: bool = False
    items: int = NONE  # the scope of its items, if it is a LIST


@dataclass(frozen=True, slots=True)
class Shape:
    """Which slots make up an Arrow array. A struct that is always there has none of its own."""

    type: pa.DataType
    slot: int = NONE
    children: tuple["Shape", ...] = ()
    names: tuple[tuple[int, str], ...] | None = None  # of an enum: number and name


@dataclass(frozen=True, slots=True)
class DecodeProgram:
    """Tables, and how the slots they fill become columns."""

    fields: Int64s  # (fields, FIELD_COLUMNS)
    nodes: Int64s  # (nodes, NODE_COLUMNS); the first is the payload itself
    dense: Int64s  # rows of `fields` by number, NONE for a number that no field has
    sparse: Int64s  # (pairs, 2): number and row, for numbers beyond the dense ones
    scopes: Int64s  # (scopes, SCOPE_COLUMNS); a scope is followed by those within it
    members: Int64s  # slots of scopes
    closers: Int64s
    clears: Int64s  # slots of the other members of a oneof
    enums: Int64s  # numbers of closed enums, in order
    slots: tuple[SlotPlan, ...]
    forms: SlotForms  # of the slots
    slot_scopes: Int64s
    slot_items: Int64s  # scopes of their items, NONE where there are none
    names: tuple[str, ...]
    shapes: tuple[Shape, ...]


class Closer(NamedTuple):
    """What is done with a slot when its scope is complete."""

    op: int
    slot: int
    nanos: int = NONE
    per_second: int = 0


@dataclass(slots=True)
class Assembler:
    """Collects tables; what is put has its number at once."""

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

    def slot(self, plan: SlotPlan) -> int:
        """A new slot."""
        self.slots.append(plan)
        slot = len(self.slots) - 1
        if plan.kind >= Kind.SIZED:
            self.close(plan.scope, Closer(OFFSETS, slot))
        return slot

    def close(self, scope: int, closer: Closer) -> None:
        """One more thing to do when a place of the scope is complete."""
        self.closers.append((scope, closer))

    def own_list(self, slot: int, items: int) -> None:
        """Say which scope has the items of a list."""
        self.slots[slot] = self.slots[slot]._replace(items=items)

    def numbers(self, numbers: list[int]) -> tuple[int, int]:
        """A closed enum's numbers as a stretch of `enums`."""
        start = len(self.enums)
        self.enums += sorted(set(numbers))
        return start, len(self.enums)

    def clear_each_other(self, members: list[tuple[int, list[int]]]) -> None:
        """Fields of a oneof with the slots each fills in their scope: one sets, the others go."""
        for row, _ in members:
            start = len(self.clears)
            for other, slots in members:
                if other != row:
                    self.clears += slots
            self.fields[row][CLEAR_FROM : CLEAR_TO + 1] = [start, len(self.clears)]

    def assemble(self, names: tuple[str, ...], shapes: tuple[Shape, ...]) -> DecodeProgram:
        """The finished program."""
        dense, sparse, nodes = self._lookups()
        scopes, members, closers = self._scopes()
        return DecodeProgram(
            fields=_table(self.fields, FIELD_COLUMNS),
            nodes=_table(nodes, NODE_COLUMNS),
            dense=np.array(dense, dtype=np.int64),
            sparse=_table(sparse, 2),
            scopes=_table(scopes, SCOPE_COLUMNS),
            members=np.array(members, dtype=np.int64),
            closers=_table(closers, CLOSE_COLUMNS),
            clears=np.array(self.clears, dtype=np.int64),
            enums=np.array(self.enums, dtype=np.int64),
            slots=tuple(self.slots),
            forms=SlotForms(self.slots),
            slot_scopes=np.array([plan.scope for plan in self.slots], dtype=np.int64),
            slot_items=np.array([plan.items for plan in self.slots], dtype=np.int64),
            names=names,
            shapes=shapes,
        )

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


def _table(rows: object, columns: int) -> Int64s:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)
