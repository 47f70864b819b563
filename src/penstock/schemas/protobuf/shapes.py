"""What equal messages of two schemas are known by, so that nobody compares them field by field.

Two messages of one shape have the same members, names and types, nested ones included, and every
type they name is defined in the same place: comparing them finds nothing.
"""

from typing import TypeAlias

from penstock.schemas.model import Reference
from penstock.schemas.protobuf.meanings import meaning, reference_of
from penstock.schemas.protobuf.names import Names
from penstock.schemas.protobuf.tree import Enum, Field, MapType, Message, ProtoFile

_Shape: TypeAlias = tuple[object, ...]


class Shapes:
    """The shapes of all messages that a file defines itself."""

    def __init__(self, file: ProtoFile, names: Names, references: tuple[Reference, ...]) -> None:
        self._names = names
        self._references = references
        self._hashes: dict[int, int] = {}  # of shapes, by the id of the message or field
        for message in file.messages:
            self._add(message, (message.name,))
        self._file = file  # keeps the ids alive

    def hash_of(self, element: Message | Field) -> int | None:
        """The same for messages, or fields, of one shape; None if the file does not define it."""
        return self._hashes.get(id(element))

    def _add(self, message: Message, scope: tuple[str, ...]) -> _Shape:
        if message.is_plain:
            self._hashes[id(message)] = hash(message)
            return message
        shape = (
            tuple(self._field(field, scope) for field in message.fields),
            tuple(
                (oneof.name, tuple(self._field(field, scope) for field in oneof.fields))
                for oneof in message.oneofs
            ),
            tuple((one.name, self._add(one, (*scope, one.name))) for one in message.nested),
            tuple(map(_enum, message.enums)),
        )
        self._hashes[id(message)] = hash(shape)
        return shape

    def _field(self, field: Field, scope: tuple[str, ...]) -> _Shape:
        shape = (field.number, field.name, field.label, self._type(field.type, scope))
        self._hashes[id(field)] = hash(shape)
        return shape

    def _type(self, type_: str | MapType, scope: tuple[str, ...]) -> object:
        means = meaning(self._names, type_, scope, self._names.package)
        if means.map is not None:
            return ("map", self._type(means.map.key, scope), self._type(means.map.value, scope))
        if means.known is None:
            return (means.scalar, means.written)
        reference = reference_of(means.known, self._references)
        return (means.name, reference or id(means.known.element))


def _enum(enum: Enum) -> _Shape:
    return (enum.name, tuple((value.number, value.name) for value in enum.values))
