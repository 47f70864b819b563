"""A walk over a tree that makes another: everything is copied as it is unless a subclass says so.

The scope is the path of names of the types around, innermost last, as name look-up wants it.

Other forms of a tree: without what only generators read, and one that the compiler takes.

Options that are set in several steps, made one: `(o).a = 1, (o).b = 2` says `(o) = {a, b}`.

The names fields have in JSON when nobody says otherwise.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from penstock.schemas.protobuf.tree import (
    Aggregate,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    MapType,
    Message,
    OneOf,
    Option,
    ProtoFile,
    Reserved,
    Rpc,
    Service,
    Value,
)
from penstock.schemas.protobuf.types import Names

Scope: TypeAlias = tuple[str, ...]
Options: TypeAlias = tuple[Option, ...]


class Rewriter:
    """Copies; a subclass overrides what it wants to come out otherwise."""

    def file(self, file: ProtoFile) -> ProtoFile:
        """A whole file."""
        return file._replace(
            options=self.options(file.options, ()),
            messages=tuple(self.message(one, (one.name,)) for one in file.messages),
            enums=tuple(self.enum(one, (one.name,)) for one in file.enums),
            extends=self.extends(file.extends, ()),
            services=tuple(map(self.service, file.services)),
        )

    def message(self, message: Message, scope: Scope) -> Message:
        """A message; `scope` ends in its own name."""
        return message._replace(
            fields=tuple(self.field(one, scope) for one in message.fields),
            oneofs=tuple(self.oneof(one, scope) for one in message.oneofs),
            groups=tuple(self.group(one, scope) for one in message.groups),
            nested=tuple(self.message(one, (*scope, one.name)) for one in message.nested),
            enums=tuple(self.enum(one, (*scope, one.name)) for one in message.enums),
            reserved=self.reserved(message.reserved),
            extensions=self.extensions(message.extensions, scope),
            extends=self.extends(message.extends, scope),
            options=self.options(message.options, scope),
        )

    def field(self, field: Field, scope: Scope) -> Field:
        """A field, wherever it stands."""
        return field._replace(options=self.options(field.options, scope))

    def oneof(self, oneof: OneOf, scope: Scope) -> OneOf:
        """A oneof with its members."""
        return oneof._replace(
            fields=tuple(self.field(one, scope) for one in oneof.fields),
            groups=tuple(self.group(one, scope) for one in oneof.groups),
            options=self.options(oneof.options, scope),
        )

    def group(self, group: Group, scope: Scope) -> Group:
        """A group with its message."""
        return group._replace(
            options=self.options(group.options, scope),
            body=self.message(group.body, (*scope, group.body.name)),
        )

    def enum(self, enum: Enum, scope: Scope) -> Enum:
        """An enum; `scope` ends in its own name."""
        return enum._replace(
            values=tuple(self.enum_value(one, scope) for one in enum.values),
            reserved=self.reserved(enum.reserved),
            options=self.options(enum.options, scope),
        )

    def enum_value(self, value: EnumValue, scope: Scope) -> EnumValue:
        """One constant."""
        return value._replace(options=self.options(value.options, scope))

    def extends(self, extends: tuple[Extend, ...], scope: Scope) -> tuple[Extend, ...]:
        """All extend blocks of a place."""
        return tuple(
            one._replace(
                fields=tuple(self.field(field, scope) for field in one.fields),
                groups=tuple(self.group(group, scope) for group in one.groups),
            )
            for one in extends
        )

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope
    ) -> tuple[Extensions, ...]:
        """The numbers a message leaves to others."""
        return tuple(one._replace(options=self.options(one.options, scope)) for one in extensions)

    def reserved(self, reserved: tuple[Reserved, ...]) -> tuple[Reserved, ...]:
        """What must not come back."""
        return reserved

    def service(self, service: Service) -> Service:
        """A service with its calls."""
        return service._replace(
            rpcs=tuple(map(self.rpc, service.rpcs)), options=self.options(service.options, ())
        )

    def rpc(self, rpc: Rpc) -> Rpc:
        """One call."""
        return rpc._replace(options=self.options(rpc.options, ()))

    def options(self, options: Options, scope: Scope) -> Options:
        """The options of anything."""
        return options


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


class Merger:
    """Merges options of one name, once their extension is known and not repeated."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def merged(self, options: Iterable[Option], scope: Scope) -> Iterator[Option]:
        """The options in their order, those of one name as one where they may be."""
        waiting: Option | None = None
        for option in options:
            field = self._singular_extension(option)
            if waiting is not None and field is not None and waiting.name == option.name:
                value = self._joined(field, waiting.value, option.value, scope)
                waiting = option._replace(value=value)
                continue
            if waiting is not None:
                yield waiting
            waiting = option
        if waiting is not None:
            yield waiting

    def _singular_extension(self, option: Option) -> Field | None:
        if not option.is_custom:
            return None
        full_name = self._names.resolved_extension(f".{option.name}", ())
        if full_name is None:
            return None
        field = self._names.extension_of(full_name)
        return None if field.label == "repeated" else field

    def _joined(self, field: Field, first: Value, second: Value, scope: Scope) -> Value:
        if isinstance(first, Aggregate) and isinstance(second, Aggregate):
            return self._joined_entries(field, first, second, scope)
        return second  # set twice: the last word counts

    def _joined_entries(
        self, container: Field, first: Aggregate, second: Aggregate, scope: Scope
    ) -> Aggregate:
        message = self._message_of(container, scope)
        entries = dict(first.entries)
        for key, value in second.entries:
            if key in entries:
                entries[key] = self._joined_values(
                    _member(message, key), entries[key], value, scope
                )
            else:
                entries[key] = value
        return Aggregate(tuple(sorted(entries.items(), key=lambda entry: entry[0])))

    def _joined_values(
        self, field: Field | None, first: Value, second: Value, scope: Scope
    ) -> Value:
        if field is not None and field.label != "repeated":
            return self._joined(field, first, second, scope)
        items = dict.fromkeys((*_listed(first), *_listed(second)))
        return ListValue(tuple(items)) if len(items) > 1 else next(iter(items))

    def _message_of(self, field: Field, scope: Scope) -> Message | None:
        if not isinstance(field.type, str):
            return None
        full_name = self._names.resolved(field.type, scope)
        element = self._names.type_of(full_name).element if full_name is not None else None
        return element if isinstance(element, Message) else None


def _listed(value: Value) -> tuple[Value, ...]:
    return value.items if isinstance(value, ListValue) else (value,)


def _member(message: Message | None, name: str) -> Field | None:
    if message is None:
        return None
    fields = (*message.fields, *(field for oneof in message.oneofs for field in oneof.fields))
    return next((field for field in fields if field.name == name), None)


def without_default_json_names(file: Any) -> Any:
    """A copy without the JSON names that everybody derives alike; the peer sends none either."""
    copy = type(file)()
    copy.CopyFrom(file)
    waiting = list(copy.message_type)
    _clear_json_names(copy.extension)
    while waiting:
        message = waiting.pop()
        _clear_json_names(message.field)
        _clear_json_names(message.extension)
        waiting += message.nested_type
    return copy


def _clear_json_names(fields: Any) -> None:
    for field in fields:
        if field.json_name == default_json_name(field.name):
            field.ClearField("json_name")


def default_json_name(name: str) -> str:
    """lowerCamelCase as the compiler derives it."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
