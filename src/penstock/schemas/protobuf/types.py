"""The types and extensions that a file can name, and the shapes of its messages.

A name is looked up as a whole, from the innermost scope outwards, in the file and its imports; that
is how Confluent's registry resolves names, and in a valid file the result is that of the compiler.

Two messages of equal shape have the same members, names and types, including nested ones, and every
type that they use is defined in the same place: a comparison would find no difference.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.schemas.model import Reference
from penstock.schemas.protobuf.tree import SCALARS, Enum, Extend, Field, MapType, Message, ProtoFile

LOCAL: Final = ""  # the origin of what the file itself defines


class KnownType(NamedTuple):
    """A type, its package and the import that defines it."""

    package: str
    origin: str
    element: Message | Enum


class Names:
    """Everything that a file can name. Immutable after construction."""

    def __init__(self, file: ProtoFile, imports: Mapping[str, ProtoFile]) -> None:
        self.package: Final = file.package or ""
        self._types: dict[str, KnownType] = {}
        self._extensions: dict[str, Field] = {}
        for origin, imported in imports.items():
            self._collect(origin, imported)
        self._collect(LOCAL, file)

    def _collect(self, origin: str, file: ProtoFile) -> None:
        package = file.package or ""
        prefix = f"{package}." if package else ""
        self._collect_extensions(prefix, file.extends)
        for enum in file.enums:
            self._types[prefix + enum.name] = KnownType(package, origin, enum)
        for message in file.messages:
            self._collect_message(prefix, KnownType(package, origin, message), message)

    def _collect_message(self, prefix: str, known: KnownType, message: Message) -> None:
        self._types[prefix + message.name] = known
        inner = f"{prefix}{message.name}."
        self._collect_extensions(inner, message.extends)
        for enum in message.enums:
            self._types[inner + enum.name] = known._replace(element=enum)
        groups = [*message.groups, *(group for oneof in message.oneofs for group in oneof.groups)]
        for nested in (*message.nested, *(group.body for group in groups)):
            self._collect_message(inner, known._replace(element=nested), nested)

    def _collect_extensions(self, prefix: str, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                self._extensions[prefix + field.name] = field

    def type_of(self, full_name: str) -> KnownType:
        """A type by the name that `resolved` returned."""
        return self._types[full_name]

    def extension_of(self, full_name: str) -> Field:
        """An extension field by the name that `resolved_extension` returned."""
        return self._extensions[full_name]

    def resolved(self, name: str, scope: tuple[str, ...], package: str | None = None) -> str | None:
        """The full name of a type, without a leading dot; None if there is no such type."""
        return _look_up(self._types, name, self._prefix(scope, package))

    def resolved_extension(self, name: str, scope: tuple[str, ...]) -> str | None:
        """The full name of an extension field."""
        return _look_up(self._extensions, name, self._prefix(scope, None))

    def _prefix(self, scope: tuple[str, ...], package: str | None) -> list[str]:
        home = self.package if package is None else package
        return [*home.split("."), *scope] if home else list(scope)


def _look_up(known: Mapping[str, object], name: str, prefix: list[str]) -> str | None:
    if name.startswith("."):
        return name[1:] if name[1:] in known else None
    for length in range(len(prefix), -1, -1):
        full_name = ".".join((*prefix[:length], name))
        if full_name in known:
            return full_name
    return None


_SCALAR_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "four bytes"),
    **dict.fromkeys(("fixed64", "sfixed64"), "eight bytes"),
    "float": "float",
    "double": "double",
}
_ENUM_GROUP: Final = "number"


class ResolvedType(NamedTuple):
    """The type of a field: a scalar (enums count as numbers), a map, or a message."""

    kind: str
    written: str = ""
    name: str = ""  # the full name
    scalar: str = ""
    map: MapType | None = None
    known: KnownType | None = None


def resolve_type(
    names: Names, type_: str | MapType, scope: tuple[str, ...], package: str
) -> ResolvedType:
    """The type of a field, written in this scope of this package."""
    if isinstance(type_, MapType):
        return ResolvedType("map", map=type_)
    if type_ in SCALARS:
        return ResolvedType("scalar", scalar=_SCALAR_GROUPS[type_])
    full_name = names.resolved(type_, scope, package)
    if full_name is None:
        return ResolvedType("message", written=type_)
    known = names.type_of(full_name)
    if isinstance(known.element, Enum):
        return ResolvedType("scalar", scalar=_ENUM_GROUP)
    map_type = known.element.map_type
    if map_type is not None:
        return ResolvedType("map", map=map_type)
    return ResolvedType("message", written=type_, name=full_name, known=known)


def reference_of(known: KnownType, references: tuple[Reference, ...]) -> tuple[str, int] | None:
    """The subject and version of a type; None if only a reference of a reference has it."""
    if known.origin == LOCAL:
        return ("", -1)
    for reference in reversed(references):
        if reference.name == known.origin:
            return (reference.subject, reference.version)
    return None


_Shape: TypeAlias = tuple[object, ...]


class Shapes:
    """The shapes of all messages that a file defines."""

    def __init__(self, file: ProtoFile, names: Names, references: tuple[Reference, ...]) -> None:
        self._names = names
        self._references = references
        self._hashes: dict[int, int] = {}  # of shapes, by the id of the message or field
        for message in file.messages:
            self._add(message, (message.name,))
        self._file = file  # keeps the objects alive, so that ids stay unique

    def hash_of(self, element: Message | Field) -> int | None:
        """Equal for messages or fields of equal shape; None if the file does not define it."""
        return self._hashes.get(id(element))

    def _add(self, message: Message, scope: tuple[str, ...]) -> _Shape:
        if message.is_scalar:
            self._hashes[id(message)] = hash(message)
            return message
        shape = (
            tuple(self._field(field, scope) for field in message.fields),
            tuple(
                (oneof.name, tuple(self._field(field, scope) for field in oneof.fields))
                for oneof in message.oneofs
            ),
            tuple(
                (nested.name, self._add(nested, (*scope, nested.name))) for nested in message.nested
            ),
            tuple(map(_enum, message.enums)),
        )
        self._hashes[id(message)] = hash(shape)
        return shape

    def _field(self, field: Field, scope: tuple[str, ...]) -> _Shape:
        shape = (field.number, field.name, field.label, self._type(field.type, scope))
        self._hashes[id(field)] = hash(shape)
        return shape

    def _type(self, type_: str | MapType, scope: tuple[str, ...]) -> object:
        resolved = resolve_type(self._names, type_, scope, self._names.package)
        if resolved.map is not None:
            key, value = resolved.map
            return ("map", self._type(key, scope), self._type(value, scope))
        if resolved.known is None:
            return (resolved.scalar, resolved.written)
        reference = reference_of(resolved.known, self._references)
        return (resolved.name, reference or id(resolved.known.element))


def _enum(enum: Enum) -> _Shape:
    return (enum.name, tuple((value.number, value.name) for value in enum.values))
