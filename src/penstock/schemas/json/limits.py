"""Keywords with a number: added, removed, increased or decreased."""

from collections.abc import Iterator
from decimal import Decimal

from penstock.schemas.json.differences import Found, found_at
from penstock.schemas.json.jsontext import JsonValue
from penstock.schemas.json.tree import Node


def compare_limit(old: Node, new: Node, keyword: str, stem: str) -> Iterator[Found]:
    """How the value of a keyword changed. Booleans, as in draft 4, are not looked at."""
    yield from compare_values(old.keywords.get(keyword), new.keywords.get(keyword), keyword, stem)


def compare_values(before: JsonValue, after: JsonValue, keyword: str, stem: str) -> Iterator[Found]:
    """How a value changed that may come from elsewhere than the keyword."""
    old, new = _number(before), _number(after)
    if old == new:
        return
    if old is None:
        change = "ADDED"
    elif new is None:
        change = "REMOVED"
    else:
        change = "INCREASED" if old < new else "DECREASED"
    yield found_at(f"{stem}_{change}", keyword)


def _number(value: JsonValue) -> int | Decimal | None:
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None
