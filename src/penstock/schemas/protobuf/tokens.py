"""The words of a .proto file, and what a person is told about the one that is wrong.

Comments and blanks are dropped here. A token is its text alone, found for the whole file in one
go; where it stood is looked for again when something has to be said about it.

A place in a row of tokens, with the few moves that reading needs.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from itertools import islice
from typing import Final, NoReturn

from penstock.schemas.model import InvalidSchemaError

END: Final = ""  # comes after the last token, for ever
_STRING: Final = r"\"(?:[^\"\\\n]++|\\[^\n])*\"|'(?:[^'\\\n]++|\\[^\n])*'"
# Quantifiers that never step back (++, *+), and what has no end taken whole: no text makes this
# slower than its length. Groups have none of them: Python 3.11.2, which is Debian's, forgets where
# such a group began when it fails half way. The last four are a comment and a string without end,
# the end of the file, and any sign that has no business in it.
_TOKEN: Final = re.compile(
    r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/)*"
    r"([A-Za-z_][A-Za-z0-9_]*+"
    r"|0[xX][0-9a-fA-F]++|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fF]?"
    rf"|{_STRING}"
    r"|[{}()\[\]<>=;,:.+-]|/(?!\*)"
    r"|/\*.*+|[\"'][^\n]*+|\Z|.)",
    re.DOTALL,
)
_CLOSED: Final = re.compile(_STRING)
_BYTE_ORDER_MARK: Final = "\ufeff"
_DIGITS: Final = frozenset("0123456789")
_COMMENT: Final = "/*"
_QUOTES: Final = frozenset("\"'")
_SYMBOLS: Final = frozenset("{}()[]<>=;,:./+-")
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))"
)
_NAMED_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip
_CODE_POINT_MAX: Final = 0x10FFFF


class TokenType(Enum):
    """What a token is."""

    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


def kind_of(token: str) -> TokenType:
    """What a token is, seen from how it begins."""
    if token == END:
        return TokenType.END
    first = token[0]
    if first in _LETTERS:
        return TokenType.WORD
    if first in _DIGITS or (first == "." and len(token) > 1):
        return TokenType.NUMBER
    return TokenType.STRING if first in _QUOTES else TokenType.SYMBOL


def read_tokens(text: str) -> list[str]:
    """All tokens of a file, the end included."""
    tokens: list[str] = _TOKEN.findall(text, _start(text))
    strays = {one for one in set(tokens) if not _is_fine(one)}
    if strays:
        index = next(index for index, one in enumerate(tokens) if one in strays)
        position = position_of(text, index)
        refuse(text, position, _what_is_wrong(text, position))
    return tokens


def position_of(text: str, index: int) -> int:
    """Where in the text the token of that number stands."""
    match = next(islice(_TOKEN.finditer(text, _start(text)), index, None))
    return match.start(1)


def _start(text: str) -> int:
    return len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0


def _is_fine(token: str) -> bool:
    if len(token) == 1:
        return token in _LETTERS or token in _DIGITS or token in _SYMBOLS
    if token[:1] in _QUOTES:
        return _CLOSED.fullmatch(token) is not None
    return not token.startswith(_COMMENT)


def refuse(text: str, position: int, reason: str) -> NoReturn:
    """Say what is wrong, and where a person finds it."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    raise InvalidSchemaError(f"line {line}, column {column}: {reason}")


class BadEscapeError(Exception):
    """An escape that means nothing, and how far into the literal it stands."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def unquoted(literal: str) -> str:
    """What a quoted string says; raises BadEscapeError."""
    inner = literal[1:-1]
    return _ESCAPE.sub(_meaning, inner) if "\\" in inner else inner


def _meaning(match: re.Match[str]) -> str:
    octal, hexadecimal, short, long, other = match.groups()
    if octal is not None or hexadecimal is not None:
        number = int(octal, 8) if octal is not None else int(hexadecimal, 16)
        return bytes([number & 0xFF]).decode("ascii", "surrogateescape")
    if short is not None or long is not None:
        number = int(short or long, 16)
        if number > _CODE_POINT_MAX or 0xD800 <= number <= 0xDFFF:
            raise BadEscapeError("no such Unicode character", match.start() + 1)
        return chr(number)
    if other not in _NAMED_ESCAPES:
        raise BadEscapeError(f"unknown escape \\{other}", match.start() + 1)
    return _NAMED_ESCAPES[other]


def _what_is_wrong(text: str, position: int) -> str:
    sign = text[position]
    if sign in "\"'":
        return "the string has no end on its line"
    if text.startswith(_COMMENT, position):
        return "the comment has no end"
    return f"unexpected character {sign!r}"


DEPTH_MAX: Final = 64  # the compiler allows 31 messages in one another; option values may go deeper
TOKENS_MAX: Final = 200_000  # a message of 300 records takes 10 000
UPCOMING_MAX: Final = 400
_DIGITS_MAX: Final = 40
_INTEGER_MAX: Final = 2**64


class Cursor:
    """The next token and how to take it. Every failure names line and column."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = read_tokens(text)
        if len(self._tokens) > TOKENS_MAX:
            raise InvalidSchemaError(f"more than {TOKENS_MAX} words and signs")
        self._index = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> str:
        """The token that comes, or one after it."""
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def peek_kind(self, ahead: int = 0) -> TokenType:
        """What kind of token comes."""
        return kind_of(self.peek(ahead))

    def next(self) -> str:
        """Take the token that comes; the end stays where it is."""
        token = self._tokens[self._index]
        if token != END:
            self._index += 1
        return token

    def take(self, text: str) -> bool:
        """Take a sign or keyword if it comes next."""
        if self._tokens[self._index] == text:
            self._index += 1
            return True
        return False

    def upcoming(self, last: str) -> tuple[str, ...]:
        """What comes up to a sign, the sign included; nothing if that is too far away."""
        try:
            end = self._tokens.index(last, self._index, self._index + UPCOMING_MAX) + 1
        except ValueError:
            return ()
        return tuple(self._tokens[self._index : end])

    def skip(self, tokens: int) -> None:
        """Pass over what was looked at."""
        self._index += tokens

    def expect(self, text: str) -> None:
        """Take a sign or keyword, which must come next."""
        if not self.take(text):
            self.refuse(f"expected {text!r}")

    def refuse(self, reason: str, back: int = 0) -> NoReturn:
        """Fail at the token that comes, or so many before it."""
        index = self._index - back
        token = self._tokens[index]
        found = f"found {token[:40]}" if token != END else "found the end of the text"
        refuse(self._text, position_of(self._text, index), f"{reason}, {found}")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting, of which there are so many and no more."""
        if self._depth == DEPTH_MAX:
            self.refuse(f"nested deeper than {DEPTH_MAX} levels")
        self._depth += 1
        yield
        self._depth -= 1

    def word(self) -> str:
        """A simple name."""
        token = self._tokens[self._index]
        if kind_of(token) is not TokenType.WORD:
            self.refuse("expected a name")
        self._index += 1
        return token

    def full_name(self) -> str:
        """A name with dots inside."""
        words = [self.word()]
        while self.take("."):
            words.append(self.word())
        return ".".join(words)

    def type_name(self) -> str:
        """A name with dots inside, and perhaps one in front."""
        return f".{self.full_name()}" if self.take(".") else self.full_name()

    def string(self) -> str:
        """One or more quoted strings in a row, as one."""
        if self.peek_kind() is not TokenType.STRING:
            self.refuse("expected a text in quotes")
        parts: list[str] = []
        while self.peek_kind() is TokenType.STRING:
            try:
                parts.append(unquoted(self.peek()))
            except BadEscapeError as wrong:
                position = position_of(self._text, self._index) + wrong.offset
                refuse(self._text, position, str(wrong))
            self._index += 1
        return "".join(parts)

    def integer(self, *, signed: bool = False) -> int:
        """A whole number: decimal, octal or hexadecimal."""
        negative = signed and self.take("-")
        token = self.peek()
        number = whole_number(token) if len(token) <= _DIGITS_MAX else None
        if kind_of(token) is not TokenType.NUMBER or number is None or number > _INTEGER_MAX:
            self.refuse("expected a whole number")
        self._index += 1
        return -number if negative else number


def whole_number(text: str) -> int | None:
    """The meaning of an unsigned number without a fraction; None if it has one."""
    try:
        if text[:2].lower() == "0x":
            return int(text, 16)
        return int(text, 8) if text.startswith("0") else int(text)
    except ValueError:
        return None
