"""Trees made from trees: without extensions, as the compiler wants them, with merged options.

`Rewriter` copies a tree; subclasses override what they change. A scope has the names of the
enclosing types, innermost last.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from penstock.schemas.protobuf.tree import (
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    MapType,
    Message,
    MessageValue,
    OneOf,
    Option,
    OptionValue,
    ProtoFile,
    Reserved,
    Rpc,
    Service,
)
from penstock.schemas.protobuf.types import Names

Scope: TypeAlias = tuple[str, ...]
Options: TypeAlias = tuple[Option, ...]
_CONFLUENT: Final = "confluent."


class Rewriter:
    """Copies a tree; a subclass overrides what it changes."""

    def file(self, file: ProtoFile) -> ProtoFile:
        """A whole file."""
        return file._replace(
            options=self.options(file.options, ()),
            messages=tuple(self.message(message, (message.name,)) for message in file.messages),
            enums=tuple(self.enum(enum, (enum.name,)) for enum in file.enums),
            extends=self.extends(file.extends, ()),
            services=tuple(map(self.service, file.services)),
        )

    def message(self, message: Message, scope: Scope, /) -> Message:
        """A message; `scope` ends with its name."""
        return message._replace(
            fields=tuple(self.field(field, scope) for field in message.fields),
            oneofs=tuple(self.oneof(oneof, scope) for oneof in message.oneofs),
            groups=tuple(self.group(group, scope) for group in message.groups),
            nested=tuple(self.message(inner, (*scope, inner.name)) for inner in message.nested),
            enums=tuple(self.enum(enum, (*scope, enum.name)) for enum in message.enums),
            reserved=self.reserved(message.reserved),
            extensions=self.extensions(message.extensions, scope),
            extends=self.extends(message.extends, scope),
            options=self.options(message.options, scope),
        )

    def field(self, field: Field, scope: Scope, /) -> Field:
        """A field of a message, a oneof or an extend block."""
        return field._replace(options=self.options(field.options, scope))

    def oneof(self, oneof: OneOf, scope: Scope, /) -> OneOf:
        """A oneof with its members."""
        return oneof._replace(
            fields=tuple(self.field(field, scope) for field in oneof.fields),
            groups=tuple(self.group(group, scope) for group in oneof.groups),
            options=self.options(oneof.options, scope),
        )

    def group(self, group: Group, scope: Scope, /) -> Group:
        """A group with its message."""
        return group._replace(
            options=self.options(group.options, scope),
            body=self.message(group.body, (*scope, group.body.name)),
        )

    def enum(self, enum: Enum, scope: Scope, /) -> Enum:
        """An enum; `scope` ends with its name."""
        return enum._replace(
            values=tuple(self.enum_value(value, scope) for value in enum.values),
            reserved=self.reserved(enum.reserved),
            options=self.options(enum.options, scope),
        )

    def enum_value(self, value: EnumValue, scope: Scope, /) -> EnumValue:
        """One constant."""
        return value._replace(options=self.options(value.options, scope))

    def extends(self, extends: tuple[Extend, ...], scope: Scope, /) -> tuple[Extend, ...]:
        """All extend blocks of a message or file."""
        return tuple(
            extend._replace(
                fields=tuple(self.field(field, scope) for field in extend.fields),
                groups=tuple(self.group(group, scope) for group in extend.groups),
            )
            for extend in extends
        )

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope, /
    ) -> tuple[Extensions, ...]:
        """The numbers that extensions of a message may use."""
        return tuple(
            extension._replace(options=self.options(extension.options, scope))
            for extension in extensions
        )

    def reserved(self, reserved: tuple[Reserved, ...]) -> tuple[Reserved, ...]:
        """The reserved numbers and names."""
        return reserved

    def service(self, service: Service) -> Service:
        """A service with its methods."""
        return service._replace(
            rpcs=tuple(map(self.rpc, service.rpcs)), options=self.options(service.options, ())
        )

    def rpc(self, rpc: Rpc) -> Rpc:
        """One method of a service."""
        return rpc._replace(options=self.options(rpc.options, ()))

    def options(self, options: Options, _scope: Scope, /) -> Options:
        """The options of any element."""
        return options


def without_extensions(file: ProtoFile) -> ProtoFile:
    """The file without extend blocks, extension ranges and custom options except Confluent's."""
    return _WithoutExtensions().file(file)


def for_compiler(file: ProtoFile, names: Names) -> ProtoFile:
    """The same file in a form that the compiler accepts: see `needs_rewriting`."""
    return _ForCompiler(names, zero_first=file.syntax == "proto3").file(file)


def needs_rewriting(file: ProtoFile) -> bool:
    """Whether the compiler would refuse a tree made from a descriptor or a normal form.

    Descriptors contain the entry messages of maps; normal forms have negative constants first,
    but proto3 requires that zero is first.
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
    return file.syntax == "proto3" and any(_zero_first(enum) != enum for enum in enums)


def _zero_first(enum: Enum) -> Enum:
    zeros = [value for value in enum.values if value.number == 0][:1]
    return enum._replace(values=(*zeros, *(value for value in enum.values if value not in zeros)))


class _WithoutExtensions(Rewriter):
    def options(self, options: Options, _scope: Scope, /) -> Options:
        return tuple(
            option
            for option in options
            if not option.is_custom or option.name.startswith(_CONFLUENT)
        )

    def extends(self, _extends: tuple[Extend, ...], _scope: Scope, /) -> tuple[Extend, ...]:
        return ()

    def extensions(
        self, _extensions: tuple[Extensions, ...], _scope: Scope, /
    ) -> tuple[Extensions, ...]:
        return ()


class MapFolder(Rewriter):
    """Restores `map<…>` and removes the entry messages."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def message(self, message: Message, scope: Scope, /) -> Message:
        """A message without the entry messages of its maps."""
        nested = tuple(inner for inner in message.nested if inner.map_type is None)
        return super().message(message._replace(nested=nested), scope)

    def field(self, field: Field, scope: Scope, /) -> Field:
        """A field, with a map type if its type is an entry message."""
        if isinstance(field.type, str):
            full_name = self._names.resolved(field.type, scope)
            element = self._names.type_of(full_name).element if full_name is not None else None
            map_type = element.map_type if isinstance(element, Message) else None
            if map_type is not None:
                field = field._replace(label=None, type=MapType(*map_type))
        return super().field(field, scope)


class _ForCompiler(MapFolder):
    def __init__(self, names: Names, *, zero_first: bool) -> None:
        super().__init__(names)
        self._zero_first = zero_first

    def enum(self, enum: Enum, _scope: Scope, /) -> Enum:
        return _zero_first(enum) if self._zero_first else enum


class OptionMerger:
    """Merges options that are set in parts: `(o).a = 1, (o).b = 2` becomes `(o) = {a: 1, b: 2}`.

    Only options with a known extension that is not repeated.
    """

    def __init__(self, names: Names) -> None:
        self._names = names

    def merged(self, options: Iterable[Option], scope: Scope) -> Iterator[Option]:
        """The options in their order, with options of the same name merged where possible."""
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

    def _joined(
        self, field: Field, first: OptionValue, second: OptionValue, scope: Scope
    ) -> OptionValue:
        if isinstance(first, MessageValue) and isinstance(second, MessageValue):
            return self._joined_entries(field, first, second, scope)
        return second  # set twice: the last value counts

    def _joined_entries(
        self, container: Field, first: MessageValue, second: MessageValue, scope: Scope
    ) -> MessageValue:
        message = self._message_of(container, scope)
        entries = dict(first.entries)
        for key, value in second.entries:
            if key in entries:
                entries[key] = self._joined_values(
                    _member(message, key), entries[key], value, scope
                )
            else:
                entries[key] = value
        return MessageValue(tuple(sorted(entries.items(), key=lambda entry: entry[0])))

    def _joined_values(
        self, field: Field | None, first: OptionValue, second: OptionValue, scope: Scope
    ) -> OptionValue:
        if field is not None and field.label != "repeated":
            return self._joined(field, first, second, scope)
        items = dict.fromkeys((*_items(first), *_items(second)))
        return ListValue(tuple(items)) if len(items) > 1 else next(iter(items))

    def _message_of(self, field: Field, scope: Scope) -> Message | None:
        if not isinstance(field.type, str):
            return None
        full_name = self._names.resolved(field.type, scope)
        element = self._names.type_of(full_name).element if full_name is not None else None
        return element if isinstance(element, Message) else None


def _items(value: OptionValue) -> tuple[OptionValue, ...]:
    return value.items if isinstance(value, ListValue) else (value,)


def _member(message: Message | None, name: str) -> Field | None:
    if message is None:
        return None
    return next((field for field in message.all_fields if field.name == name), None)


def without_default_json_names(file: Any) -> Any:
    """A copy without default JSON names, because Confluent does not send them either."""
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
    """The JSON name that the compiler derives: lowerCamelCase."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)
