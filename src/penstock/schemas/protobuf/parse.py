"""Parses .proto text (proto2 and proto3) into a tree; errors have line and column.

Recursive descent over `tokens`, to a bounded depth. Whether names exist and numbers are in range
is not checked here: `compiler` does that.
"""

from typing import Final

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf.parse_bodies import (
    read_enum,
    read_extend,
    read_message,
    read_service,
)
from penstock.schemas.protobuf.parse_options import read_option_statement
from penstock.schemas.protobuf.tokens import END, Cursor, TokenType
from penstock.schemas.protobuf.tree import Enum, Extend, Message, Option, ProtoFile, Service

CHARACTERS_MAX: Final = 2 << 20
_SYNTAXES: Final = ("proto2", "proto3")


def read_proto(text: str) -> ProtoFile:
    """The tree of a file."""
    if len(text) > CHARACTERS_MAX:
        raise InvalidSchemaError(
            f"the text has {len(text)} characters; at most {CHARACTERS_MAX} are allowed"
        )
    return _File(Cursor(text)).read()


class _File:
    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._syntax: str | None = None
        self._package: str | None = None
        self._imports: dict[str, list[str]] = {"": [], "public": [], "weak": []}
        self._options: list[Option] = []
        self._messages: list[Message] = []
        self._enums: list[Enum] = []
        self._extends: list[Extend] = []
        self._services: list[Service] = []

    def read(self) -> ProtoFile:
        cursor = self._cursor
        while cursor.take(";"):
            continue
        if cursor.peek() in ("syntax", "edition") and cursor.peek(1) == "=":
            self._read_syntax()
        while cursor.peek() != END:
            self._read_statement()
        return ProtoFile(
            syntax=self._syntax,
            package=self._package,
            imports=tuple(self._imports[""]),
            public_imports=tuple(self._imports["public"]),
            weak_imports=tuple(self._imports["weak"]),
            options=tuple(self._options),
            messages=tuple(self._messages),
            enums=tuple(self._enums),
            extends=tuple(self._extends),
            services=tuple(self._services),
        )

    def _read_syntax(self) -> None:
        cursor = self._cursor
        if cursor.peek() == "edition":
            cursor.refuse("editions are not supported; use proto2 or proto3")
        cursor.next()
        cursor.expect("=")
        self._syntax = cursor.string()
        if self._syntax not in _SYNTAXES:
            cursor.refuse('unknown syntax; use "proto2" or "proto3"', back=1)
        cursor.expect(";")

    def _read_statement(self) -> None:
        cursor = self._cursor
        if cursor.take(";"):
            return
        keyword = cursor.next()
        match keyword:
            case "message":
                self._messages.append(read_message(cursor))
            case "enum":
                self._enums.append(read_enum(cursor))
            case "extend":
                self._extends.append(read_extend(cursor))
            case "service":
                self._services.append(read_service(cursor))
            case "option":
                self._options.append(read_option_statement(cursor))
            case "import":
                self._read_import()
            case "package":
                self._read_package()
            case "syntax" | "edition":
                cursor.refuse(f"{keyword} must come first in the file", back=1)
            case _:
                cursor.refuse("expected message, enum, service, extend, import or option", back=1)

    def _read_package(self) -> None:
        if self._package is not None:
            self._cursor.refuse("the package is declared twice", back=1)
        self._package = self._cursor.full_name()
        self._cursor.expect(";")

    def _read_import(self) -> None:
        cursor = self._cursor
        kind = ""
        if cursor.peek_type() is TokenType.WORD:
            kind = cursor.next()
            if kind not in ("public", "weak"):
                cursor.refuse("expected the name of a file in quotes", back=1)
        self._imports[kind].append(cursor.string())
        cursor.expect(";")
