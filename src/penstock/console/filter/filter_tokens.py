"""The text of a filter to tokens. Every token knows its column, for messages."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Final, NamedTuple

CHARACTERS_MAX: Final = 4_000
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*"|'(?:[^'\\\x00-\x1f]|\\.)*')
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)
    |(?P<name>[^\W\d]\w*)
    |(?P<symbol>==|!=|<=|>=|[<>()\[\],.])""",
    re.VERBOSE,
)
_EXAMPLE: Final = 'for example: key == "berlin" and value.cents >= 1000'


class FilterError(Exception):
    """A filter that cannot be read: why, and at which column (from 1)."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"filter, column {column}: {message}")
        self.column = column


class TokenKind(Enum):
    """What a token is."""

    TEXT = auto()
    NUMBER = auto()
    NAME = auto()
    SYMBOL = auto()
    END = auto()


class Token(NamedTuple):
    """A piece of a filter; `content` is its value if it is a text or a number."""

    kind: TokenKind
    written: str
    content: Any
    column: int


def tokenize(text: str) -> Iterator[Token]:
    """The tokens of a filter, with one of kind END behind them."""
    if len(text) > CHARACTERS_MAX:
        raise FilterError(f"it is longer than {CHARACTERS_MAX} characters", CHARACTERS_MAX + 1)
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        column = position + 1
        if match is None:
            raise FilterError(_unexpected(text[position]), column)
        position = match.end()
        kind, written = match.lastgroup, match.group()
        if kind == "text":
            yield Token(TokenKind.TEXT, written, _read_text(written, column), column)
        elif kind == "number":
            number = Decimal(written) if set(written) & set(".eE") else int(written)
            yield Token(TokenKind.NUMBER, written, number, column)
        elif kind == "name":
            yield Token(TokenKind.NAME, written, None, column)
        elif kind == "symbol":
            yield Token(TokenKind.SYMBOL, written, None, column)
    yield Token(TokenKind.END, "the end", None, len(text) + 1)


def _read_text(written: str, column: int) -> str:
    """Texts have JSON's escapes; single quotes serve as well."""
    if written[0] == "'":
        written = '"' + written[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        content: str = json.loads(written)
    except ValueError:
        raise FilterError(f"the text {written} has an unknown escape", column) from None
    return content


def _unexpected(character: str) -> str:
    if character in "\"'":
        return "a text has no end; close it with the same quote"
    if character == "=":
        return "compare with =="
    return f"{character!r} is not part of a filter; {_EXAMPLE}"
