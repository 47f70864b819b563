"""Where a decoding program puts what it reads: a tree of slots beside the reader's schema.

Defaults of fields that were not written, as instructions: the same value for every row.

Instructions that step over values that are not read, whatever their type, recursive ones as well.

What is stepped over is looked at all the same: whether an event is wrong does not depend on which
of its fields a reader wants, texts and decimals aside, which would have to be read for that.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.columns.avro import read_program as ops
from penstock.columns.avro.read_program import AvroFault, AvroReadAssembler
from penstock.columns.vm.slots import NO_SLOT, Shape, SlotKind
from penstock.schemas.avro.tree import (
    PRIMITIVES,
    Absent,
    Array,
    AvroType,
    Enum,
    Fixed,
    JsonValue,
    Map,
    Node,
    Record,
    Union,
)
from penstock.schemas.avro.types import is_valid_default
from penstock.serde.avro.event_defaults import NoConstantError, constant
from penstock.serde.avro.logical_types import decimal_of
from penstock.serde.avro.sizes import bytes_min, self_containing
from penstock.serde.avro.types import arrow_type, decimal_bytes, is_nullable, values_of

KEY: Final = PRIMITIVES["string"]  # of a map
_WIDTHS: Final = {
    AvroType.BOOLEAN: 1,
    AvroType.INT: 4,
    AvroType.LONG: 8,
    AvroType.FLOAT: 4,
    AvroType.DOUBLE: 8,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A reader's type with the slots for its values. `children` are in the type's own order."""

    node: Node  # what is read into it; for [null, X] that is X
    type: pa.DataType
    slot: int
    children: tuple["Target", ...] = ()

    @property
    def shape(self) -> Shape:
        """How the slots become an Arrow array."""
        parts = tuple(child.shape for child in self.children)
        if isinstance(self.node, Map):
            parts = (Shape(_entries(self.type), NO_SLOT, parts),)
        return Shape(self.type, self.slot, parts)

    def row_slots(self) -> Iterator[int]:
        """The slots that get a value whenever this target gets one; not those of list items."""
        if self.slot != NO_SLOT:
            yield self.slot
        if not isinstance(self.node, Array | Map):
            for child in self.children:
                yield from child.row_slots()


def _entries(type_: pa.DataType) -> pa.DataType:
    assert isinstance(type_, pa.MapType)
    return pa.struct([type_.key_field, type_.item_field])


def target_for(node: Node, assembler: AvroReadAssembler, *, nullable: bool = False) -> Target:
    """Slots for a type whose Arrow type is known to exist."""
    if isinstance(node, Union):
        values = values_of(node)
        if len(values) == 1:
            return target_for(values[0], assembler, nullable=nullable or is_nullable(node))
        if not values:
            return Target(node, arrow_type(node), assembler.slot(SlotKind.NOTHING))
        slot = _struct_slot(assembler, nullable=nullable or is_nullable(node))
        members = tuple(target_for(branch, assembler, nullable=True) for branch in values)
        return Target(node, arrow_type(node), slot, members)
    if isinstance(node, Record):
        slot = _struct_slot(assembler, nullable=nullable)
        fields = tuple(target_for(field.type, assembler) for field in node.fields)
        return Target(node, arrow_type(node), slot, fields)
    if isinstance(node, Array | Map):
        slot = assembler.slot(SlotKind.LIST, nullable=nullable)
        return Target(node, arrow_type(node), slot, _items(node, assembler))
    return Target(node, arrow_type(node), _leaf_slot(node, assembler, nullable=nullable))


def _items(node: Array | Map, assembler: AvroReadAssembler) -> tuple[Target, ...]:
    if isinstance(node, Array):
        return (target_for(node.items, assembler),)
    return target_for(KEY, assembler), target_for(node.values, assembler)


def _struct_slot(assembler: AvroReadAssembler, *, nullable: bool) -> int:
    return assembler.slot(SlotKind.VALIDITY, nullable=True) if nullable else NO_SLOT


def _leaf_slot(node: Node, assembler: AvroReadAssembler, *, nullable: bool) -> int:
    decimal = decimal_of(node)
    if decimal is not None:
        return assembler.slot(SlotKind.FIXED, decimal_bytes(decimal.precision), nullable=nullable)
    if isinstance(node, Fixed):
        return assembler.slot(SlotKind.FIXED, node.size, nullable=nullable)
    if node.kind is AvroType.NULL:
        return assembler.slot(SlotKind.NOTHING)
    if node.kind in _WIDTHS:
        return assembler.slot(SlotKind.FIXED, _WIDTHS[node.kind], nullable=nullable)
    return assembler.slot(SlotKind.SIZED, nullable=nullable)


_LAYOUTS: Final = {
    AvroType.BOOLEAN: "<?",
    AvroType.INT: "<i",
    AvroType.LONG: "<q",
    AvroType.FLOAT: "<f",
    AvroType.DOUBLE: "<d",
}
_ONE_BYTE_EACH: Final = "latin-1"  # how a default writes bytes


def put_constant(
    assembler: AvroReadAssembler, node: Node, value: JsonValue | Absent, target: Target
) -> None:
    """Put `value`, a default of type `node`, into the target. What does not fit fails the row."""
    try:
        constant(node, value)
    except NoConstantError:
        assembler.put(ops.FAIL, NO_SLOT, AvroFault.UNRESOLVABLE)
    else:
        _put(assembler, node, value, target)


def _put(
    assembler: AvroReadAssembler, node: Node, value: JsonValue | Absent, target: Target
) -> None:
    assert not isinstance(value, Absent), "there is a constant"
    if isinstance(node, Union):
        _put_union(assembler, node, value, target)
    elif isinstance(node, Record):
        assert isinstance(value, dict)
        if target.slot != NO_SLOT:
            assembler.put(ops.VALID, target.slot)
        for field, child in zip(node.fields, target.children, strict=True):
            _put(assembler, field.type, value.get(field.name, field.default), child)
    elif isinstance(node, Array):
        assert isinstance(value, list)
        for item in value:
            _put(assembler, node.items, item, target.children[0])
        assembler.put(ops.CONSTANT_LIST, target.slot, len(value))
    elif isinstance(node, Map):
        assert isinstance(value, dict)
        for key, item in value.items():
            _put_sized(assembler, key.encode(), target.children[0].slot)
            _put(assembler, node.values, item, target.children[1])
        assembler.put(ops.CONSTANT_LIST, target.slot, len(value))
    else:
        _put_scalar(assembler, node, value, target.slot)


def _put_union(
    assembler: AvroReadAssembler, union: Union, value: JsonValue, target: Target
) -> None:
    """Avro takes the first branch that the default fits."""
    branch = next(branch for branch in union.branches if is_valid_default(branch, value))
    values = values_of(union)
    if branch.kind is AvroType.NULL:
        _put_nulls(assembler, target)
    elif len(values) == 1:
        _put(assembler, branch, value, target)
    else:
        if target.slot != NO_SLOT:
            assembler.put(ops.VALID, target.slot)
        for candidate, member in zip(values, target.children, strict=True):
            if candidate is branch:
                _put(assembler, branch, value, member)
            else:
                _put_nulls(assembler, member)


def _put_nulls(assembler: AvroReadAssembler, target: Target) -> None:
    assembler.put(ops.NULLS, NO_SLOT, 0, 0, *assembler.slot_list(list(target.row_slots())))


def _put_sized(assembler: AvroReadAssembler, content: bytes, slot: int) -> None:
    assembler.put(ops.CONSTANT_SIZED, slot, assembler.constant(content), len(content))


def _put_scalar(assembler: AvroReadAssembler, node: Node, value: JsonValue, slot: int) -> None:
    if node.kind is AvroType.NULL:
        assembler.put(ops.NULLS, NO_SLOT, 0, 0, *assembler.slot_list([slot]))
    elif node.kind in _LAYOUTS:
        constant = assembler.constant(struct.pack(_LAYOUTS[node.kind], value))
        assembler.put(ops.CONSTANT, slot, constant)
    else:
        assert isinstance(value, str)
        _put_text(assembler, node, value, slot)


def _put_text(assembler: AvroReadAssembler, node: Node, text: str, slot: int) -> None:
    if node.kind is AvroType.STRING or isinstance(node, Enum):
        _put_sized(assembler, text.encode(), slot)
        return
    content = text.encode(_ONE_BYTE_EACH)
    decimal = decimal_of(node)
    if decimal is not None:
        number = int.from_bytes(content, "big", signed=True)
        width = decimal_bytes(decimal.precision)
        constant = assembler.constant(number.to_bytes(width, "little", signed=True))
        assembler.put(ops.CONSTANT, slot, constant)
    elif isinstance(node, Fixed):
        assembler.put(ops.CONSTANT, slot, assembler.constant(content))
    else:
        _put_sized(assembler, content, slot)


def put_branches(assembler: AvroReadAssembler, union: Union, put: Callable[[Node], None]) -> None:
    """A choice by the branch that was written; `put` puts the instructions of one."""
    first = len(assembler.jumps)
    assembler.jumps += [0] * len(union.branches)
    assembler.put(ops.UNION, NO_SLOT, first, len(union.branches))
    exits = []
    for index, branch in enumerate(union.branches):
        assembler.jumps[first + index] = assembler.here
        put(branch)
        exits.append(assembler.put(ops.JUMP))
    for jump in exits:
        assembler.patch(jump, ops.A, assembler.here)


_BYTES: Final = {
    AvroType.NULL: 0,
    AvroType.FLOAT: 4,
    AvroType.DOUBLE: 8,
}
_RANGES: Final = {AvroType.INT: (-(2**31), 2**31 - 1), AvroType.LONG: (-(2**63), 2**63 - 1)}
_SIZED: Final = (AvroType.STRING, AvroType.BYTES)


class Skipping:
    """Puts such instructions. A record that may be in itself is a subroutine, whose calls count as
    levels; one met a second time is one too, so that diamonds are not written out."""

    def __init__(self, assembler: AvroReadAssembler, writer: Node) -> None:
        self._asm = assembler
        self._endless = self_containing(writer)
        self._met: set[int] = set()
        self._calls: dict[int, tuple[Record, list[int]]] = {}  # places to patch, by id of record

    def put(self, node: Node) -> None:
        """Step over one value."""
        if isinstance(node, Record):
            self._put_record(node)
        elif isinstance(node, Union):
            put_branches(self._asm, node, self.put)
        elif isinstance(node, Array):
            self._put_items((node.items,), bytes_min(node.items))
        elif isinstance(node, Map):
            self._put_map(node)
        elif isinstance(node, Fixed):
            self._put_plain(node.size)
        elif node.kind in _BYTES:
            self._put_plain(_BYTES[node.kind])
        elif node.kind in _SIZED:
            self._asm.put(ops.SKIP_SIZED)
        elif node.kind is AvroType.BOOLEAN:
            self._asm.put(ops.SKIP_FIXED, NO_SLOT, 1, 1)
        elif isinstance(node, Enum):
            self._asm.put(ops.SKIP_VARINT, NO_SLOT, 0, len(node.symbols) - 1, AvroFault.ENUM)
        else:
            self._asm.put(ops.SKIP_VARINT, NO_SLOT, *_RANGES[node.kind], AvroFault.INT_RANGE)

    def put_subroutines(self) -> None:
        """The bodies of all calls, after the program's end."""
        placed: dict[int, int] = {}
        while len(placed) < len(self._calls):
            for key, (record, _) in list(self._calls.items()):
                if key not in placed:
                    placed[key] = self._asm.here
                    for field in record.fields:
                        self.put(field.type)
                    self._asm.put(ops.RETURN, NO_SLOT, int(key in self._endless))
        for key, (_, places) in self._calls.items():
            for place in places:
                self._asm.patch(place, ops.A, placed[key])

    def _put_record(self, record: Record) -> None:
        key = id(record)
        if key in self._met or key in self._endless:
            _, places = self._calls.setdefault(key, (record, []))
            places.append(self._asm.put(ops.CALL, NO_SLOT, 0, int(key in self._endless)))
            return
        self._met.add(key)
        for field in record.fields:
            self.put(field.type)

    def _put_map(self, node: Map) -> None:
        self._put_items((None, node.values), 1 + bytes_min(node.values))

    def _put_items(self, parts: tuple[Node | None, ...], item_bytes_min: int) -> None:
        begin = self._asm.put(ops.LIST_BEGIN)
        for part in parts:
            if part is None:  # a map's key
                self._asm.put(ops.SKIP_SIZED)
            else:
                self.put(part)
        end = self._asm.put(ops.LIST_NEXT, NO_SLOT, begin + 1, item_bytes_min)
        self._asm.patch(begin, ops.A, end)

    def _put_plain(self, size: int) -> None:
        if size:
            self._asm.put(ops.SKIP_FIXED, NO_SLOT, size)
