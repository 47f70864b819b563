"""The words of a .proto file, and what a person is told about the one that is wrong.

Comments and blanks are dropped here. A position is an index into the text; lines and columns are
counted from it only when something has to be said.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn

from penstock.schemas.model import InvalidSchema

# Quantifiers that never step back (++, *+): a text cannot make them slow.
_TOKEN: Final = re.compile(
    r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/)*+"
    r"(?:([A-Za-z_][A-Za-z0-9_]*+)"
    r"|(0[xX][0-9a-fA-F]++|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fF]?)"
    r"|(\"(?:[^\"\\\n]|\\[^\n])*+\"|'(?:[^'\\\n]|\\[^\n])*+')"
    r"|([{}()\[\]<>=;,:.+-]|/(?!\*))"
    r"|(\Z))",
    re.DOTALL,
)
_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
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


class Token(NamedTuple):
    """A word, number, quoted string or sign; the end of the text is one too."""

    kind: Kind
    text: str
    position: int


# By the number of the group in `_TOKEN`.
_KINDS: Final = (Kind.END, Kind.WORD, Kind.NUMBER, Kind.STRING, Kind.SYMBOL, Kind.END)


def read_tokens(text: str) -> list[Token]:
    """All tokens of a file, the end included."""
    tokens: list[Token] = []
    position = 1 if text.startswith("\ufeff") else 0
    match_next = _TOKEN.match
    while True:
        match = match_next(text, position)
        if match is None:
            wrong = _BLANK.match(text, position)
            assert wrong is not None
            refuse(text, wrong.end(), _what_is_wrong(text, wrong.end()))
        group = match.lastindex or 0
        tokens.append(Token(_KINDS[group], match[group], match.start(group)))
        if tokens[-1].kind is Kind.END:
            return tokens
        position = match.end()


def refuse(text: str, position: int, reason: str) -> NoReturn:
    """Say what is wrong, and where a person finds it."""
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    raise InvalidSchema(f"line {line}, column {column}: {reason}")


def unquoted(text: str, token: Token) -> str:
    """What a quoted string says."""
    inner = token.text[1:-1]
    if "\\" not in inner:
        return inner

    def meaning(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, other = match.groups()
        if octal is not None or hexadecimal is not None:
            number = int(octal, 8) if octal is not None else int(hexadecimal, 16)
            return bytes([number & 0xFF]).decode("ascii", "surrogateescape")
        if short is not None or long is not None:
            number = int(short or long, 16)
            if number > _CODE_POINT_MAX or 0xD800 <= number <= 0xDFFF:
                refuse(text, token.position + 1 + match.start(), "no such Unicode character")
            return chr(number)
        if other not in _NAMED_ESCAPES:
            refuse(text, token.position + 1 + match.start(), f"unknown escape \\{other}")
        return _NAMED_ESCAPES[other]

    return _ESCAPE.sub(meaning, inner)


def _what_is_wrong(text: str, position: int) -> str:
    sign = text[position]
    if sign in "\"'":
        return "the string has no end on its line"
    if text.startswith("/*", position):
        return "the comment has no end"
    return f"unexpected character {sign!r}"
