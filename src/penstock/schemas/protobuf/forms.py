"""Other forms of a tree: without what only generators read, and one that the compiler takes."""

from typing import Final

from penstock.schemas.protobuf.names import Names
from penstock.schemas.protobuf.rewriting import Options, Rewriter, Scope
from penstock.schemas.protobuf.tree import (
    Enum,
    Extend,
    Extensions,
    Field,
    MapType,
    Message,
    ProtoFile,
)

_PEERS_OWN: Final = "confluent."


def without_extensions(file: ProtoFile) -> ProtoFile:
    """The file without custom options (but the peer's own), extend blocks and extension ranges."""
    return _WithoutExtensions().file(file)


def for_the_compiler(file: ProtoFile, names: Names) -> ProtoFile:
    """The same file, spelled as the compiler wants it: see `needs_respelling`."""
    return _Respeller(names, zero_first=file.syntax == "proto3").file(file)


def needs_respelling(file: ProtoFile) -> bool:
    """Whether the compiler would refuse what descriptors and normal forms may say.

    Descriptors spell out the entry messages of maps; normal forms put negative constants first,
    where proto3 wants the zero.
    """
    enums = list(file.enums)
    waiting = list(file.messages)
    while waiting:
        message = waiting.pop()
        if message.is_map_entry:
            return True
        enums += message.enums
        waiting += message.nested
        waiting += [group.body for group in message.groups]
    return file.syntax == "proto3" and any(_zero_first(one) != one for one in enums)


def _zero_first(enum: Enum) -> Enum:
    zeros = [value for value in enum.values if value.number == 0][:1]
    return enum._replace(values=(*zeros, *(one for one in enum.values if one not in zeros)))


class _WithoutExtensions(Rewriter):
    def options(self, options: Options, scope: Scope) -> Options:
        return tuple(one for one in options if not one.is_custom or one.name.startswith(_PEERS_OWN))

    def extends(self, extends: tuple[Extend, ...], scope: Scope) -> tuple[Extend, ...]:
        return ()

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope
    ) -> tuple[Extensions, ...]:
        return ()


class MapFolder(Rewriter):
    """Puts `map<…>` back and drops the entry messages."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def message(self, message: Message, scope: Scope) -> Message:
        """A message without the entries of its maps."""
        nested = tuple(one for one in message.nested if one.map_type is None)
        return super().message(message._replace(nested=nested), scope)

    def field(self, field: Field, scope: Scope) -> Field:
        """A field, of a map type if its message is an entry."""
        if isinstance(field.type, str):
            full_name = self._names.resolved(field.type, scope)
            element = self._names.type_of(full_name).element if full_name is not None else None
            map_type = element.map_type if isinstance(element, Message) else None
            if map_type is not None:
                field = field._replace(label=None, type=MapType(*map_type))
        return super().field(field, scope)


class _Respeller(MapFolder):
    def __init__(self, names: Names, *, zero_first: bool) -> None:
        super().__init__(names)
        self._zero_first = zero_first

    def enum(self, enum: Enum, scope: Scope) -> Enum:
        return _zero_first(enum) if self._zero_first else enum
