"""What the type of a field is to somebody who compares: scalars by what their bytes can hold.

What equal messages of two schemas are known by, so that nobody compares them field by field.

Two messages of one shape have the same members, names and types, nested ones included, and every
type they name is defined in the same place: comparing them finds nothing.

What the names in a file mean: its types and extension fields, and those of all it imports.

A name is looked for from the innermost scope outwards, as a whole, in everything that is known;
that is how Confluent's registry reads names, and a valid file means the same either way.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.schemas.model import Reference
from penstock.schemas.protobuf.tree import SCALARS, Enum, Extend, Field, MapType, Message, ProtoFile

LOCAL: Final = ""  # the origin of what the file itself defines


class KnownType(NamedTuple):
    """A type, its package and the import it came by."""

    package: str
    origin: str
    element: Message | Enum


class Names:
    """Everything a file can name. Immutable once made."""

    def __init__(self, file: ProtoFile, imports: Mapping[str, ProtoFile]) -> None:
        self.package = file.package or ""
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
        groups = [*message.groups, *(one for oneof in message.oneofs for one in oneof.groups)]
        for nested in (*message.nested, *(group.body for group in groups)):
            self._collect_message(inner, known._replace(element=nested), nested)

    def _collect_extensions(self, prefix: str, extends: Iterable[Extend]) -> None:
        for extend in extends:
            for field in extend.fields:
                self._extensions[prefix + field.name] = field

    def type_of(self, full_name: str) -> KnownType:
        """A type by the name that `resolved` gave."""
        return self._types[full_name]

    def extension_of(self, full_name: str) -> Field:
        """An extension field by the name that `resolved_extension` gave."""
        return self._extensions[full_name]

    def resolved(self, name: str, scope: tuple[str, ...], package: str | None = None) -> str | None:
        """The full name of a type, without a dot in front; None if there is none."""
        return _found(self._types, name, self._prefix(scope, package))

    def resolved_extension(self, name: str, scope: tuple[str, ...]) -> str | None:
        """The full name of an extension field."""
        return _found(self._extensions, name, self._prefix(scope, None))

    def _prefix(self, scope: tuple[str, ...], package: str | None) -> list[str]:
        home = self.package if package is None else package
        return [*home.split("."), *scope] if home else list(scope)


def _found(known: Mapping[str, object], name: str, prefix: list[str]) -> str | None:
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


class Meaning(NamedTuple):
    """What a field's type is: a scalar (enums count as numbers), a map, or a message."""

    kind: str
    written: str = ""
    name: str = ""  # in full
    scalar: str = ""
    map: MapType | None = None
    known: KnownType | None = None


def meaning(names: Names, type_: str | MapType, scope: tuple[str, ...], package: str) -> Meaning:
    """The meaning of a field's type, written in that scope of that package."""
    if isinstance(type_, MapType):
        return Meaning("map", map=type_)
    if type_ in SCALARS:
        return Meaning("scalar", scalar=_SCALAR_GROUPS[type_])
    full_name = names.resolved(type_, scope, package)
    if full_name is None:
        return Meaning("message", written=type_)
    known = names.type_of(full_name)
    if isinstance(known.element, Enum):
        return Meaning("scalar", scalar=_ENUM_GROUP)
    map_type = known.element.map_type
    if map_type is not None:
        return Meaning("map", map=map_type)
    return Meaning("message", written=type_, name=full_name, known=known)


def reference_of(known: KnownType, references: tuple[Reference, ...]) -> tuple[str, int] | None:
    """The subject and version a type comes from; None where only a reference's reference knows."""
    if known.origin == LOCAL:
        return ("", -1)
    for reference in reversed(references):
        if reference.name == known.origin:
            return (reference.subject, reference.version)
    return None


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
