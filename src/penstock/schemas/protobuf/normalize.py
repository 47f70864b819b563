"""The normal form: one order and one spelling for everything that may be written in several ways.

Fields and constants are sorted by number, imports and options by name; types have full names with
a leading dot; reserved ranges get one statement each. Messages keep their order, because message
indexes count them. Numbers keep all digits, where Confluent's printer rounds to three decimals.
"""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from penstock.schemas.protobuf.rewrite import MapFolder, OptionMerger, Options, Scope
from penstock.schemas.protobuf.tokens import whole_number
from penstock.schemas.protobuf.tree import (
    SCALARS,
    Enum,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    MapType,
    Message,
    MessageValue,
    NamePart,
    NumberValue,
    OneOf,
    Option,
    OptionValue,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    StringValue,
    WordValue,
)
from penstock.schemas.protobuf.types import Names

_EXPONENT_MAX: Final = 400  # a number beyond it stays as written


def normal_form(file: ProtoFile, names: Names) -> ProtoFile:
    """The file in normal form."""
    return _Normalizer(names).file(file)


class _Normalizer(MapFolder):
    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self._merger = OptionMerger(names)

    def file(self, file: ProtoFile) -> ProtoFile:
        return super().file(
            file._replace(
                syntax=None if file.syntax == "proto2" else file.syntax,
                imports=_sorted_once(file.imports),
                public_imports=_sorted_once(file.public_imports),
                weak_imports=_sorted_once(file.weak_imports),
            )
        )

    def message(self, message: Message, scope: Scope, /) -> Message:
        normal = super().message(message, scope)
        oneofs = sorted(normal.oneofs, key=_first_number)
        return normal._replace(
            fields=_by_number(normal.fields),
            oneofs=tuple(oneofs),
            groups=tuple(sorted(normal.groups, key=_number)),
        )

    def oneof(self, oneof: OneOf, scope: Scope, /) -> OneOf:
        normal = super().oneof(oneof, scope)
        groups = sorted(normal.groups, key=_number)
        return normal._replace(fields=_by_number(normal.fields), groups=tuple(groups))

    def enum(self, enum: Enum, scope: Scope, /) -> Enum:
        normal = super().enum(enum, scope)
        values = sorted(normal.values, key=lambda value: (value.number, value.name))
        return normal._replace(values=tuple(values))

    def field(self, field: Field, scope: Scope, /) -> Field:
        normal = super().field(field, scope)
        if isinstance(normal.type, MapType):
            value = self._qualified(normal.type.value, scope)
            return normal._replace(type=MapType(normal.type.key, value))
        return normal._replace(type=self._qualified(normal.type, scope))

    def extends(self, extends: tuple[Extend, ...], scope: Scope, /) -> tuple[Extend, ...]:
        """One block for each extended message."""
        fields: dict[str, list[Field]] = {}
        groups: dict[str, list[Group]] = {}
        for extend in super().extends(extends, scope):
            name = self._qualified(extend.name, scope)
            fields.setdefault(name, []).extend(extend.fields)
            groups.setdefault(name, []).extend(extend.groups)
        return tuple(Extend(name, _by_number(fields[name]), tuple(groups[name])) for name in fields)

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope, /
    ) -> tuple[Extensions, ...]:
        single = [
            Extensions((_single(numbers),), extension.options)
            for extension in super().extensions(extensions, scope)
            for numbers in extension.ranges
        ]
        return tuple(sorted(single, key=lambda extension: extension.ranges[0].start))

    def reserved(self, reserved: tuple[Reserved, ...]) -> tuple[Reserved, ...]:
        values = [value for statement in reserved for value in statement.values]
        ranges = sorted(_single(value) for value in values if not isinstance(value, str))
        names = sorted(value for value in values if isinstance(value, str))
        return (
            *(Reserved((numbers,)) for numbers in ranges),
            *(Reserved((name,)) for name in names),
        )

    def rpc(self, rpc: Rpc) -> Rpc:
        return (
            super()
            .rpc(rpc)
            ._replace(
                request=self._qualified(rpc.request, ()), response=self._qualified(rpc.response, ())
            )
        )

    def options(self, options: Options, scope: Scope, /) -> Options:
        ordered = sorted((self._option(option, scope) for option in options), key=_sort_key)
        return tuple(self._merger.merged(ordered, scope))

    def _option(self, option: Option, scope: Scope) -> Option:
        value = self._value(option.value, scope)
        if not option.is_custom:
            return option._replace(value=value)
        full_name = self._names.resolved_extension(option.name, scope)
        if full_name is None:
            return option._replace(value=value)
        for part in reversed(option.parts[1:]):
            value = MessageValue(((f"[{part.name}]" if part.is_extension else part.name, value),))
        return Option((NamePart(full_name, is_extension=True),), value)

    def _value(self, value: OptionValue, scope: Scope) -> OptionValue:
        match value:
            case NumberValue(text):
                return NumberValue(normal_number(text))
            case ListValue(items):
                return ListValue(tuple(self._value(item, scope) for item in items))
            case MessageValue(entries):
                return self._aggregate(entries, scope)
            case StringValue() | WordValue():
                return value

    def _aggregate(self, entries: Iterable[tuple[str, OptionValue]], scope: Scope) -> MessageValue:
        normal: dict[str, OptionValue] = {}
        for key, value in entries:
            if value == ListValue(()):
                continue
            inner = self._value(value, scope)
            if isinstance(inner, ListValue) and len(inner.items) == 1:
                inner = inner.items[0]
            normal.setdefault(self._key(key, scope), inner)
        return MessageValue(tuple(sorted(normal.items(), key=lambda entry: entry[0])))

    def _key(self, key: str, scope: Scope) -> str:
        if not key.startswith("["):
            return key
        full_name = self._names.resolved_extension(key[1:-1], scope)
        return key if full_name is None else f"[{full_name}]"

    def _qualified(self, name: str, scope: Scope) -> str:
        if name in SCALARS:
            return name
        full_name = self._names.resolved(name, scope)
        return name if full_name is None else f".{full_name}"


def normal_number(text: str) -> str:
    """A number without exponent, prefix, suffix, leading or trailing zeros; inf stays inf."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole = whole_number(digits) if len(digits) < _EXPONENT_MAX else None
    if whole is not None:
        return f"{sign}{whole}" if whole else "0"
    try:
        number = Decimal(digits.rstrip("fF"))
    except InvalidOperation:
        return text
    if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
        return text
    decimal = f"{number:f}"
    decimal = decimal.rstrip("0").rstrip(".") if "." in decimal else decimal
    return f"{sign}{decimal}" if number else "0"


def _sort_key(option: Option) -> str:
    return option.name if option.is_custom else ".".join(part.name for part in option.parts)


def _first_number(oneof: OneOf) -> int:
    members: list[Field | Group] = [*oneof.fields, *oneof.groups]
    return members[0].number if members else 0


def _by_number(fields: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(sorted(fields, key=_number))


def _number(member: Field | Group) -> int:
    return member.number


def _single(numbers: Range) -> Range:
    return numbers._replace(is_single=numbers.start == numbers.last)


def _sorted_once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
