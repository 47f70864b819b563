"""Reads options: names in steps, values from a plain number to a message in braces."""

from penstock.schemas.protobuf.cursor import Cursor
from penstock.schemas.protobuf.tokens import Kind
from penstock.schemas.protobuf.tree import (
    Aggregate,
    ListValue,
    Number,
    Option,
    Part,
    Text,
    Value,
    Word,
)


def read_option_statement(cursor: Cursor) -> Option:
    """What follows the keyword `option`."""
    option = _read_option(cursor)
    cursor.expect(";")
    return option


def read_bracketed(cursor: Cursor) -> tuple[Option, ...]:
    """`[a = 1, b = 2]` if it is there."""
    if not cursor.take("["):
        return ()
    options = [_read_option(cursor)]
    while cursor.take(","):
        options.append(_read_option(cursor))
    cursor.expect("]")
    return tuple(options)


def _read_option(cursor: Cursor) -> Option:
    parts = [_read_part(cursor)]
    while cursor.take("."):
        parts.append(_read_part(cursor))
    cursor.expect("=")
    return Option(tuple(parts), _read_value(cursor))


def _read_part(cursor: Cursor) -> Part:
    if cursor.take("("):
        name = cursor.type_name()
        cursor.expect(")")
        return Part(name, is_extension=True)
    return Part(cursor.word(), is_extension=False)


def _read_value(cursor: Cursor) -> Value:
    with cursor.deeper():
        if cursor.take("{"):
            return _read_aggregate(cursor, "}")
        if cursor.take("<"):
            return _read_aggregate(cursor, ">")
        if cursor.take("["):
            return _read_list(cursor)
        return _read_scalar(cursor)


def _read_scalar(cursor: Cursor) -> Value:
    if cursor.peek().kind is Kind.STRING:
        return Text(cursor.string())
    sign = "-" if cursor.take("-") else ""
    token = cursor.next()
    if token.kind is Kind.NUMBER:
        return Number(sign + token.text)
    if token.kind is Kind.WORD:
        return Word(sign + token.text)
    return cursor.refuse(token, "expected a value")


def _read_list(cursor: Cursor) -> ListValue:
    items: list[Value] = []
    if not cursor.take("]"):
        items.append(_read_value(cursor))
        while cursor.take(","):
            items.append(_read_value(cursor))
        cursor.expect("]")
    return ListValue(tuple(items))


def _read_aggregate(cursor: Cursor, end: str) -> Aggregate:
    entries: dict[str, Value] = {}
    while not cursor.take(end):
        key = _read_key(cursor)
        if not cursor.take(":") and cursor.peek().text not in ("{", "<"):
            cursor.refuse(cursor.peek(), "expected ':'")
        value = _read_value(cursor)
        entries[key] = joined(entries[key], value) if key in entries else value
        if not cursor.take(","):
            cursor.take(";")
    return Aggregate(tuple(entries.items()))


def _read_key(cursor: Cursor) -> str:
    if not cursor.take("["):
        return cursor.word()
    name = cursor.type_name()
    if cursor.take("/"):  # the type inside an Any
        name = f"{name}/{cursor.full_name()}"
    cursor.expect("]")
    return f"[{name}]"


def joined(first: Value, second: Value) -> ListValue:
    """A key that stands twice holds a list."""
    head = first.items if isinstance(first, ListValue) else (first,)
    tail = second.items if isinstance(second, ListValue) else (second,)
    return ListValue((*head, *tail))
