"""Whether a record matches a filter.

Numbers equal numbers, texts equal texts, and nothing equals what is of another type. Dates, UUIDs
and the like count as the text that they are shown as. Values are compared, never evaluated.
"""

from base64 import b64encode
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from penstock.console.filter.expressions import (
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Literal,
    Membership,
    Negation,
    Operator,
    RecordField,
    Root,
    Step,
)


class RecordFields(Protocol):
    """What a filter sees of a record; keys and values are decoded when they are needed."""

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> Any: ...

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> Mapping[str, Any]: ...


def matches(expression: Expression, record: RecordFields) -> bool:
    """Whether the record has what the filter asks for."""
    match expression:
        case Comparison(field, operator, literal):
            return _compare(_value_of(record, field), operator, literal)
        case Membership(field, literals):
            value = _value_of(record, field)
            return any(_equal(value, each) for each in literals)
        case Negation(part):
            return not matches(part, record)
        case Conjunction(parts):
            return all(matches(each, record) for each in parts)
        case Disjunction(parts):
            return any(matches(each, record) for each in parts)


def _value_of(record: RecordFields, field: RecordField) -> Any:
    match field.root:
        case Root.PARTITION:
            return record.partition
        case Root.OFFSET:
            return record.offset
        case Root.TIMESTAMP:
            return record.timestamp
        case Root.KEY:
            value = record.key
        case Root.VALUE:
            value = record.value
        case Root.HEADERS:
            value = record.headers
    for step in field.path:
        value = _step_into(value, step)
    return _comparable(value)


def _step_into(value: Any, step: Step) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    if (
        isinstance(value, list | tuple)
        and isinstance(step, int)
        and -len(value) <= step < len(value)
    ):
        return value[step]
    return None


def _comparable(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | timedelta):
        return str(value)
    return value


def _compare(value: Any, operator: Operator, literal: Literal) -> bool:
    match operator:
        case Operator.EQUAL:
            return _equal(value, literal)
        case Operator.UNEQUAL:
            return not _equal(value, literal)
        case Operator.CONTAINS:
            return _contains(value, literal)
        case Operator.STARTS_WITH:
            return isinstance(value, str) and isinstance(literal, str) and value.startswith(literal)
    return _ordered(value, operator, literal)


def _equal(value: Any, literal: Literal) -> bool:
    left, right = _number(value), _number(literal)
    if left is not None and right is not None:
        return left == right
    if isinstance(value, bool) or isinstance(literal, bool) or value is None or literal is None:
        return value is literal
    return isinstance(value, str) and value == literal


def _contains(value: Any, literal: Literal) -> bool:
    if isinstance(value, str):
        return isinstance(literal, str) and literal in value
    if isinstance(value, Mapping):
        return literal in value
    if isinstance(value, list | tuple):
        return any(_equal(_comparable(each), literal) for each in value)
    return False


def _ordered(value: Any, operator: Operator, literal: Literal) -> bool:
    left: Any = _number(value)
    right: Any = _number(literal)
    if left is None or right is None:
        if not isinstance(value, str) or not isinstance(literal, str):
            return False
        left, right = value, literal
    elif left.is_nan():
        return False
    match operator:
        case Operator.LESS:
            return bool(left < right)
        case Operator.LESS_OR_EQUAL:
            return bool(left <= right)
        case Operator.GREATER:
            return bool(left > right)
        case Operator.GREATER_OR_EQUAL:
            return bool(left >= right)
    raise AssertionError(f"{operator} does not compare order")


def _number(value: Any) -> Decimal | None:
    """Exact: 0.1 as a double equals the 0.1 of a filter, and a long keeps all its digits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        return Decimal(value)
    return Decimal(repr(value)) if isinstance(value, float) else None
