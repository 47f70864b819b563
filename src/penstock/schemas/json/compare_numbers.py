"""The rules for keywords with a number: limits of every type and `multipleOf`, exactly."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from typing import Final

from penstock.schemas.json.differences import JsonDifference, difference_at
from penstock.schemas.json.jsontext import EXPONENT_MAX, JsonValue
from penstock.schemas.json.tree import JsonNode

_DIGITS_MAX: Final = 2 * EXPONENT_MAX + 2_000  # that the remainder of two numbers can have


def compare_limit(
    old: JsonNode, new: JsonNode, keyword: str, stem: str
) -> Iterator[JsonDifference]:
    """How the value of a keyword changed. Booleans, as in draft 4, are ignored."""
    yield from compare_values(old.keywords.get(keyword), new.keywords.get(keyword), keyword, stem)


def compare_values(
    before: JsonValue, after: JsonValue, keyword: str, stem: str
) -> Iterator[JsonDifference]:
    """How a limit changed that is not the plain value of the keyword."""
    old, new = _number(before), _number(after)
    if old == new:
        return
    if old is None:
        change = "ADDED"
    elif new is None:
        change = "REMOVED"
    else:
        change = "INCREASED" if old < new else "DECREASED"
    yield difference_at(f"{stem}_{change}", keyword)


def _number(value: JsonValue) -> int | Decimal | None:
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def compare_numbers(old: JsonNode, new: JsonNode) -> Iterator[JsonDifference]:
    """All differences between the constraints of two schemas on numbers."""
    yield from compare_limit(old, new, "maximum", "MAXIMUM")
    yield from compare_limit(old, new, "minimum", "MINIMUM")
    yield from compare_limit(old, new, "exclusiveMaximum", "EXCLUSIVE_MAXIMUM")
    yield from compare_limit(old, new, "exclusiveMinimum", "EXCLUSIVE_MINIMUM")
    before, after = (_multiple_of(node.keywords.get("multipleOf")) for node in (old, new))
    if before != after:
        yield difference_at(f"MULTIPLE_OF_{_multiple_change(before, after)}", "multipleOf")
    if old.is_integer is not new.is_integer:
        yield JsonDifference("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED")


def _multiple_of(value: JsonValue) -> Decimal | None:
    return Decimal(value) if isinstance(value, int | Decimal) and value else None


def _multiple_change(before: Decimal | None, after: Decimal | None) -> str:
    if before is None:
        return "ADDED"
    if after is None:
        return "REMOVED"
    with localcontext() as exact:
        exact.prec = _DIGITS_MAX
        if after % before == 0:
            return "EXPANDED"
        return "REDUCED" if before % after == 0 else "CHANGED"
