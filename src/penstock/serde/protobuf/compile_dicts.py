"""The compiler for dicts: a message -> a program that writes Python values as upb would.

Fields are written in the order of their numbers, as upb writes them. Messages within the message
may also be given as upb's constructor takes them (a message, a datetime for a Timestamp): of such a
value upb itself makes the bytes, and also of all values whose message contains itself.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

from penstock.columns.protobuf import dict_program as ops
from penstock.columns.protobuf import read_program as wire
from penstock.columns.protobuf.dict_program import (
    CODE_FIELDS,
    NO_OBJECT,
    NO_TAG,
    ProtobufDictProgram,
)
from penstock.columns.vm.assembler import Assembler
from penstock.serde.protobuf.event import payload_of
from penstock.serde.protobuf.types import Descriptor, entry_fields, is_map

INSTRUCTIONS_MAX: Final = 10_000  # names written out; messages beyond are upb's


class _Number(NamedTuple):
    """How a kind of number is written, and which ones there are."""

    op: int
    wire: int
    least: int = 0
    most: int = 0
    width: int = 0


def _signed(op: int, kind: int, bits: int, width: int = 0) -> _Number:
    return _Number(op, kind, -(1 << bits - 1), (1 << bits - 1) - 1, width)


_NUMBERS: Final[Mapping[int, _Number]] = {
    FieldDescriptor.TYPE_INT32: _signed(ops.VARINT, wire.VARINT, 32),
    FieldDescriptor.TYPE_INT64: _signed(ops.VARINT, wire.VARINT, 64),
    FieldDescriptor.TYPE_SINT32: _signed(ops.ZIGZAG, wire.VARINT, 32),
    FieldDescriptor.TYPE_SINT64: _signed(ops.ZIGZAG, wire.VARINT, 64),
    FieldDescriptor.TYPE_SFIXED32: _signed(ops.FIXED, wire.THIRTY_TWO, 32, 4),
    FieldDescriptor.TYPE_SFIXED64: _signed(ops.FIXED, wire.SIXTY_FOUR, 64, 8),
    FieldDescriptor.TYPE_UINT32: _Number(ops.VARINT, wire.VARINT, 0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: _Number(ops.FIXED, wire.THIRTY_TWO, 0, 2**32 - 1, 4),
    FieldDescriptor.TYPE_UINT64: _Number(ops.UNSIGNED, wire.VARINT),
    FieldDescriptor.TYPE_FIXED64: _Number(ops.UNSIGNED_FIXED, wire.SIXTY_FOUR, width=8),
    FieldDescriptor.TYPE_FLOAT: _Number(ops.FLOAT, wire.THIRTY_TWO, width=4),
    FieldDescriptor.TYPE_DOUBLE: _Number(ops.DOUBLE, wire.SIXTY_FOUR, width=8),
    FieldDescriptor.TYPE_BOOL: _Number(ops.BOOL, wire.VARINT),
    FieldDescriptor.TYPE_STRING: _Number(ops.TEXT, wire.SIZED),
    FieldDescriptor.TYPE_BYTES: _Number(ops.BYTES, wire.SIZED),
}


def compile_dicts(message: Descriptor) -> ProtobufDictProgram | None:
    """The program of a message; None if one cannot tell its oneofs apart."""
    if len(_oneofs(message)) > ops.ONEOFS_MAX:
        return None
    compiler = _Compiler()
    compiler.put_root(message)
    return compiler.finished()


class _Compiler:
    def __init__(self) -> None:
        self._asm = Assembler(CODE_FIELDS)
        self._known: dict[str, bool] = {}  # messages, and whether they get instructions

    def finished(self) -> ProtobufDictProgram:
        """The program of everything put so far."""
        self._asm.put(ops.END)
        objects, addresses = self._asm.objects()
        return ProtobufDictProgram(
            code=self._asm.code(), objects=objects, addresses=addresses, depth=self._asm.depth
        )

    def put_root(self, message: Descriptor) -> None:
        """The message that a row is."""
        self._put_message(message, self._emit(ops.MESSAGE_BEGIN), 0)

    def _emit(
        self,
        op: int,
        item: int = NO_OBJECT,
        tag: int = NO_TAG,
        mode: int = ops.ALWAYS,
        *,
        a: int = 0,
        b: int = 0,
        c: int = 0,
    ) -> int:
        return self._asm.put(op, item, tag, mode, a, b, c)

    def _put_message(self, message: Descriptor, begin: int, depth: int) -> None:
        depth = self._asm.deeper(depth)
        oneofs = _oneofs(message)
        for field in sorted(message.fields, key=lambda each: int(each.number)):
            self._put_field(field, oneofs, depth)
        _, _, tag, _, _, _, last_tag = self._asm.instruction(begin)
        end = self._emit(ops.MESSAGE_END, tag=tag, c=last_tag)
        self._asm.patch(begin, ops.A, end + 1)

    def _put_field(self, field: Descriptor, oneofs: list[str], depth: int) -> None:
        name = self._asm.add_object(sys.intern(field.name))  # the one that dicts written out have
        mode = ops.REQUIRED if field.is_required else ops.ALWAYS
        oneof = field.containing_oneof
        bit = 1 << oneofs.index(oneof.name) if oneof and oneof.name in oneofs else 0
        index = self._emit(ops.FIELD, name, mode=mode, b=bit)
        if is_map(field):
            self._put_map(field, self._asm.deeper(depth))
        elif field.is_repeated:
            self._put_list(field, self._asm.deeper(depth))
        else:
            mode = ops.ALWAYS if field.has_presence else ops.IMPLICIT
            self._put_value(field, _single(field), depth, mode)
        self._asm.patch(index, ops.A, self._asm.here)

    def _put_list(self, field: Descriptor, depth: int) -> None:
        tag = field.number << 3 | wire.SIZED if field.is_packed else NO_TAG
        index = self._emit(ops.LIST_BEGIN, tag=tag)
        self._put_value(field, _item(field), depth, is_tagged=not field.is_packed)
        self._asm.patch(index, ops.A, self._emit(ops.LIST_NEXT, tag=tag, a=index + 1))

    def _put_map(self, field: Descriptor, depth: int) -> None:
        """An entry has both its key and its value, whatever they are."""
        key, value = entry_fields(field)
        tag = field.number << 3 | wire.SIZED
        index = self._emit(ops.MAP_BEGIN, tag=tag)
        self._put_scalar(key, ops.ALWAYS, is_tagged=True)
        self._emit(ops.MAP_VALUE)
        self._put_value(value, _entry(field, key), depth)
        self._asm.patch(index, ops.A, self._emit(ops.MAP_NEXT, tag=tag, a=index + 1))

    def _put_value(
        self,
        field: Descriptor,
        converter: Callable[[Any], bytes],
        depth: int,
        mode: int = ops.ALWAYS,
        *,
        is_tagged: bool = True,
    ) -> None:
        message = field.message_type
        if message is None:
            self._put_scalar(field, mode, is_tagged=is_tagged)
            return
        is_group = field.type == FieldDescriptor.TYPE_GROUP
        tag = field.number << 3 | (wire.GROUP_START if is_group else wire.SIZED)
        last_tag = field.number << 3 | wire.GROUP_END if is_group else 0
        made = self._asm.add_object(converter)
        if self._is_walked(message, depth):
            begin = self._emit(ops.MESSAGE_BEGIN, made, tag, c=last_tag)
            self._put_message(message, begin, depth)
        else:
            self._emit(ops.CONVERTED, made, tag, c=last_tag)

    def _is_walked(self, message: Descriptor, depth: int) -> bool:
        """Whether a message within the root gets instructions of its own."""
        name = message.full_name
        if name not in self._known:
            is_plain = len(_oneofs(message)) <= ops.ONEOFS_MAX and not _contains_itself(message)
            self._known[name] = is_plain
        has_room = self._asm.here < INSTRUCTIONS_MAX and depth < wire.DEPTH_MAX
        return self._known[name] and has_room

    def _put_scalar(self, field: Descriptor, mode: int, *, is_tagged: bool) -> None:
        if field.enum_type is not None:
            tag = field.number << 3 | wire.VARINT if is_tagged else NO_TAG
            numbers: dict[str | int, int] = {
                each.name: each.number for each in field.enum_type.values
            }
            numbers |= {each.number: each.number for each in field.enum_type.values}
            is_closed = int(field.enum_type.is_closed)
            self._emit(ops.ENUM, self._asm.add_object(numbers), tag, mode, c=is_closed)
            return
        op, kind, least, most, width = _NUMBERS[field.type]
        tag = field.number << 3 | kind if is_tagged else NO_TAG
        self._emit(op, NO_OBJECT, tag, mode, a=least, b=most, c=width)


def _oneofs(message: Descriptor) -> list[str]:
    """Those of which two members could be given."""
    return [oneof.name for oneof in message.oneofs if len(oneof.fields) > 1]


def _contains_itself(message: Descriptor) -> bool:
    seen: set[str] = set()
    waiting = [message]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return message.full_name in seen


def _single(field: Descriptor) -> Callable[[Any], bytes]:
    """What upb makes of a value that is given for a field."""

    def written(value: Any) -> bytes:
        holder = _holder(field)(**{field.name: value})
        if not holder.HasField(field.name):
            raise ValueError("nothing was set")
        return payload_of(getattr(holder, field.name))

    return written


def _item(field: Descriptor) -> Callable[[Any], bytes]:
    """The same for an item of a list."""

    def written(value: Any) -> bytes:
        (item,) = getattr(_holder(field)(**{field.name: [value]}), field.name)
        return payload_of(item)

    return written


def _entry(field: Descriptor, key: Descriptor) -> Callable[[Any], bytes]:
    """The same for a value of a map, under any key."""
    under = key.default_value

    def written(value: Any) -> bytes:
        holder = _holder(field)(**{field.name: {under: value}})
        return payload_of(getattr(holder, field.name)[under])

    return written


def _holder(field: Descriptor) -> Any:
    return message_factory.GetMessageClass(field.containing_type)
