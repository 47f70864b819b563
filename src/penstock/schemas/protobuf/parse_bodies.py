"""Parses what is in braces: messages, groups, oneofs, enums, extend blocks, services.

Versions of a schema differ in few places, so fields and small messages are cached by their tokens.
One with scalars only has the same meaning everywhere and is shared; of any other a copy is
returned, because comparisons identify a part by its id, and names depend on their scope.
"""

from functools import lru_cache
from typing import Final

from penstock.schemas.model import InvalidSchemaError
from penstock.schemas.protobuf.parse_options import read_bracketed, read_option_statement
from penstock.schemas.protobuf.tokens import Cursor, TokenType
from penstock.schemas.protobuf.tree import (
    ENUM_NUMBER_MAX,
    FIELD_NUMBER_MAX,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    MapType,
    Message,
    OneOf,
    Option,
    Range,
    Reserved,
    Rpc,
    Service,
)

_CACHED_MAX: Final = 8192
_LABELS: Final = frozenset(("optional", "required", "repeated"))
_STATEMENTS: Final = frozenset(
    (";", "message", "enum", "oneof", "extend", "option", "reserved", "extensions")
)


def read_message(cursor: Cursor) -> Message:
    """What follows the keyword `message`."""
    with cursor.deeper():
        tokens = cursor.upcoming("}")
        cached = _read_flat(tokens) if tokens.count("{") == 1 else None
        if cached is None:
            return _MessageBody(cursor, cursor.word()).read()
        cursor.skip(len(tokens))
        if cached.is_scalar:
            return cached
        return cached._replace(fields=tuple([Field(*field) for field in cached.fields]))


@lru_cache(maxsize=_CACHED_MAX)
def _read_flat(tokens: tuple[str, ...]) -> Message | None:
    """A message without inner braces; None if it is invalid."""
    cursor = Cursor(" ".join(tokens))
    try:
        return _MessageBody(cursor, cursor.word()).read()
    except InvalidSchemaError:
        return None  # parsing it in its place gives the error with line and column


class _MessageBody:
    def __init__(self, cursor: Cursor, name: str) -> None:
        self._cursor = cursor
        self._name = name
        self._members = _Members(cursor)
        self._oneofs: list[OneOf] = []
        self._nested: list[Message] = []
        self._enums: list[Enum] = []
        self._reserved: list[Reserved] = []
        self._extensions: list[Extensions] = []
        self._extends: list[Extend] = []
        self._options: list[Option] = []

    def read(self) -> Message:
        cursor = self._cursor
        cursor.expect("{")
        while not cursor.take("}"):
            self._read_statement()
        return Message(
            name=self._name,
            fields=tuple(self._members.fields),
            oneofs=tuple(self._oneofs),
            groups=tuple(self._members.groups),
            nested=tuple(self._nested),
            enums=tuple(self._enums),
            reserved=tuple(self._reserved),
            extensions=tuple(self._extensions),
            extends=tuple(self._extends),
            options=tuple(self._options),
        )

    def _read_statement(self) -> None:
        keyword = self._cursor.peek()
        if keyword not in _STATEMENTS:
            self._members.read()
            return
        self._cursor.next()
        if keyword != ";":
            self._read_keyword(keyword)

    def _read_keyword(self, keyword: str) -> None:
        cursor = self._cursor
        match keyword:
            case "message":
                self._nested.append(read_message(cursor))
            case "enum":
                self._enums.append(read_enum(cursor))
            case "oneof":
                self._oneofs.append(_read_oneof(cursor))
            case "extend":
                self._extends.append(read_extend(cursor))
            case "option":
                self._options.append(read_option_statement(cursor))
            case "reserved":
                self._reserved.append(_read_reserved(cursor, FIELD_NUMBER_MAX))
            case _:
                self._extensions.append(_read_extensions(cursor))


class _Members:
    """Fields and groups of a message, a oneof or an extend block."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self.fields: list[Field] = []
        self.groups: list[Group] = []

    def read(self) -> None:
        cursor = self._cursor
        tokens = cursor.upcoming(";")
        cached = _read_cached_field(tokens) if "{" not in tokens else None
        if cached is not None:
            cursor.skip(len(tokens))
            self.fields.append(cached if cached.is_scalar else Field(*cached))
            return
        label = cursor.next() if cursor.peek() in _LABELS else None
        if cursor.peek() == "group" and cursor.peek_type(1) is TokenType.WORD:
            cursor.next()
            self.groups.append(_read_group(cursor, label))
        else:
            self.fields.append(_read_field(cursor, label))


@lru_cache(maxsize=_CACHED_MAX)
def _read_cached_field(tokens: tuple[str, ...]) -> Field | None:
    """A field without braces in its options; None if it is invalid."""
    cursor = Cursor(" ".join(tokens))
    try:
        return _read_field(cursor, cursor.next() if cursor.peek() in _LABELS else None)
    except InvalidSchemaError:
        return None


def _read_field(cursor: Cursor, label: str | None) -> Field:
    kind = _read_field_type(cursor)
    name = cursor.word()
    cursor.expect("=")
    number = cursor.integer()
    options = read_bracketed(cursor)
    cursor.expect(";")
    return Field(label, kind, name, number, _special_last(options))


def _read_group(cursor: Cursor, label: str | None) -> Group:
    name = cursor.word()
    cursor.expect("=")
    number = cursor.integer()
    options = read_bracketed(cursor)
    with cursor.deeper():
        return Group(label, number, options, _MessageBody(cursor, name).read())


def _special_last(options: tuple[Option, ...]) -> tuple[Option, ...]:
    """With `default`, then `json_name`, after the other options: they belong to the field."""
    if not options:
        return options
    defaults = tuple(option for option in options if option.is_builtin("default"))
    json_names = tuple(option for option in options if option.is_builtin("json_name"))
    if not defaults and not json_names:
        return options
    special = (*defaults, *json_names)
    return (*(option for option in options if option not in special), *special)


def _read_field_type(cursor: Cursor) -> str | MapType:
    if cursor.peek() == "map" and cursor.peek(1) == "<":
        cursor.next()
        cursor.next()
        key = cursor.type_name()
        cursor.expect(",")
        value = cursor.type_name()
        cursor.expect(">")
        return MapType(key, value)
    return cursor.type_name()


def _read_oneof(cursor: Cursor) -> OneOf:
    name = cursor.word()
    members = _Members(cursor)
    options: list[Option] = []
    cursor.expect("{")
    while not cursor.take("}"):
        if cursor.take("option"):
            options.append(read_option_statement(cursor))
        elif not cursor.take(";"):
            members.read()
    return OneOf(name, tuple(members.fields), tuple(members.groups), tuple(options))


def read_extend(cursor: Cursor) -> Extend:
    """What follows the keyword `extend`."""
    name = cursor.type_name()
    members = _Members(cursor)
    cursor.expect("{")
    while not cursor.take("}"):
        if not cursor.take(";"):
            members.read()
    return Extend(name, tuple(members.fields), tuple(members.groups))


def read_enum(cursor: Cursor) -> Enum:
    """What follows the keyword `enum`."""
    name = cursor.word()
    values: list[EnumValue] = []
    reserved: list[Reserved] = []
    options: list[Option] = []
    cursor.expect("{")
    while not cursor.take("}"):
        if cursor.take(";"):
            continue
        is_value = cursor.peek(1) == "="
        if not is_value and cursor.take("option"):
            options.append(read_option_statement(cursor))
        elif not is_value and cursor.take("reserved"):
            reserved.append(_read_reserved(cursor, ENUM_NUMBER_MAX))
        else:
            values.append(_read_enum_value(cursor))
    return Enum(name, tuple(values), tuple(reserved), tuple(options))


def _read_enum_value(cursor: Cursor) -> EnumValue:
    name = cursor.word()
    cursor.expect("=")
    number = cursor.integer(signed=True)
    options = read_bracketed(cursor)
    cursor.expect(";")
    return EnumValue(name, number, options)


def _read_reserved(cursor: Cursor, number_max: int) -> Reserved:
    values: list[Range | str] = []
    while True:
        if cursor.peek_type() is TokenType.STRING:
            values.append(cursor.string())
        else:
            values.append(_read_range(cursor, number_max))
        if not cursor.take(","):
            break
    cursor.expect(";")
    return Reserved(tuple(values))


def _read_extensions(cursor: Cursor) -> Extensions:
    ranges = [_read_range(cursor, FIELD_NUMBER_MAX)]
    while cursor.take(","):
        ranges.append(_read_range(cursor, FIELD_NUMBER_MAX))
    options = read_bracketed(cursor)
    cursor.expect(";")
    return Extensions(tuple(ranges), options)


def _read_range(cursor: Cursor, number_max: int) -> Range:
    start = cursor.integer(signed=True)
    if not cursor.take("to"):
        return Range(start, start, is_single=True)
    last = number_max if cursor.take("max") else cursor.integer(signed=True)
    return Range(start, last, is_single=False)


def read_service(cursor: Cursor) -> Service:
    """What follows the keyword `service`."""
    name = cursor.word()
    rpcs: list[Rpc] = []
    options: list[Option] = []
    cursor.expect("{")
    while not cursor.take("}"):
        if cursor.take("option"):
            options.append(read_option_statement(cursor))
        elif cursor.take("rpc"):
            rpcs.append(_read_rpc(cursor))
        elif not cursor.take(";"):
            cursor.refuse("expected rpc or option")
    return Service(name, tuple(rpcs), tuple(options))


def _read_rpc(cursor: Cursor) -> Rpc:
    name = cursor.word()
    request, request_streams = _read_rpc_type(cursor)
    cursor.expect("returns")
    response, response_streams = _read_rpc_type(cursor)
    options: list[Option] = []
    if cursor.take("{"):
        while not cursor.take("}"):
            if not cursor.take(";"):
                cursor.expect("option")
                options.append(read_option_statement(cursor))
        cursor.take(";")
    else:
        cursor.expect(";")
    return Rpc(name, request, response, request_streams, response_streams, tuple(options))


def _read_rpc_type(cursor: Cursor) -> tuple[str, bool]:
    cursor.expect("(")
    streams = cursor.take("stream")
    name = cursor.type_name()
    cursor.expect(")")
    return name, streams
