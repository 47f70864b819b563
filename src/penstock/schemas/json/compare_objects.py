"""The rules for objects: properties, what is required, and what may come beside them."""

from collections.abc import Iterator
from typing import Final

from penstock.schemas.json.compare_arrays import compare_limit
from penstock.schemas.json.compare_pairs import (
    Below,
    CompareContext,
    Comparison,
    Findings,
    below,
    compared,
)
from penstock.schemas.json.differences import JsonDifference, difference_at
from penstock.schemas.json.open_content import (
    compare_rest,
    compare_unevaluated,
    covering,
    is_open,
    rest_of,
    unevaluated,
)
from penstock.schemas.json.tree import Node, NodeType, are_written_alike
from penstock.schemas.json.validator import matches

PATTERN_STEPS: Final = 10  # of the budget, to try one pattern on one name


def compare_objects(old: Node, new: Node, context: CompareContext) -> Comparison:
    """All differences between what two schemas say about objects."""
    context.budget.spend(_members(old) + _members(new))
    found: Findings = tuple(_compare_required(old, new))
    found += yield from _compare_properties(old, new, context)
    found += tuple(_compare_required_by(old, new))
    found += yield from _compare_schemas_by(old, new)
    rests = rest_of(old, "additionalProperties"), rest_of(new, "additionalProperties")
    found += yield from compare_rest(*rests, "additionalProperties", "ADDITIONAL_PROPERTIES")
    found += yield from compare_unevaluated(
        old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES"
    )
    found += tuple(compare_limit(old, new, "maxProperties", "MAX_PROPERTIES"))
    found += tuple(compare_limit(old, new, "minProperties", "MIN_PROPERTIES"))
    return found


def _members(node: Node) -> int:
    keywords = ("properties", "dependencies", "dependentRequired", "dependentSchemas")
    return sum(len(node.members(keyword)) for keyword in keywords)


def required_in(node: Node) -> frozenset[str]:
    """The names of the properties that must be there."""
    names = node.keywords.get("required")
    return frozenset(
        [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    )


def has_default(node: Node, name: str) -> bool:
    """Whether a property has a default, which a reader may put where the property is missing."""
    schema = node.members("properties").get(name)
    return isinstance(schema, dict) and schema.get("default") is not None


def _compare_required(old: Node, new: Node) -> Iterator[JsonDifference]:
    before, after = required_in(old), required_in(new)
    if before == after:
        return
    still_there = new.members("properties")
    for name in old.members("properties"):
        if name not in still_there or (name in before) is (name in after):
            continue
        if name in before:
            change = "REMOVED"
        else:
            change = "WITH_DEFAULT_ADDED" if has_default(new, name) else "ADDED"
        yield difference_at(f"REQUIRED_ATTRIBUTE_{change}", "required", name)


def _compare_properties(old: Node, new: Node, context: CompareContext) -> Comparison:
    found: list[JsonDifference | Below] = []
    before, after = old.members("properties"), new.members("properties")
    required = required_in(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            changes = yield from _property_removed(old.node(before[name]), new, name, context)
        elif name not in before:
            is_required = name in required
            changes = yield from _property_added(old, new, name, context, is_required=is_required)
        elif are_written_alike(old, before[name], new, after[name]):
            continue
        else:
            changes = yield from compared(old.node(before[name]), new.node(after[name]))
        found += below(changes, "properties", name)
    return tuple(found)


def _property_removed(removed: Node, new: Node, name: str, context: CompareContext) -> Comparison:
    """It can still be there: what does the reader say about properties it does not name?"""
    if is_open_object(new):
        return (JsonDifference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL"),)
    cover = _cover(new, name, context)
    if cover is None:
        with_false = "_WITH_FALSE" if removed.kind is NodeType.NOTHING else ""
        return (JsonDifference(f"PROPERTY{with_false}_REMOVED_FROM_CLOSED_CONTENT_MODEL"),)
    found = yield from compared(removed, cover)
    verb = "IS" if context.allows(found) else "NOT"
    return (
        *found,
        JsonDifference(f"PROPERTY_REMOVED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    )


def _property_added(
    old: Node, new: Node, name: str, context: CompareContext, *, is_required: bool
) -> Comparison:
    """It may have been there before: what did the writer say about properties it did not name?"""
    added = new.node(new.members("properties")[name])
    demanded = _demanded(new, name, is_required=is_required)
    if is_open_object(old):
        if added.kind is NodeType.ANYTHING:
            return (JsonDifference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"),)
        return (JsonDifference(f"{demanded}_ADDED_TO_OPEN_CONTENT_MODEL"),)
    found: Findings = ()
    cover = _cover(old, name, context)
    if cover is not None:
        found = yield from compared(cover, added)
        verb = "IS" if context.allows(found) else "NOT"
        found += (JsonDifference(f"PROPERTY_ADDED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),)
    return (*found, JsonDifference(f"{demanded}_ADDED_TO_UNOPEN_CONTENT_MODEL"))


def _demanded(node: Node, name: str, *, is_required: bool) -> str:
    if not is_required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY_WITH_DEFAULT" if has_default(node, name) else "REQUIRED_PROPERTY"


def is_open_object(node: Node) -> bool:
    """Whether properties that are not named may be anything."""
    rest = rest_of(node, "additionalProperties")
    if node.members("patternProperties"):
        return False
    return is_open(rest, unevaluated(node, "unevaluatedProperties"))


def _cover(node: Node, name: str, context: CompareContext) -> Node | None:
    """The schema that a property of this name, which is not named, must meet."""
    context.budget.spend(PATTERN_STEPS * len(node.members("patternProperties")))
    for pattern, schema in node.members("patternProperties").items():
        if matches(pattern, name):
            return node.node(schema)
    rest = rest_of(node, "additionalProperties")
    return covering(rest, unevaluated(node, "unevaluatedProperties"))


def _compare_required_by(old: Node, new: Node) -> Iterator[JsonDifference]:
    before, after = _required_by(old), _required_by(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            change = "REMOVED"
        elif name not in before:
            change = "ADDED"
        elif before[name] == after[name]:
            continue
        elif before[name] < after[name]:
            change = "EXTENDED"
        else:
            change = "NARROWED" if after[name] < before[name] else "CHANGED"
        yield difference_at(f"DEPENDENCY_ARRAY_{change}", "dependencies", name)


def _required_by(node: Node) -> dict[str, frozenset[str]]:
    """The properties that another one, if it is there, makes required."""
    keyword = "dependentRequired" if node.draft.is_modern else "dependencies"
    return {
        name: frozenset([one for one in names if isinstance(one, str)])
        for name, names in node.members(keyword).items()
        if isinstance(names, list) and names
    }


def _compare_schemas_by(old: Node, new: Node) -> Comparison:
    found: list[JsonDifference | Below] = []
    before, after = _schemas_by(old), _schemas_by(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            found.append(difference_at("DEPENDENCY_SCHEMA_REMOVED", "dependencies", name))
        elif name not in before:
            found.append(difference_at("DEPENDENCY_SCHEMA_ADDED", "dependencies", name))
        else:
            found += yield from compared(before[name], after[name], "dependencies", name)
    return tuple(found)


def _schemas_by(node: Node) -> dict[str, Node]:
    """The schemas that an object must meet if it has a property."""
    keyword = "dependentSchemas" if node.draft.is_modern else "dependencies"
    return {
        name: node.node(schema)
        for name, schema in node.members(keyword).items()
        if isinstance(schema, dict | bool)
    }
