"""The words of a .proto file, and what a person is told about the one that is wrong.

Comments and blanks are dropped here. A token is its text alone, found for the whole file in one
go; where it stood is looked for again when something has to be said about it.
"""

import re
from enum import Enum, auto
from itertools import islice
from typing import Final, NoReturn

from penstock.schemas.model import InvalidSchema

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


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


def kind_of(token: str) -> Kind:
    """What a token is, seen from how it begins."""
    if token == END:
        return Kind.END
    first = token[0]
    if first in _LETTERS:
        return Kind.WORD
    if first in _DIGITS or (first == "." and len(token) > 1):
        return Kind.NUMBER
    return Kind.STRING if first in _QUOTES else Kind.SYMBOL


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
    raise InvalidSchema(f"line {line}, column {column}: {reason}")


class BadEscape(Exception):
    """An escape that means nothing, and how far into the literal it stands."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def unquoted(literal: str) -> str:
    """What a quoted string says; raises BadEscape."""
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
            raise BadEscape("no such Unicode character", match.start() + 1)
        return chr(number)
    if other not in _NAMED_ESCAPES:
        raise BadEscape(f"unknown escape \\{other}", match.start() + 1)
    return _NAMED_ESCAPES[other]


def _what_is_wrong(text: str, position: int) -> str:
    sign = text[position]
    if sign in "\"'":
        return "the string has no end on its line"
    if text.startswith(_COMMENT, position):
        return "the comment has no end"
    return f"unexpected character {sign!r}"
