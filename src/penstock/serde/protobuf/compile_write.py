"""The compiler of the other direction: a message -> a program that writes it from Arrow columns.

Bytes are those that upb writes: fields in the order of their numbers, defaults left out where a
field cannot be absent, packed where the schema says so.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from penstock.columns.protobuf import read_program as wire
from penstock.columns.protobuf import write_program as ops
from penstock.columns.protobuf.write_program import (
    CODE_FIELDS,
    SYMBOL_FIELDS,
    ProtobufWriteProgram,
)
from penstock.columns.vm.arrow_inputs import NO_INPUT, Input
from penstock.columns.vm.assembler import Assembler, table_of
from penstock.serde.protobuf.types import (
    DURATION,
    PER_SECOND,
    TIMESTAMP,
    WRAPPERS,
    Descriptor,
    TimeUnit,
    entry_fields,
    is_map,
)

_OPS: Final[Mapping[int, tuple[int, int]]] = {  # instruction and wire type
    FieldDescriptor.TYPE_DOUBLE: (ops.RAW, wire.SIXTY_FOUR),
    FieldDescriptor.TYPE_FIXED64: (ops.RAW, wire.SIXTY_FOUR),
    FieldDescriptor.TYPE_SFIXED64: (ops.RAW, wire.SIXTY_FOUR),
    FieldDescriptor.TYPE_FLOAT: (ops.RAW, wire.THIRTY_TWO),
    FieldDescriptor.TYPE_FIXED32: (ops.RAW, wire.THIRTY_TWO),
    FieldDescriptor.TYPE_SFIXED32: (ops.RAW, wire.THIRTY_TWO),
    FieldDescriptor.TYPE_INT64: (ops.INT64, wire.VARINT),
    FieldDescriptor.TYPE_UINT64: (ops.INT64, wire.VARINT),
    FieldDescriptor.TYPE_INT32: (ops.INT32, wire.VARINT),
    FieldDescriptor.TYPE_UINT32: (ops.UINT32, wire.VARINT),
    FieldDescriptor.TYPE_BOOL: (ops.BOOL, wire.VARINT),
    FieldDescriptor.TYPE_SINT32: (ops.SINT32, wire.VARINT),
    FieldDescriptor.TYPE_SINT64: (ops.SINT64, wire.VARINT),
    FieldDescriptor.TYPE_ENUM: (ops.ENUM, wire.VARINT),
    FieldDescriptor.TYPE_STRING: (ops.TEXT, wire.SIZED),
    FieldDescriptor.TYPE_BYTES: (ops.BYTES, wire.SIZED),
}
_WIDTHS: Final = {wire.SIXTY_FOUR: 8, wire.THIRTY_TWO: 4}


def compile_encoder(
    message: Descriptor, names: Sequence[str], unit: TimeUnit = "us"
) -> tuple[ProtobufWriteProgram, tuple[Input, ...]]:
    """The program that writes these fields of a message, and which arrays it reads."""
    compiler = _Compiler(unit)
    inputs = compiler.fields([message.fields_by_name[name] for name in names])
    return compiler.finished(), inputs


class _Compiler:
    def __init__(self, unit: TimeUnit) -> None:
        self._unit: TimeUnit = unit
        self._asm = Assembler(CODE_FIELDS)
        self._members: list[int] = []

    def finished(self) -> ProtobufWriteProgram:
        """The program of everything put so far."""
        self._asm.put(ops.END)
        return ProtobufWriteProgram(
            code=self._asm.code(),
            members=np.array(self._members, dtype=np.int64),
            symbols=table_of(self._asm.symbols, SYMBOL_FIELDS),
            pool=self._asm.pool(),
            inputs=self._asm.inputs,
        )

    def fields(self, fields: Sequence[Descriptor]) -> tuple[Input, ...]:
        """Instructions for the fields of a message, from the last number to the first.

        The inputs are in the order in which the fields are given, which is that of Arrow's.
        """
        put: dict[str, Input] = {}
        for field in sorted(fields, key=lambda each: -int(each.number)):
            put[field.name] = self._field(field)
        oneofs: dict[str, list[int]] = {}
        for field in fields:
            if field.containing_oneof is not None:
                oneofs.setdefault(field.containing_oneof.name, []).append(put[field.name].slot)
        for slots in oneofs.values():
            if len(slots) > 1:
                self._put(ops.ONEOF, a=len(self._members), b=len(slots))
                self._members += slots
        return tuple(put[field.name] for field in fields)

    def _put(
        self,
        op: int,
        source: int = NO_INPUT,
        tag: int = ops.NO_TAG,
        mode: int = 0,
        *,
        a: int = 0,
        b: int = 0,
        c: int = 0,
    ) -> int:
        return self._asm.put(op, source, tag, mode, a, b, c)

    def _field(self, field: Descriptor) -> Input:
        if not field.is_repeated:
            if field.is_required:
                return self._value(field, ops.REQUIRED)
            return self._value(field, ops.OPTIONAL if field.has_presence else ops.IMPLICIT)
        source = self._asm.add_input()
        end = self._put(ops.LIST_END, source)
        children: tuple[Input, ...]
        if is_map(field):
            children = self._entry(field)
        else:
            children = (self._value(field, ops.REQUIRED, tagged=not field.is_packed),)
        tag = field.number << 3 | wire.SIZED if field.is_packed else ops.NO_TAG
        following = self._put(ops.LIST_NEXT, source, tag, a=end + 1) + 1
        self._asm.patch(end, ops.A, following)
        return Input(source, children)

    def _entry(self, field: Descriptor) -> tuple[Input, Input]:
        """An entry has both its key and its value, whatever they are."""
        key, value = entry_fields(field)
        self._put(ops.MESSAGE_END)
        of_value = self._value(value, ops.REQUIRED)
        of_key = self._value(key, ops.REQUIRED)
        self._put(ops.MESSAGE_BEGIN, tag=field.number << 3 | wire.SIZED)
        return of_key, of_value

    def _value(self, field: Descriptor, mode: int, *, tagged: bool = True) -> Input:
        message = field.message_type
        if message is None:
            return self._scalar(field, mode, field.number if tagged else 0, self._asm.add_input())
        if message.full_name in (TIMESTAMP, DURATION):
            op = ops.TIMESTAMP if message.full_name == TIMESTAMP else ops.DURATION
            source = self._asm.add_input()
            tag = field.number << 3 | wire.SIZED
            self._put(op, source, tag, mode, a=PER_SECOND[self._unit])
            return Input(source)
        return self._message(field, mode)

    def _message(self, field: Descriptor, mode: int) -> Input:
        message = field.message_type
        is_group = field.type == FieldDescriptor.TYPE_GROUP
        last_tag = field.number << 3 | wire.GROUP_END if is_group else 0
        source = self._asm.add_input()
        end = self._put(ops.MESSAGE_END, source, mode=mode, b=last_tag)
        children: tuple[Input, ...] = ()
        if message.full_name in WRAPPERS:
            inner = message.fields_by_name["value"]
            self._scalar(inner, ops.IMPLICIT, inner.number, source)
        else:
            children = self.fields(message.fields)
        kind = wire.GROUP_START if is_group else wire.SIZED
        begin = self._put(ops.MESSAGE_BEGIN, tag=field.number << 3 | kind, b=int(is_group))
        self._asm.patch(end, ops.A, begin + 1)
        return Input(source, children)

    def _scalar(self, field: Descriptor, mode: int, number: int, source: int) -> Input:
        op, kind = _OPS[field.type]
        tag = number << 3 | kind if number else ops.NO_TAG
        if op == ops.ENUM:
            values = list(field.enum_type.values)
            numbers = [value.number for value in values]
            first = self._asm.add_symbols([value.name for value in values], numbers)
            is_closed = int(field.enum_type.is_closed)
            self._put(op, source, tag, mode, a=first, b=len(values), c=is_closed)
        else:
            self._put(op, source, tag, mode, a=_WIDTHS.get(kind, 0))
        return Input(source)
