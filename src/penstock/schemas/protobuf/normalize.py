"""The normal form: everything whose order or spelling has no meaning, in one order and spelling.

Fields and constants by number, imports and options by name, every type by its full name with a
dot in front, reserved numbers one by one. Messages stay in their order, because message indexes
count them. Numbers keep their value to the last digit, where the peer's printer rounds to three
decimals.
"""

from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from penstock.schemas.protobuf.rewrite import MapFolder, Merger, Options, Scope
from penstock.schemas.protobuf.tokens import whole_number
from penstock.schemas.protobuf.tree import (
    SCALARS,
    Aggregate,
    Enum,
    Extend,
    Extensions,
    Field,
    Group,
    ListValue,
    MapType,
    Message,
    NamePart,
    Number,
    OneOf,
    Option,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Text,
    Value,
    Word,
)
from penstock.schemas.protobuf.types import Names

_EXPONENT_MAX: Final = 400  # beyond it a number stays as it was written


def normal_form(file: ProtoFile, names: Names) -> ProtoFile:
    """The file in normal form."""
    return _Normalizer(names).file(file)


class _Normalizer(MapFolder):
    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self._merger = Merger(names)

    def file(self, file: ProtoFile) -> ProtoFile:
        return super().file(
            file._replace(
                syntax=None if file.syntax == "proto2" else file.syntax,
                imports=_sorted_once(file.imports),
                public_imports=_sorted_once(file.public_imports),
                weak_imports=_sorted_once(file.weak_imports),
            )
        )

    def message(self, message: Message, scope: Scope) -> Message:
        normal = super().message(message, scope)
        oneofs = sorted(normal.oneofs, key=_first_number)
        return normal._replace(
            fields=_by_number(normal.fields),
            oneofs=tuple(oneofs),
            groups=tuple(sorted(normal.groups, key=lambda one: one.number)),
        )

    def oneof(self, oneof: OneOf, scope: Scope) -> OneOf:
        normal = super().oneof(oneof, scope)
        groups = sorted(normal.groups, key=lambda one: one.number)
        return normal._replace(fields=_by_number(normal.fields), groups=tuple(groups))

    def enum(self, enum: Enum, scope: Scope) -> Enum:
        normal = super().enum(enum, scope)
        values = sorted(normal.values, key=lambda one: (one.number, one.name))
        return normal._replace(values=tuple(values))

    def field(self, field: Field, scope: Scope) -> Field:
        normal = super().field(field, scope)
        if isinstance(normal.type, MapType):
            value = self._qualified(normal.type.value, scope)
            return normal._replace(type=MapType(normal.type.key, value))
        return normal._replace(type=self._qualified(normal.type, scope))

    def extends(self, extends: tuple[Extend, ...], scope: Scope) -> tuple[Extend, ...]:
        """One block for each message that is extended."""
        fields: dict[str, list[Field]] = {}
        groups: dict[str, list[Group]] = {}
        for one in super().extends(extends, scope):
            name = self._qualified(one.name, scope)
            fields.setdefault(name, []).extend(one.fields)
            groups.setdefault(name, []).extend(one.groups)
        return tuple(Extend(name, _by_number(fields[name]), tuple(groups[name])) for name in fields)

    def extensions(
        self, extensions: tuple[Extensions, ...], scope: Scope
    ) -> tuple[Extensions, ...]:
        single = [
            Extensions((_single(one),), extension.options)
            for extension in super().extensions(extensions, scope)
            for one in extension.ranges
        ]
        return tuple(sorted(single, key=lambda one: one.ranges[0].start))

    def reserved(self, reserved: tuple[Reserved, ...]) -> tuple[Reserved, ...]:
        values = [value for one in reserved for value in one.values]
        ranges = sorted(_single(one) for one in values if not isinstance(one, str))
        texts = sorted(one for one in values if isinstance(one, str))
        numbers = tuple(Reserved((one,)) for one in ranges)
        return (*numbers, *(Reserved((one,)) for one in texts))

    def rpc(self, rpc: Rpc) -> Rpc:
        return (
            super()
            .rpc(rpc)
            ._replace(
                request=self._qualified(rpc.request, ()), response=self._qualified(rpc.response, ())
            )
        )

    def options(self, options: Options, scope: Scope) -> Options:
        ordered = sorted((self._option(one, scope) for one in options), key=_sorting_name)
        return tuple(self._merger.merged(ordered, scope))

    def _option(self, option: Option, scope: Scope) -> Option:
        value = self._value(option.value, scope)
        if not option.is_custom:
            return option._replace(value=value)
        full_name = self._names.resolved_extension(option.name, scope)
        if full_name is None:
            return option._replace(value=value)
        for part in reversed(option.parts[1:]):
            value = Aggregate(((f"[{part.name}]" if part.is_extension else part.name, value),))
        return Option((NamePart(full_name, is_extension=True),), value)

    def _value(self, value: Value, scope: Scope) -> Value:
        match value:
            case Number(text):
                return Number(plain_number(text))
            case ListValue(items):
                return ListValue(tuple(self._value(item, scope) for item in items))
            case Aggregate(entries):
                return self._aggregate(entries, scope)
            case Text() | Word():
                return value

    def _aggregate(self, entries: Iterable[tuple[str, Value]], scope: Scope) -> Aggregate:
        normal: dict[str, Value] = {}
        for key, value in entries:
            if value == ListValue(()):
                continue
            inner = self._value(value, scope)
            if isinstance(inner, ListValue) and len(inner.items) == 1:
                inner = inner.items[0]
            normal.setdefault(self._key(key, scope), inner)
        return Aggregate(tuple(sorted(normal.items(), key=lambda entry: entry[0])))

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


def plain_number(text: str) -> str:
    """A number without exponent, leading or trailing zeros, prefix or suffix; inf stays inf."""
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
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return f"{sign}{plain}" if number else "0"


def _sorting_name(option: Option) -> str:
    return option.name if option.is_custom else ".".join(part.name for part in option.parts)


def _first_number(oneof: OneOf) -> int:
    numbers = (*(one.number for one in oneof.fields), *(one.number for one in oneof.groups))
    return numbers[0] if numbers else 0


def _by_number(fields: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(sorted(fields, key=lambda one: one.number))


def _single(numbers: Range) -> Range:
    return numbers._replace(is_single=numbers.start == numbers.last)


def _sorted_once(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
