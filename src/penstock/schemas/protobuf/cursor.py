"""A place in a row of tokens, with the few moves that reading needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from penstock.schemas.model import InvalidSchema
from penstock.schemas.protobuf.tokens import (
    END,
    BadEscape,
    Kind,
    kind_of,
    position_of,
    read_tokens,
    refuse,
    unquoted,
)

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
            raise InvalidSchema(f"more than {TOKENS_MAX} words and signs")
        self._index = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> str:
        """The token that comes, or one after it."""
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def peek_kind(self, ahead: int = 0) -> Kind:
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
        if kind_of(token) is not Kind.WORD:
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
        if self.peek_kind() is not Kind.STRING:
            self.refuse("expected a text in quotes")
        parts: list[str] = []
        while self.peek_kind() is Kind.STRING:
            try:
                parts.append(unquoted(self.peek()))
            except BadEscape as wrong:
                position = position_of(self._text, self._index) + wrong.offset
                refuse(self._text, position, str(wrong))
            self._index += 1
        return "".join(parts)

    def integer(self, *, signed: bool = False) -> int:
        """A whole number: decimal, octal or hexadecimal."""
        negative = signed and self.take("-")
        token = self.peek()
        number = whole_number(token) if len(token) <= _DIGITS_MAX else None
        if kind_of(token) is not Kind.NUMBER or number is None or number > _INTEGER_MAX:
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
