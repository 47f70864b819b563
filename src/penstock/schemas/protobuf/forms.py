"""Other forms of a tree: without what only generators read, and one that the compiler takes."""

from typing import Final

from penstock.schemas.protobuf.names import Names
from penstock.schemas.protobuf.rewriting import Options, Rewriter, Scope
from penstock.schemas.protobuf.tree import Extend, Extensions, Field, MapType, Message, ProtoFile

_PEERS_OWN: Final = "confluent."


def without_extensions(file: ProtoFile) -> ProtoFile:
    """The file without custom options (but the peer's own), extend blocks and extension ranges."""
    return _WithoutExtensions().file(file)


def with_maps_folded(file: ProtoFile, names: Names) -> ProtoFile:
    """The file with `map<…>` where a descriptor had spelled out the entry message."""
    return MapFolder(names).file(file)


def has_spelled_maps(file: ProtoFile) -> bool:
    """Whether some map is written as its entry message, which the compiler refuses."""
    waiting = list(file.messages)
    while waiting:
        message = waiting.pop()
        if message.is_map_entry:
            return True
        waiting += message.nested
    return False


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
