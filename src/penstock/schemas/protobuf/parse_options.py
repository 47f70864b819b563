"""Parses options: names of several parts, and values from a number to a message in braces."""

from itertools import chain

from penstock.schemas.protobuf.tokens import Cursor, TokenType
from penstock.schemas.protobuf.tree import (
    ListValue,
    MessageValue,
    NamePart,
    NumberValue,
    Option,
    OptionValue,
    StringValue,
    WordValue,
)


def read_option_statement(cursor: Cursor) -> Option:
    """What follows the keyword `option`."""
    option = _read_option(cursor)
    cursor.expect(";")
    return option


def read_bracketed(cursor: Cursor) -> tuple[Option, ...]:
    """`[a = 1, b = 2]`, if it is next."""
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


def _read_part(cursor: Cursor) -> NamePart:
    if cursor.take("("):
        name = cursor.type_name()
        cursor.expect(")")
        return NamePart(name, is_extension=True)
    return NamePart(cursor.word(), is_extension=False)


def _read_value(cursor: Cursor) -> OptionValue:
    with cursor.deeper():
        if cursor.take("{"):
            return _read_aggregate(cursor, "}")
        if cursor.take("<"):
            return _read_aggregate(cursor, ">")
        if cursor.take("["):
            return _read_list(cursor)
        return _read_scalar(cursor)


def _read_scalar(cursor: Cursor) -> OptionValue:
    if cursor.peek_type() is TokenType.STRING:
        return StringValue(cursor.string())
    sign = "-" if cursor.take("-") else ""
    kind = cursor.peek_type()
    if kind is TokenType.NUMBER:
        return NumberValue(sign + cursor.next())
    if kind is TokenType.WORD:
        return WordValue(sign + cursor.next())
    return cursor.refuse("expected a value")


def _read_list(cursor: Cursor) -> ListValue:
    items: list[OptionValue] = []
    if not cursor.take("]"):
        items.append(_read_value(cursor))
        while cursor.take(","):
            items.append(_read_value(cursor))
        cursor.expect("]")
    return ListValue(tuple(items))


def _read_aggregate(cursor: Cursor, end: str) -> MessageValue:
    entries: dict[str, list[OptionValue]] = {}
    while not cursor.take(end):
        key = _read_key(cursor)
        if not cursor.take(":") and cursor.peek() not in ("{", "<"):
            cursor.refuse("expected ':'")
        entries.setdefault(key, []).append(_read_value(cursor))
        if not cursor.take(","):
            cursor.take(";")
    return MessageValue(tuple((key, _value_or_list(values)) for key, values in entries.items()))


def _value_or_list(values: list[OptionValue]) -> OptionValue:
    """The values of a repeated key are a list."""
    if len(values) == 1:
        return values[0]
    items = (value.items if isinstance(value, ListValue) else (value,) for value in values)
    return ListValue(tuple(chain.from_iterable(items)))


def _read_key(cursor: Cursor) -> str:
    if not cursor.take("["):
        return cursor.word()
    name = cursor.type_name()
    if cursor.take("/"):  # the type inside an Any
        name = f"{name}/{cursor.full_name()}"
    cursor.expect("]")
    return f"[{name}]"
