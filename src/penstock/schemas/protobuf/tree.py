"""A .proto file as a tree: everything in its canonical text, without comments and positions.

Immutable. Names are as written; `types` resolves them.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

FIELD_NUMBER_MAX: Final = 536_870_911
ENUM_NUMBER_MAX: Final = 2**31 - 1

SCALARS: Final = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
        "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip


# The values of options are dataclasses: as tuples, StringValue("1") would equal NumberValue("1").
@dataclass(frozen=True, slots=True)
class StringValue:
    """A quoted string. Escaped bytes outside ASCII are lone surrogates (surrogateescape)."""

    value: str


@dataclass(frozen=True, slots=True)
class NumberValue:
    """A number as written, including its sign."""

    text: str


@dataclass(frozen=True, slots=True)
class WordValue:
    """An enum constant, true, false, inf …"""

    text: str


@dataclass(frozen=True, slots=True)
class ListValue:
    """Several values, in brackets."""

    items: tuple["OptionValue", ...]


@dataclass(frozen=True, slots=True)
class MessageValue:
    """A message in braces. Keys are unique: the values of a repeated key are a list."""

    entries: tuple[tuple[str, "OptionValue"], ...]


OptionValue: TypeAlias = StringValue | NumberValue | WordValue | ListValue | MessageValue


class NamePart(NamedTuple):
    """One part of an option's name: `(a.b)` is an extension, `c` a field of it."""

    name: str
    is_extension: bool


class Option(NamedTuple):
    """`name = value`, in brackets or as a statement."""

    parts: tuple[NamePart, ...]
    value: OptionValue

    @property
    def name(self) -> str:
        """The first part without parentheses, by which options are sorted and merged."""
        return self.parts[0].name

    @property
    def is_custom(self) -> bool:
        """Whether an extension defines it."""
        return self.parts[0].is_extension

    def is_builtin(self, name: str) -> bool:
        """Whether it is the built-in option of that name."""
        return len(self.parts) == 1 and self.parts[0] == NamePart(name, False)


class Range(NamedTuple):
    """Numbers from `start` to `last`. `5` and `5 to 5` are different texts."""

    start: int
    last: int
    is_single: bool


class Reserved(NamedTuple):
    """Numbers or names that must not be used again."""

    values: tuple[Range | str, ...]


class Extensions(NamedTuple):
    """Numbers that extensions may use."""

    ranges: tuple[Range, ...]
    options: tuple[Option, ...]


class MapType(NamedTuple):
    """`map<key, value>`."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


class Field(NamedTuple):
    """A field of a message, a oneof or an extend block."""

    label: str | None  # optional, required or repeated, if it is written
    type: str | MapType
    name: str
    number: int
    options: tuple[Option, ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Whether its type is a scalar: its meaning does not depend on its surroundings."""
        return self.type in SCALARS


class Group(NamedTuple):
    """A field and its message in one, in proto2."""

    label: str | None
    number: int
    options: tuple[Option, ...]
    body: "Message"


class OneOf(NamedTuple):
    """Fields of which at most one is set."""

    name: str
    fields: tuple[Field, ...]
    groups: tuple[Group, ...] = ()
    options: tuple[Option, ...] = ()


class EnumValue(NamedTuple):
    """One constant."""

    name: str
    number: int
    options: tuple[Option, ...] = ()


class Enum(NamedTuple):
    """An enum type."""

    name: str
    values: tuple[EnumValue, ...]
    reserved: tuple[Reserved, ...] = ()
    options: tuple[Option, ...] = ()


class Extend(NamedTuple):
    """Fields added to another message."""

    name: str
    fields: tuple[Field, ...]
    groups: tuple[Group, ...] = ()


class Message(NamedTuple):
    """A message type. `nested` holds messages only."""

    name: str
    fields: tuple[Field, ...] = ()
    oneofs: tuple[OneOf, ...] = ()
    groups: tuple[Group, ...] = ()
    nested: tuple["Message", ...] = ()
    enums: tuple[Enum, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    extensions: tuple[Extensions, ...] = ()
    extends: tuple[Extend, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Whether it has scalar fields only: its meaning does not depend on its surroundings."""
        inner = self.oneofs or self.groups or self.nested or self.enums or self.extends
        return not inner and SCALARS.issuperset([field.type for field in self.fields])

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """Its fields, then those of its oneofs."""
        if not self.oneofs:
            return self.fields
        return (*self.fields, *(field for oneof in self.oneofs for field in oneof.fields))

    @property
    def is_map_entry(self) -> bool:
        """Whether it is the entry message that the compiler makes for `map<…>`."""
        return any(
            option.is_builtin("map_entry") and option.value == WordValue("true")
            for option in self.options
        )

    @property
    def map_type(self) -> MapType | None:
        """The map that this entry message stands for; None for any other message."""
        if not self.is_map_entry:
            return None
        types = {field.name: field.type for field in self.fields}
        key, value = types.get("key"), types.get("value")
        return MapType(key, value) if isinstance(key, str) and isinstance(value, str) else None


class Rpc(NamedTuple):
    """One call of a service."""

    name: str
    request: str
    response: str
    request_streams: bool = False
    response_streams: bool = False
    options: tuple[Option, ...] = ()


class Service(NamedTuple):
    """A service; stored, but not used by events."""

    name: str
    rpcs: tuple[Rpc, ...] = ()
    options: tuple[Option, ...] = ()


class ProtoFile(NamedTuple):
    """A whole file."""

    syntax: str | None = None  # None without a declaration, which means proto2
    package: str | None = None
    imports: tuple[str, ...] = ()
    public_imports: tuple[str, ...] = ()
    weak_imports: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    messages: tuple[Message, ...] = ()
    enums: tuple[Enum, ...] = ()
    extends: tuple[Extend, ...] = ()
    services: tuple[Service, ...] = ()

    @property
    def all_imports(self) -> tuple[str, ...]:
        """Every file that this one imports."""
        return (*self.imports, *self.public_imports, *self.weak_imports)
