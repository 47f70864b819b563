"""What a setting is: its name, its kind, what it may be, and what it means.

Never holds a value: values are text in layers (see `resolve`), parsed by the key that owns them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from penstock.errors import ErrorCode, Refused

Value = bool | int | float | str | tuple[str, ...] | None

LONG_MAX: Final = (1 << 63) - 1  # how Kafka writes "without limit"
INT_MAX: Final = (1 << 31) - 1


class Kind(IntEnum):
    """The type of a value, numbered as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Change(Enum):
    """When a new value takes effect."""

    RESTART = "at the next start"
    PER_BROKER = "at once, for one broker or for all"
    AT_ONCE = "at once"


class Synonym(str):
    """The broker key a topic or group key falls back to; `factor` turns its unit into ours."""

    __slots__ = ("factor",)
    factor: int

    def __new__(cls, name: str, factor: int = 1) -> "Synonym":
        synonym = super().__new__(cls, name)
        synonym.factor = factor
        return synonym


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One row: everything DescribeConfigs, validation and the documentation need to know."""

    name: str
    kind: Kind
    default: Value
    doc: str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], str | None] | None = None  # what is wrong with a value, if anything
    synonyms: tuple[Synonym, ...] = ()  # most specific first
    change: Change = Change.AT_ONCE
    sensitive: bool = False

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; Refused when it stands for none."""
        value = _READERS[self.kind](text)
        wrong = _no_value(self.kind) if value is None else self._wrong(value)
        if wrong:
            shown = "[hidden]" if self.sensitive else text
            raise Refused(
                ErrorCode.invalid_config,
                f"Invalid value {shown} for configuration {self.name}: {wrong}",
            )
        return value

    def default_text(self) -> str | None:
        """The default as DescribeConfigs writes it."""
        return write_value(self.default)

    def _wrong(self, value: Value) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            if self.least is not None and value < self.least:
                return f"Value must be at least {_number(self.least)}"
            if self.most is not None and value > self.most:
                return f"Value must be no more than {_number(self.most)}"
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            if any(each not in self.choices for each in given):
                return f"String must be one of: {', '.join(self.choices)}"
        return self.check(value) if self.check is not None else None


def write_value(value: Value) -> str | None:
    """A value as text, in the way `parse` reads it."""
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


def _read_whole(bits: int) -> Callable[[str], Value]:
    end = 1 << (bits - 1)

    def read(text: str) -> Value:
        stripped = text.strip()
        # int() also takes underscores, which no other Kafka tool would read back
        if not stripped.removeprefix("-").removeprefix("+").isdecimal() or not stripped.isascii():
            return None
        value = int(stripped) if len(stripped) < 25 else end
        return value if -end <= value < end else None

    return read


def _read_double(text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None  # not a number is not a value


def _read_list(text: str) -> Value:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _read_text(text: str) -> Value:
    return text.strip()


_READERS: Final[dict[Kind, Callable[[str], Value]]] = {
    Kind.BOOLEAN: _read_boolean,
    Kind.STRING: _read_text,
    Kind.INT: _read_whole(32),
    Kind.SHORT: _read_whole(16),
    Kind.LONG: _read_whole(64),
    Kind.DOUBLE: _read_double,
    Kind.LIST: _read_list,
    Kind.CLASS: _read_text,
    Kind.PASSWORD: _read_text,
}


def _no_value(kind: Kind) -> str:
    if kind is Kind.BOOLEAN:
        return "Expected value to be either true or false"
    return f"Not a number of type {kind.name}"
