"""Where a decoding program puts what it reads: a tree of slots beside the reader's schema."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.client.avro_types import arrow_type, decimal_bytes, is_nullable, values_of
from penstock.columns.avro.program import NO_SLOT, Assembler, Shape, SlotPlan
from penstock.columns.slots import Kind as SlotKind
from penstock.schemas.avro.meaning import decimal_of
from penstock.schemas.avro.tree import PRIMITIVES, Array, Fixed, Kind, Map, Node, Record, Union

KEY: Final = PRIMITIVES["string"]  # of a map
_WIDTHS: Final = {
    Kind.BOOLEAN: 1,
    Kind.INT: 4,
    Kind.LONG: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
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

    def aligned(self) -> Iterator[int]:
        """The slots that get a value whenever this target gets one; not those of list items."""
        if self.slot != NO_SLOT:
            yield self.slot
        if not isinstance(self.node, Array | Map):
            for child in self.children:
                yield from child.aligned()


def _entries(type_: pa.DataType) -> pa.DataType:
    assert isinstance(type_, pa.MapType)
    return pa.struct([type_.key_field, type_.item_field])


def target_for(node: Node, assembler: Assembler, *, nullable: bool = False) -> Target:
    """Slots for a type. NotExpressible comes from its Arrow type, so that must be known already."""
    if isinstance(node, Union):
        values = values_of(node)
        if len(values) == 1:
            return target_for(values[0], assembler, nullable=nullable or is_nullable(node))
        if not values:
            return _leaf(node, SlotPlan(SlotKind.NOTHING), assembler)
        slot = _struct_slot(assembler, nullable=nullable or is_nullable(node))
        members = tuple(target_for(one, assembler, nullable=True) for one in values)
        return Target(node, arrow_type(node), slot, members)
    if isinstance(node, Record):
        slot = _struct_slot(assembler, nullable=nullable)
        fields = tuple(target_for(field.type, assembler) for field in node.fields)
        return Target(node, arrow_type(node), slot, fields)
    if isinstance(node, Array | Map):
        slot = assembler.slot(SlotPlan(SlotKind.LIST, nullable=nullable))
        return Target(node, arrow_type(node), slot, _items(node, assembler))
    return _leaf(node, _plan(node, nullable=nullable), assembler)


def _items(node: Array | Map, assembler: Assembler) -> tuple[Target, ...]:
    if isinstance(node, Array):
        return (target_for(node.items, assembler),)
    return target_for(KEY, assembler), target_for(node.values, assembler)


def _struct_slot(assembler: Assembler, *, nullable: bool) -> int:
    return assembler.slot(SlotPlan(SlotKind.VALIDITY, nullable=True)) if nullable else NO_SLOT


def _leaf(node: Node, plan: SlotPlan, assembler: Assembler) -> Target:
    return Target(node, arrow_type(node), assembler.slot(plan))


def _plan(node: Node, *, nullable: bool) -> SlotPlan:
    decimal = decimal_of(node)
    if decimal is not None:
        return SlotPlan(SlotKind.FIXED, decimal_bytes(decimal.precision), nullable)
    if isinstance(node, Fixed):
        return SlotPlan(SlotKind.FIXED, node.size, nullable)
    if node.kind is Kind.NULL:
        return SlotPlan(SlotKind.NOTHING)
    if node.kind in _WIDTHS:
        return SlotPlan(SlotKind.FIXED, _WIDTHS[node.kind], nullable)
    return SlotPlan(SlotKind.SIZED, nullable=nullable)
