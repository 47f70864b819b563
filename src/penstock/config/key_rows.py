"""The row of a setting: its name, its type, the values it accepts, and its meaning.

Never holds a value. Values are text in layers (see `resolve`), parsed by the row that owns them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from penstock.errors import ErrorCode, Refused

Value = bool | int | float | str | tuple[str, ...] | None

LONG_MAX: Final = (1 << 63) - 1  # how Kafka writes "without limit"
INT_MAX: Final = (1 << 31) - 1
_DIGITS_MAX: Final = 24  # more than any 64-bit number has


class ValueType(IntEnum):
    """The type of a value, numbered as in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """How a value can be changed: only at a start, or while the broker runs."""

    READ_ONLY = "at start"
    PER_BROKER = "at run time"  # for one broker or for all
    CLUSTER_WIDE = "at run time, for all brokers"
    PER_RESOURCE = "at run time, for one topic or group"


class Synonym(str):
    """The broker key that a topic or group key falls back to; `factor` converts its unit."""

    __slots__ = ("factor",)
    factor: int

    def __new__(cls, name: str, factor: int = 1) -> "Synonym":
        synonym = super().__new__(cls, name)
        synonym.factor = factor
        return synonym


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One row: everything that DescribeConfigs, validation and the documentation need."""

    name: str
    value_type: ValueType
    default: Value
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], str | None] | None = None  # returns why a value is invalid, or None
    synonyms: tuple[Synonym, ...] = ()  # most specific first
    update_mode: UpdateMode = UpdateMode.PER_RESOURCE
    sensitive: bool = False

    def parse(self, text: str) -> Value:
        """The value of `text`; Refused when it is not valid for this key."""
        value = _READERS[self.value_type](text)
        problem = _not_of_type(self.value_type) if value is None else self._problem_with(value)
        if problem:
            shown = "[hidden]" if self.sensitive else text
            raise Refused(
                ErrorCode.invalid_config,
                f"Invalid value {shown} for configuration {self.name}: {problem}",
            )
        return value

    def default_text(self) -> str | None:
        """The default as DescribeConfigs writes it."""
        return write_value(self.default)

    def _problem_with(self, value: Value) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                return f"Value must be at least {_number(self.minimum)}"
            if self.maximum is not None and value > self.maximum:
                return f"Value must be no more than {_number(self.maximum)}"
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            if any(each not in self.choices for each in given):
                return f"String must be one of: {', '.join(self.choices)}"
        return self.check(value) if self.check is not None else None


def write_value(value: Value) -> str | None:
    """A value as text that `parse` reads."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def key_table(*keys: Key) -> dict[str, Key]:
    """Rows by name, in alphabetical order."""
    table = {key.name: key for key in sorted(keys, key=lambda key: key.name)}
    assert len(table) == len(keys), "two rows have the same name"
    return table


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _read_boolean(text: str) -> Value:
    return {"true": True, "false": False}.get(text.strip().lower())


def _read_integer(bits: int) -> Callable[[str], Value]:
    end = 1 << (bits - 1)

    def read(text: str) -> Value:
        stripped = text.strip()
        # int() also accepts underscores, which no other Kafka tool would read back.
        if not stripped.removeprefix("-").removeprefix("+").isdecimal() or not stripped.isascii():
            return None
        value = int(stripped) if len(stripped) <= _DIGITS_MAX else end
        return value if -end <= value < end else None

    return read


def _read_double(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value != value else value  # NaN is not a value


def _read_list(text: str) -> Value:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _read_text(text: str) -> Value:
    return text.strip()


_READERS: Final[dict[ValueType, Callable[[str], Value]]] = {
    ValueType.BOOLEAN: _read_boolean,
    ValueType.STRING: _read_text,
    ValueType.INT: _read_integer(32),
    ValueType.SHORT: _read_integer(16),
    ValueType.LONG: _read_integer(64),
    ValueType.DOUBLE: _read_double,
    ValueType.LIST: _read_list,
    ValueType.CLASS: _read_text,
    ValueType.PASSWORD: _read_text,
}


def _not_of_type(value_type: ValueType) -> str:
    if value_type is ValueType.BOOLEAN:
        return "Expected value to be either true or false"
    return f"Not a number of type {value_type.name}"
