"""The tokens of a .proto file, and a cursor over them.

Comments and blanks are dropped. A token is its text only, and one regular expression finds all
tokens of a file; the position of a token is determined only when an error is reported.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from itertools import islice
from typing import Final, NoReturn

from penstock.schemas.model import InvalidSchemaError

END: Final = ""  # follows the last token
DEPTH_MAX: Final = 64  # the compiler allows 31 nested messages; option values may nest deeper
TOKENS_MAX: Final = 200_000  # a file with 300 messages has 10 000
UPCOMING_MAX: Final = 400
_DIGITS_MAX: Final = 40
_INTEGER_MAX: Final = 2**64
_STRING: Final = r"\"(?:[^\"\\\n]++|\\[^\n])*\"|'(?:[^'\\\n]++|\\[^\n])*'"
# Possessive quantifiers (++, *+), and unterminated tokens matched to the end: the time is linear in
# the text. Groups have no possessive quantifiers: Python 3.11.2, which is Debian's, loses the start
# of such a group when it fails half way. The last four alternatives are an unterminated comment, an
# unterminated string, the end of the file, and any other character.
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
    """The type of a token."""

    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


def type_of(token: str) -> TokenType:
    """The type of a token, by its first character."""
    if token == END:
        return TokenType.END
    first = token[0]
    if first in _LETTERS:
        return TokenType.WORD
    if first in _DIGITS or (first == "." and len(token) > 1):
        return TokenType.NUMBER
    return TokenType.STRING if first in _QUOTES else TokenType.SYMBOL


def read_tokens(text: str) -> list[str]:
    """All tokens of a file, including the end."""
    tokens: list[str] = _TOKEN.findall(text, _start(text))
    invalid = {token for token in set(tokens) if not _is_valid(token)}
    if invalid:
        index = next(index for index, token in enumerate(tokens) if token in invalid)
        position = position_of(text, index)
        refuse(text, position, _reason(text, position))
    return tokens


def position_of(text: str, index: int) -> int:
    """The position of a token in the text, by its index."""
    match = next(islice(_TOKEN.finditer(text, _start(text)), index, None))
    return match.start(1)


def _start(text: str) -> int:
    return len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0


def _is_valid(token: str) -> bool:
    if len(token) == 1:
        return token in _LETTERS or token in _DIGITS or token in _SYMBOLS
    if token[:1] in _QUOTES:
        return _CLOSED.fullmatch(token) is not None
    return not token.startswith(_COMMENT)


def refuse(text: str, position: int, reason: str) -> NoReturn:
    """Raise InvalidSchemaError with line and column."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    raise InvalidSchemaError(f"line {line}, column {column}: {reason}")


class BadEscapeError(Exception):
    """An invalid escape sequence, and its offset in the literal."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def unquoted(literal: str) -> str:
    """The value of a quoted string; raises BadEscapeError."""
    inner = literal[1:-1]
    return _ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner


def _unescaped(match: re.Match[str]) -> str:
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


def _reason(text: str, position: int) -> str:
    character = text[position]
    if character in "\"'":
        return "the string is not closed on its line"
    if text.startswith(_COMMENT, position):
        return "the comment is not closed"
    return f"unexpected character {character!r}"


class Cursor:
    """A position in the tokens of a text. Every error has line and column."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = read_tokens(text)
        if len(self._tokens) > TOKENS_MAX:
            raise InvalidSchemaError(f"the schema has more than {TOKENS_MAX} tokens")
        self._index = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> str:
        """The next token, or one after it."""
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def peek_type(self, ahead: int = 0) -> TokenType:
        """The type of the next token, or of one after it."""
        return type_of(self.peek(ahead))

    def next(self) -> str:
        """Take the next token; the end is never passed."""
        token = self._tokens[self._index]
        if token != END:
            self._index += 1
        return token

    def take(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self._tokens[self._index] == text:
            self._index += 1
            return True
        return False

    def upcoming(self, last: str) -> tuple[str, ...]:
        """The next tokens up to and including `last`; empty if that is too far away."""
        try:
            end = self._tokens.index(last, self._index, self._index + UPCOMING_MAX) + 1
        except ValueError:
            return ()
        return tuple(self._tokens[self._index : end])

    def skip(self, count: int) -> None:
        """Skip tokens that `upcoming` returned."""
        self._index += count

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if not self.take(text):
            self.refuse(f"expected {text!r}")

    def refuse(self, reason: str, back: int = 0) -> NoReturn:
        """Fail at the next token, or at one before it."""
        index = self._index - back
        token = self._tokens[index]
        actual = f"found {token[:40]}" if token != END else "found the end of the text"
        refuse(self._text, position_of(self._text, index), f"{reason}, {actual}")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting; refuses more than DEPTH_MAX."""
        if self._depth == DEPTH_MAX:
            self.refuse(f"nested deeper than {DEPTH_MAX} levels")
        self._depth += 1
        yield
        self._depth -= 1

    def word(self) -> str:
        """A simple name."""
        token = self._tokens[self._index]
        if type_of(token) is not TokenType.WORD:
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
        """A name with dots inside, and optionally a leading dot."""
        return f".{self.full_name()}" if self.take(".") else self.full_name()

    def string(self) -> str:
        """One or more adjacent quoted strings, as one."""
        if self.peek_type() is not TokenType.STRING:
            self.refuse("expected a string in quotes")
        parts: list[str] = []
        while self.peek_type() is TokenType.STRING:
            try:
                parts.append(unquoted(self.peek()))
            except BadEscapeError as error:
                position = position_of(self._text, self._index) + error.offset
                refuse(self._text, position, str(error))
            self._index += 1
        return "".join(parts)

    def integer(self, *, signed: bool = False) -> int:
        """A whole number: decimal, octal or hexadecimal."""
        negative = signed and self.take("-")
        token = self.peek()
        number = whole_number(token) if len(token) <= _DIGITS_MAX else None
        if type_of(token) is not TokenType.NUMBER or number is None or number > _INTEGER_MAX:
            self.refuse("expected a whole number")
        self._index += 1
        return -number if negative else number


def whole_number(text: str) -> int | None:
    """The value of an unsigned integer literal; None if it is not one."""
    try:
        if text[:2].lower() == "0x":
            return int(text, 16)
        return int(text, 8) if text.startswith("0") else int(text)
    except ValueError:
        return None
