"""The rules for arrays: lists whose items are alike, and tuples whose items have places.

Keywords with a number: added, removed, increased or decreased.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from penstock.schemas.json.compare_pairs import Below, CompareContext, Comparison, below, compared
from penstock.schemas.json.differences import JsonDifference, difference_at
from penstock.schemas.json.jsontext import JsonValue
from penstock.schemas.json.open_content import (
    Rest,
    compare_rest,
    compare_unevaluated,
    covering,
    is_open,
    rest_of,
    unevaluated,
)
from penstock.schemas.json.references import Draft
from penstock.schemas.json.tree import Node, NodeType


def compare_limit(old: Node, new: Node, keyword: str, stem: str) -> Iterator[JsonDifference]:
    """How the value of a keyword changed. Booleans, as in draft 4, are not looked at."""
    yield from compare_values(old.keywords.get(keyword), new.keywords.get(keyword), keyword, stem)


def compare_values(
    before: JsonValue, after: JsonValue, keyword: str, stem: str
) -> Iterator[JsonDifference]:
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
    yield difference_at(f"{stem}_{change}", keyword)


def _number(value: JsonValue) -> int | Decimal | None:
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


class _Items(NamedTuple):
    """What a schema says about items, whichever keywords its draft has for it."""

    each: Node | None  # of a list
    places: tuple[Node, ...]  # of a tuple
    rest: Rest  # after the places
    left_over: Node | None  # of items that no other keyword has looked at

    @property
    def is_open(self) -> bool:
        return is_open(self.rest, self.left_over)

    @property
    def cover(self) -> Node | None:
        return covering(self.rest, self.left_over)


def compare_arrays(old: Node, new: Node, context: CompareContext) -> Comparison:
    """All differences between what two schemas say about arrays."""
    before, after = _items_of(old), _items_of(new)
    context.budget.spend(len(before.places) + len(after.places))
    found = yield from compared(before.each, after.each, "items")
    found += yield from _compare_places(before, after, context)
    found += yield from compare_rest(before.rest, after.rest, "additionalItems", "ADDITIONAL_ITEMS")
    found += yield from compare_unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
    return found + tuple(_compare_counts(old, new))


def _items_of(node: Node) -> _Items:
    left_over = unevaluated(node, "unevaluatedItems")
    items = node.keywords.get("items")
    if node.draft is Draft.DRAFT_2020_12 or (node.draft.is_modern and not isinstance(items, list)):
        places = _nodes(node, node.keywords.get("prefixItems"))
        rest = rest_of(node, "items")
        if places or rest.schema is None:
            return _Items(None, places, rest, left_over)
        return _Items(rest.schema, (), Rest(is_allowed=True, schema=None), left_over)
    rest = rest_of(node, "additionalItems")
    return _Items(node.child("items"), _nodes(node, items), rest, left_over)


def _nodes(node: Node, schemas: JsonValue) -> tuple[Node, ...]:
    return tuple([node.node(one) for one in schemas]) if isinstance(schemas, list) else ()


def _compare_places(old: _Items, new: _Items, context: CompareContext) -> Comparison:
    found: list[JsonDifference | Below] = []
    for index in range(max(len(old.places), len(new.places))):
        if index >= len(new.places):
            changes = yield from _place_removed(old.places[index], new, context)
        elif index >= len(old.places):
            changes = yield from _place_added(old, new.places[index], context)
        else:
            changes = yield from compared(old.places[index], new.places[index])
        found += below(changes, "items", str(index))
    return tuple(found)


def _place_removed(removed: Node, new: _Items, context: CompareContext) -> Comparison:
    if new.is_open:
        return (JsonDifference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL"),)
    if new.cover is None:
        with_false = "_WITH_FALSE" if removed.kind is NodeType.NOTHING else ""
        return (JsonDifference(f"ITEM{with_false}_REMOVED_FROM_CLOSED_CONTENT_MODEL"),)
    found = yield from compared(removed, new.cover)
    verb = "IS" if context.allows(found) else "NOT"
    return (*found, JsonDifference(f"ITEM_REMOVED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"))


def _place_added(old: _Items, added: Node, context: CompareContext) -> Comparison:
    if old.is_open:
        with_empty = "_WITH_EMPTY_SCHEMA" if added.kind is NodeType.ANYTHING else ""
        return (JsonDifference(f"ITEM{with_empty}_ADDED_TO_OPEN_CONTENT_MODEL"),)
    if old.cover is None:
        return (JsonDifference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL"),)
    found = yield from compared(old.cover, added)
    verb = "IS" if context.allows(found) else "NOT"
    return (*found, JsonDifference(f"ITEM_ADDED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"))


def _compare_counts(old: Node, new: Node) -> Iterator[JsonDifference]:
    yield from compare_limit(old, new, "maxItems", "MAX_ITEMS")
    yield from compare_limit(old, new, "minItems", "MIN_ITEMS")
    before, after = (node.keywords.get("uniqueItems") is True for node in (old, new))
    if before is not after:
        yield difference_at(f"UNIQUE_ITEMS_{'REMOVED' if before else 'ADDED'}", "uniqueItems")
    counts = _contained(old), _contained(new)
    yield from compare_values(counts[0][1], counts[1][1], "maxContains", "MAX_CONTAINS")
    yield from compare_values(counts[0][0], counts[1][0], "minContains", "MIN_CONTAINS")


def _contained(node: Node) -> tuple[JsonValue, JsonValue]:
    """How many items must and may be as `contains` says: at least one, if nothing is said."""
    least, most = node.keywords.get("minContains"), node.keywords.get("maxContains")
    if not node.draft.is_modern:
        return least, most
    if "contains" not in node.keywords:
        return None, None
    return 1 if least is None else least, most
