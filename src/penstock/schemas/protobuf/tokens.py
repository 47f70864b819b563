"""The words of a .proto file, and what a person is told about the one that is wrong.

Comments and blanks are dropped here. A position is an index into the text; lines and columns are
counted from it only when something has to be said.
"""

import re
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn

from penstock.schemas.model import InvalidSchema

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)"
    r"|(?P<string>\"(?:[^\"\\\n]|\\[^\n])*\"|'(?:[^'\\\n]|\\[^\n])*')"
    r"|(?P<symbol>[{}()\[\]<>=;,:./+-])",
    re.DOTALL,
)
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


_KINDS: Final = {
    "word": Kind.WORD,
    "number": Kind.NUMBER,
    "string": Kind.STRING,
    "symbol": Kind.SYMBOL,
}


def read_tokens(text: str) -> list[Token]:
    """All tokens of a file, the end included."""
    tokens: list[Token] = []
    position = 1 if text.startswith("\ufeff") else 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            refuse(text, position, _what_is_wrong(text, position))
        kind = match.lastgroup
        assert kind is not None
        if kind != "blank":
            tokens.append(Token(_KINDS[kind], match.group(), position))
        position = match.end()
    tokens.append(Token(Kind.END, "", position))
    return tokens


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
