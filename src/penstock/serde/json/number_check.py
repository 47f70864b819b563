"""Whether the numbers of a JSON event fit the columns that its schema says they have.

An `integer` has 64 bits, and a `number` is a double: a whole number there is within 2^53, beyond
which doubles skip some. A batch cannot hold others without rounding, so no event has them: they are
neither written nor read. Where a schema says no type, a column is text and any number fits.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final, TypeAlias

from penstock.schemas.json import JsonSchema
from penstock.serde.json.value_types import (
    VALUE,
    ListOf,
    MapOf,
    ObjectOf,
    Scalar,
    ValueType,
    columns_of,
)

INTEGER_BITS: Final = 63
EXACT_MAX: Final = 1 << 53  # the last whole number up to which doubles have all of them
_Check: TypeAlias = Callable[[Any], str | None]

# What a text looks like, signs left out: digits are 0, exponents e, what starts or ends a number is
# a comma. So digits behind a decimal point, or in a string, are not taken for a number.
_LOOKS: Final = bytes(
    ord("0") if c in b"0123456789" else ord("e") if c in b"eE" else
    ord(",") if c in b":[,}] \n\r\t" else 0
    for c in range(256)
)  # fmt: skip
_LONG: Final = b"," + b"0" * 16  # 2^53 has so many digits
_EXPONENT: Final = b"0e0"
_EXPONENT_END: Final = 64  # so far is looked for what ends it


class NumberCheck:
    """The check for values that one schema allows."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema

    def invalid(self, text: bytes, value: Any) -> str | None:
        """What does not fit in a value, which has this text; None if everything does."""
        return self.first_invalid(text, (value,))

    def first_invalid(self, text: bytes, values: Iterable[Any]) -> str | None:
        """The same for many values and their text."""
        if not _may_be_invalid(text) or self._check is None:
            return None
        return _first(map(_optional(self._check), values))

    @cached_property
    def _check(self) -> _Check | None:
        known = columns_of(self._schema)
        if not known.is_object:
            kind = known.columns[0].type
            assert known.columns[0].name == VALUE
            return None if kind is None else _check_of(kind)
        return _members(
            [(column.name, column.type) for column in known.columns if column.type is not None]
        )


def _may_be_invalid(text: bytes) -> bool:
    """Whether there may be such a number in a text, or in many; most have none."""
    looks = b",%b," % text.translate(_LOOKS, b"+-")
    position = looks.find(_EXPONENT)
    while position >= 0:
        if looks[position + len(_EXPONENT) : position + _EXPONENT_END].lstrip(b"0")[:1] == b",":
            return True
        position = looks.find(_EXPONENT, position + 1)
    return _LONG in looks


def _check_of(kind: ValueType) -> _Check | None:
    match kind:
        case Scalar.INTEGER:
            return _integer
        case Scalar.NUMBER:
            return _number
        case ObjectOf(properties):
            return _members(properties)
        case ListOf(items):
            item = _check_of(items)
            return None if item is None else lambda value: _first(map(_optional(item), value))
        case MapOf(values):
            entry = _check_of(values)
            if entry is None:
                return None
            return lambda value: _first(map(_optional(entry), value.values()))
        case _:
            return None


def _members(fields: Iterable[tuple[str, ValueType]]) -> _Check | None:
    checks = [(name, made) for name, kind in fields if (made := _check_of(kind)) is not None]
    if not checks:
        return None

    def check(value: Any) -> str | None:
        for name, check in checks:
            member = value.get(name)
            if member is not None and (wrong := check(member)) is not None:
                return wrong
        return None

    return check


def _first(wrongs: Iterable[str | None]) -> str | None:
    return next((wrong for wrong in wrongs if wrong is not None), None)


def _optional(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _integer(value: Any) -> str | None:
    if -1 << INTEGER_BITS <= value < 1 << INTEGER_BITS:
        return None
    return f"the integer {value} has more than 64 bits"


def _number(value: Any) -> str | None:
    if type(value) is not int or -EXACT_MAX <= value <= EXACT_MAX:
        return None
    return f"the number {value} is beyond 2^53, where doubles are not exact"
