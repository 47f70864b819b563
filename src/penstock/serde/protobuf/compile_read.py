"""The compiler: (message, wanted columns) -> a program for the decoding kernel.

Protobuf's own rules are folded in here: presence, oneofs of which the last one set counts, entries
of maps, closed enums, well-known types. The writer's schema plays no part: fields are
distinguished by their numbers alone, and the reader's message says what they mean.

Fields that are not read, and unknown ones, are checked in so far as finding their end takes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from penstock.columns.protobuf import read_program as ops
from penstock.columns.protobuf.read_program import (
    NONE,
    Closer,
    ProtobufReadAssembler,
    ProtobufReadProgram,
)
from penstock.columns.vm.slots import Shape, SlotKind
from penstock.serde.column_codec import requested_columns
from penstock.serde.protobuf.types import (
    DURATION,
    PER_SECOND,
    SCALARS,
    TIMESTAMP,
    WRAPPERS,
    Descriptor,
    TimeUnit,
    arrow_type,
    entry_fields,
    is_map,
    time_type,
)

_VARINTS: Final[Mapping[int, int]] = {
    FieldDescriptor.TYPE_INT64: ops.INT64,
    FieldDescriptor.TYPE_UINT64: ops.INT64,
    FieldDescriptor.TYPE_SINT64: ops.SINT64,
    FieldDescriptor.TYPE_INT32: ops.INT32,
    FieldDescriptor.TYPE_UINT32: ops.INT32,
    FieldDescriptor.TYPE_SINT32: ops.SINT32,
    FieldDescriptor.TYPE_BOOL: ops.BOOL,
    FieldDescriptor.TYPE_ENUM: ops.INT32,
}
_THIRTY_TWO: Final = (
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_SFIXED32,
)
_SIXTY_FOUR: Final = (
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED64,
)
_WIDTHS: Final = {pa.bool_(): 1, pa.int32(): 4, pa.uint32(): 4, pa.float32(): 4}


def requested_names(message: Descriptor, columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns to fill, in the requested order; ValueError if a column is unknown."""
    names = [field.name for field in message.fields]
    return requested_columns(names, columns, message.full_name)


def compile_decoder(
    message: Descriptor, columns: Sequence[str] | None = None, unit: TimeUnit = "us"
) -> ProtobufReadProgram:
    """The program that decodes these columns of a message; NotExpressibleError for a tree."""
    names = requested_names(message, columns)
    for name in names:
        arrow_type(message.fields_by_name[name])
    compiler = _Compiler(unit)
    assembler = compiler.assembler
    scope, node = assembler.scope(), assembler.node()
    shapes = compiler.fields(message, node, scope, frozenset(names)).shapes
    assembler.end_scope(scope)
    return assembler.assemble(names, tuple(shapes[name] for name in names))


class _Put(NamedTuple):
    """A field that was put: its row, how it is seen, and the slots it fills in its scope."""

    row: int
    shape: Shape
    slots: list[int]


class _Fields(NamedTuple):
    """All fields of a message."""

    shapes: dict[str, Shape]
    slots: list[int]


class _Place(NamedTuple):
    """Where a value goes: which message it is a field of, and the scope it is read into."""

    node: int
    scope: int
    number: int
    list_slot: int = NONE  # of a repeated field, whose items the scope is made of
    nullable: bool = False

    @property
    def items(self) -> int:
        return NONE if self.list_slot == NONE else self.scope


class _Compiler:
    def __init__(self, unit: TimeUnit) -> None:
        self.assembler = ProtobufReadAssembler()
        self._unit: TimeUnit = unit

    def fields(
        self, message: Descriptor, node: int, scope: int, requested: frozenset[str] | None = None
    ) -> _Fields:
        """Rows for the fields of a message, and for what clears them."""
        shapes: dict[str, Shape] = {}
        slots: list[int] = []
        oneofs: dict[str, list[tuple[int, list[int]]]] = {}
        for field in message.fields:
            oneof = field.containing_oneof
            if requested is None or field.name in requested:
                put = self._field(field, node, scope)
                shapes[field.name] = put.shape
                slots += put.slots
                row, filled = put.row, put.slots
            elif oneof is not None and any(member.name in requested for member in oneof.fields):
                row, filled = self._unwanted(field, node), []
            else:
                continue
            if oneof is not None:
                oneofs.setdefault(oneof.name, []).append((row, filled))
        for members in oneofs.values():
            self.assembler.clear_each_other(members)
        return _Fields(shapes, slots)

    def _unwanted(self, field: Descriptor, node: int) -> int:
        """A member of a oneof that fills no column but clears the other members."""
        wire, op = _wire_and_op(field)
        if op == ops.CLOSED_ENUM:
            start, end = self._numbers(field)
            return self.assembler.put(
                node, field.number, wire=wire, op=op, enum_from=start, enum_to=end
            )
        return self.assembler.put(node, field.number, wire=wire, op=ops.SKIP)

    def _field(self, field: Descriptor, node: int, scope: int) -> _Put:
        if not field.is_repeated:
            place = _Place(node, scope, field.number, nullable=bool(field.has_presence))
            return self._value(field, place)
        slot = self.assembler.slot(SlotKind.LIST, scope)
        inner = self.assembler.scope(slot)
        self.assembler.own_list(slot, inner)
        if is_map(field):
            put = self._entry(field, _Place(node, inner, field.number, slot))
        else:
            put = self._value(field, _Place(node, inner, field.number, slot))
        self.assembler.end_scope(inner)
        kind = arrow_type(field, self._unit)
        shape = Shape(kind, slot, (put.shape,), has_unique_keys=is_map(field))
        return _Put(put.row, shape, [slot])

    def _entry(self, field: Descriptor, place: _Place) -> _Put:
        node = self.assembler.node(is_entry=True)
        key, value = (
            self._value(entry, _Place(node, place.scope, entry.number))
            for entry in entry_fields(field)
        )
        kind: Any = arrow_type(field, self._unit)
        entries = pa.struct([kind.key_field, kind.item_field])
        row = self._put(place, wire=ops.SIZED, op=ops.MESSAGE, node=node)
        return _Put(row, Shape(entries, NONE, (key.shape, value.shape)), [])

    def _put(self, place: _Place, **columns: int) -> int:
        return self.assembler.put(
            place.node, place.number, list_slot=place.list_slot, scope=place.items, **columns
        )

    def _value(self, field: Descriptor, place: _Place) -> _Put:
        message = field.message_type
        if message is None:
            return self._scalar(field, place)
        wire, op = _wire_and_op(field)
        if message.full_name in WRAPPERS:
            node, (shape, slots) = self._wrapped(message, place)
        elif message.full_name in (TIMESTAMP, DURATION):
            node, (shape, slots) = self._time(message, place)
        else:
            node, (shape, slots) = self._struct(message, place)
        marked = shape.slot if place.nullable else NONE
        return _Put(self._put(place, wire=wire, op=op, node=node, slot=marked), shape, slots)

    def _scalar(self, field: Descriptor, place: _Place) -> _Put:
        kind = SCALARS[field.type]
        wire, op = _wire_and_op(field)
        slot = self._leaf_slot(kind, field, place)
        columns = {"wire": wire, "op": op, "slot": slot}
        if op == ops.CLOSED_ENUM:
            columns["enum_from"], columns["enum_to"] = self._numbers(field)
        names = _names(field) if field.enum_type is not None else None
        return _Put(self._put(place, **columns), Shape(kind, slot, names=names), [slot])

    def _leaf_slot(self, kind: pa.DataType, field: Descriptor, place: _Place) -> int:
        if field.enum_type is None and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return self.assembler.slot(SlotKind.SIZED, place.scope, nullable=place.nullable)
        width = 4 if field.enum_type is not None else _WIDTHS.get(kind, 8)
        return self.assembler.slot(SlotKind.FIXED, place.scope, width, nullable=place.nullable)

    def _numbers(self, field: Descriptor) -> tuple[int, int]:
        return self.assembler.numbers([value.number for value in field.enum_type.values])

    def _wrapped(self, message: Descriptor, place: _Place) -> tuple[int, tuple[Shape, list[int]]]:
        """A message of one field is the field, null where the message is not there."""
        field = message.fields_by_name["value"]
        node = self.assembler.node()
        inner = self._scalar(
            field, _Place(node, place.scope, field.number, nullable=place.nullable)
        )
        return node, (inner.shape, inner.slots)

    def _time(self, message: Descriptor, place: _Place) -> tuple[int, tuple[Shape, list[int]]]:
        """Seconds and nanoseconds, which become one number when all of them are read."""
        node = self.assembler.node()
        seconds = self.assembler.slot(SlotKind.FIXED, place.scope, 8, nullable=place.nullable)
        nanos = self.assembler.slot(SlotKind.FIXED, place.scope, 4)
        for name, slot, op in (("seconds", seconds, ops.INT64), ("nanos", nanos, ops.INT32)):
            number = message.fields_by_name[name].number
            self.assembler.put(node, number, wire=ops.VARINT, op=op, slot=slot)
        is_timestamp = message.full_name == TIMESTAMP
        op = ops.TIMESTAMP if is_timestamp else ops.DURATION
        self.assembler.close(place.scope, Closer(op, seconds, nanos, PER_SECOND[self._unit]))
        shape = Shape(time_type(message.full_name, self._unit), seconds)
        return node, (shape, [seconds, nanos])

    def _struct(self, message: Descriptor, place: _Place) -> tuple[int, tuple[Shape, list[int]]]:
        node = self.assembler.node()
        slots = []
        if place.nullable:
            slots.append(self.assembler.slot(SlotKind.VALIDITY, place.scope, nullable=True))
        inner = self.fields(message, node, place.scope)
        fields = [
            pa.field(
                member.name, inner.shapes[member.name].type, nullable=bool(member.has_presence)
            )
            for member in message.fields
        ]
        children = tuple(inner.shapes[member.name] for member in message.fields)
        shape = Shape(pa.struct(fields), slots[0] if slots else NONE, children)
        return node, (shape, slots + inner.slots)


def _wire_and_op(field: Descriptor) -> tuple[int, int]:
    kind = field.type
    if kind == FieldDescriptor.TYPE_ENUM and field.enum_type.is_closed:
        return ops.VARINT, ops.CLOSED_ENUM
    if kind in _VARINTS:
        return ops.VARINT, _VARINTS[kind]
    if kind in _THIRTY_TWO:
        return ops.THIRTY_TWO, ops.FIXED32
    if kind in _SIXTY_FOUR:
        return ops.SIXTY_FOUR, ops.FIXED64
    if kind == FieldDescriptor.TYPE_GROUP:
        return ops.GROUP_START, ops.GROUP
    if kind == FieldDescriptor.TYPE_MESSAGE:
        return ops.SIZED, ops.MESSAGE
    return ops.SIZED, ops.TEXT if kind == FieldDescriptor.TYPE_STRING else ops.BYTES


def _names(field: Descriptor) -> tuple[tuple[int, str], ...]:
    by_number = field.enum_type.values_by_number
    return tuple((number, by_number[number].name) for number in by_number)
