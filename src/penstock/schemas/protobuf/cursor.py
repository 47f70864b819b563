"""A place in a row of tokens, with the few moves that reading needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from penstock.schemas.protobuf.tokens import Kind, Token, read_tokens, refuse, unquoted

DEPTH_MAX: Final = 64  # the compiler allows 31 messages in one another; option values may go deeper
_INTEGER_MAX: Final = 2**64


class Cursor:
    """The next token and how to take it. Every failure names line and column."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = read_tokens(text)
        self._index = 0
        self._depth = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token that comes, or one after it."""
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)]

    def next(self) -> Token:
        """Take the token that comes; the end stays where it is."""
        token = self._tokens[self._index]
        if token.kind is not Kind.END:
            self._index += 1
        return token

    def take(self, text: str) -> bool:
        """Take a sign or keyword if it comes next."""
        token = self._tokens[self._index]
        if token.text == text and token.kind is not Kind.STRING:
            self._index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take a sign or keyword, which must come next."""
        if not self.take(text):
            self.refuse(self.peek(), f"expected {text!r}")

    def refuse(self, token: Token, reason: str) -> NoReturn:
        """Fail at a token."""
        found = {
            Kind.END: "found the end of the text",
        }.get(token.kind, f"found {token.text[:40]}")
        refuse(self._text, token.position, f"{reason}, {found}")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting, of which there are so many and no more."""
        if self._depth == DEPTH_MAX:
            self.refuse(self.peek(), f"nested deeper than {DEPTH_MAX} levels")
        self._depth += 1
        yield
        self._depth -= 1

    def word(self) -> str:
        """A simple name."""
        token = self.next()
        if token.kind is not Kind.WORD:
            self.refuse(token, "expected a name")
        return token.text

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
        if self.peek().kind is not Kind.STRING:
            self.refuse(self.peek(), "expected a text in quotes")
        parts: list[str] = []
        while self.peek().kind is Kind.STRING:
            parts.append(unquoted(self._text, self.next()))
        return "".join(parts)

    def integer(self, *, signed: bool = False) -> int:
        """A whole number: decimal, octal or hexadecimal."""
        negative = signed and self.take("-")
        token = self.next()
        if token.kind is not Kind.NUMBER or len(token.text) > 40:
            self.refuse(token, "expected a whole number")
        number = whole_number(token.text)
        if number is None or number > _INTEGER_MAX:
            self.refuse(token, "expected a whole number")
        return -number if negative else number


def whole_number(text: str) -> int | None:
    """The meaning of an unsigned number without a fraction; None if it has one."""
    try:
        if text[:2].lower() == "0x":
            return int(text, 16)
        return int(text, 8) if text.startswith("0") else int(text)
    except ValueError:
        return None
