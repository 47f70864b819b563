"""The rules for arrays: lists, whose items have one schema, and tuples, with one per position."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.schemas.json.compare_numbers import compare_limit, compare_values
from penstock.schemas.json.compare_pairs import (
    CompareContext,
    Comparison,
    PartDifferences,
    compare_part,
    in_part,
)
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
from penstock.schemas.json.references import JsonDraft
from penstock.schemas.json.tree import JsonNode, NodeType


class _Items(NamedTuple):
    """The constraints of a schema on items, independent of its draft's keywords."""

    each: JsonNode | None  # of a list
    prefix: tuple[JsonNode, ...]  # of a tuple, one per position
    rest: Rest  # after the prefix
    unevaluated: JsonNode | None  # of items that no other keyword evaluates

    @property
    def is_open(self) -> bool:
        return is_open(self.rest, self.unevaluated)

    @property
    def cover(self) -> JsonNode | None:
        return covering(self.rest, self.unevaluated)


def compare_arrays(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    """All differences between the constraints of two schemas on arrays."""
    before, after = _items_of(old), _items_of(new)
    context.budget.spend(len(before.prefix) + len(after.prefix))
    differences = yield from compare_part(before.each, after.each, "items")
    differences += yield from _compare_prefixes(before, after, context)
    differences += yield from compare_rest(
        before.rest, after.rest, "additionalItems", "ADDITIONAL_ITEMS"
    )
    differences += yield from compare_unevaluated(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
    return differences + tuple(_compare_counts(old, new))


def _items_of(node: JsonNode) -> _Items:
    not_evaluated = unevaluated(node, "unevaluatedItems")
    items = node.keywords.get("items")
    if node.draft is JsonDraft.DRAFT_2020_12 or (
        node.draft.is_modern and not isinstance(items, list)
    ):
        prefix = _nodes(node, node.keywords.get("prefixItems"))
        rest = rest_of(node, "items")
        if prefix or rest.schema is None:
            return _Items(None, prefix, rest, not_evaluated)
        return _Items(rest.schema, (), Rest(is_allowed=True, schema=None), not_evaluated)
    rest = rest_of(node, "additionalItems")
    return _Items(node.child("items"), _nodes(node, items), rest, not_evaluated)


def _nodes(node: JsonNode, schemas: JsonValue) -> tuple[JsonNode, ...]:
    return tuple([node.node(schema) for schema in schemas]) if isinstance(schemas, list) else ()


def _compare_prefixes(old: _Items, new: _Items, context: CompareContext) -> Comparison:
    differences: list[JsonDifference | PartDifferences] = []
    for index in range(max(len(old.prefix), len(new.prefix))):
        if index >= len(new.prefix):
            changes = yield from _position_removed(old.prefix[index], new, context)
        elif index >= len(old.prefix):
            changes = yield from _position_added(old, new.prefix[index], context)
        else:
            changes = yield from compare_part(old.prefix[index], new.prefix[index])
        differences += in_part(changes, "items", str(index))
    return tuple(differences)


def _position_removed(removed: JsonNode, new: _Items, context: CompareContext) -> Comparison:
    if new.is_open:
        return (JsonDifference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL"),)
    if new.cover is None:
        with_false = "_WITH_FALSE" if removed.kind is NodeType.NOTHING else ""
        return (JsonDifference(f"ITEM{with_false}_REMOVED_FROM_CLOSED_CONTENT_MODEL"),)
    differences = yield from compare_part(removed, new.cover)
    verb = "IS" if context.allows(differences) else "NOT"
    return (
        *differences,
        JsonDifference(f"ITEM_REMOVED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    )


def _position_added(old: _Items, added: JsonNode, context: CompareContext) -> Comparison:
    if old.is_open:
        with_empty = "_WITH_EMPTY_SCHEMA" if added.kind is NodeType.ANYTHING else ""
        return (JsonDifference(f"ITEM{with_empty}_ADDED_TO_OPEN_CONTENT_MODEL"),)
    if old.cover is None:
        return (JsonDifference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL"),)
    differences = yield from compare_part(old.cover, added)
    verb = "IS" if context.allows(differences) else "NOT"
    return (
        *differences,
        JsonDifference(f"ITEM_ADDED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    )


def _compare_counts(old: JsonNode, new: JsonNode) -> Iterator[JsonDifference]:
    yield from compare_limit(old, new, "maxItems", "MAX_ITEMS")
    yield from compare_limit(old, new, "minItems", "MIN_ITEMS")
    before, after = (node.keywords.get("uniqueItems") is True for node in (old, new))
    if before is not after:
        yield difference_at(f"UNIQUE_ITEMS_{'REMOVED' if before else 'ADDED'}", "uniqueItems")
    (old_min, old_max), (new_min, new_max) = _contained(old), _contained(new)
    yield from compare_values(old_max, new_max, "maxContains", "MAX_CONTAINS")
    yield from compare_values(old_min, new_min, "minContains", "MIN_CONTAINS")


def _contained(node: JsonNode) -> tuple[JsonValue, JsonValue]:
    """The minimum and maximum number of items that match `contains`; the minimum defaults to 1."""
    minimum, maximum = node.keywords.get("minContains"), node.keywords.get("maxContains")
    if not node.draft.is_modern:
        return minimum, maximum
    if "contains" not in node.keywords:
        return None, None
    return 1 if minimum is None else minimum, maximum
