"""The rules for objects: properties, required properties, and members without a name."""

from collections.abc import Iterator
from typing import Final

from penstock.schemas.json.compare_numbers import compare_limit
from penstock.schemas.json.compare_pairs import (
    CompareContext,
    Comparison,
    Differences,
    PartDifferences,
    compare_part,
    in_part,
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
from penstock.schemas.json.tree import JsonNode, NodeType, have_same_text
from penstock.schemas.json.validator import matches

PATTERN_STEPS: Final = 10  # of the budget, to try one pattern on one name


def compare_objects(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    """All differences between the constraints of two schemas on objects."""
    context.budget.spend(_members(old) + _members(new))
    differences: Differences = tuple(_compare_required(old, new))
    differences += yield from _compare_properties(old, new, context)
    differences += tuple(_compare_dependent_required(old, new))
    differences += yield from _compare_dependent_schemas(old, new)
    rests = rest_of(old, "additionalProperties"), rest_of(new, "additionalProperties")
    differences += yield from compare_rest(*rests, "additionalProperties", "ADDITIONAL_PROPERTIES")
    differences += yield from compare_unevaluated(
        old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES"
    )
    differences += tuple(compare_limit(old, new, "maxProperties", "MAX_PROPERTIES"))
    differences += tuple(compare_limit(old, new, "minProperties", "MIN_PROPERTIES"))
    return differences


def _members(node: JsonNode) -> int:
    keywords = ("properties", "dependencies", "dependentRequired", "dependentSchemas")
    return sum(len(node.members(keyword)) for keyword in keywords)


def required_in(node: JsonNode) -> frozenset[str]:
    """The names of the required properties."""
    names = node.keywords.get("required")
    return frozenset(
        [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    )


def has_default(node: JsonNode, name: str) -> bool:
    """Whether a property has a default, which a reader can use if the property is missing."""
    schema = node.members("properties").get(name)
    return isinstance(schema, dict) and schema.get("default") is not None


def _compare_required(old: JsonNode, new: JsonNode) -> Iterator[JsonDifference]:
    before, after = required_in(old), required_in(new)
    if before == after:
        return
    remaining = new.members("properties")
    for name in old.members("properties"):
        if name not in remaining or (name in before) is (name in after):
            continue
        if name in before:
            change = "REMOVED"
        else:
            change = "WITH_DEFAULT_ADDED" if has_default(new, name) else "ADDED"
        yield difference_at(f"REQUIRED_ATTRIBUTE_{change}", "required", name)


def _compare_properties(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    differences: list[JsonDifference | PartDifferences] = []
    before, after = old.members("properties"), new.members("properties")
    required = required_in(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            changes = yield from _property_removed(old.node(before[name]), new, name, context)
        elif name not in before:
            is_required = name in required
            changes = yield from _property_added(old, new, name, context, is_required=is_required)
        elif have_same_text(old, before[name], new, after[name]):
            continue
        else:
            changes = yield from compare_part(old.node(before[name]), new.node(after[name]))
        differences += in_part(changes, "properties", name)
    return tuple(differences)


def _property_removed(
    removed: JsonNode, new: JsonNode, name: str, context: CompareContext
) -> Comparison:
    """Events may still contain it: the reader's rule for members without a name counts."""
    if is_open_object(new):
        return (JsonDifference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL"),)
    cover = _cover(new, name, context)
    if cover is None:
        with_false = "_WITH_FALSE" if removed.kind is NodeType.NOTHING else ""
        return (JsonDifference(f"PROPERTY{with_false}_REMOVED_FROM_CLOSED_CONTENT_MODEL"),)
    differences = yield from compare_part(removed, cover)
    verb = "IS" if context.allows(differences) else "NOT"
    return (
        *differences,
        JsonDifference(f"PROPERTY_REMOVED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
    )


def _property_added(
    old: JsonNode, new: JsonNode, name: str, context: CompareContext, *, is_required: bool
) -> Comparison:
    """Events may contain it already: the writer's rule for members without a name counts."""
    added = new.node(new.members("properties")[name])
    requirement = _requirement(new, name, is_required=is_required)
    if is_open_object(old):
        if added.kind is NodeType.ANYTHING:
            return (JsonDifference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL"),)
        return (JsonDifference(f"{requirement}_ADDED_TO_OPEN_CONTENT_MODEL"),)
    differences: Differences = ()
    cover = _cover(old, name, context)
    if cover is not None:
        differences = yield from compare_part(cover, added)
        verb = "IS" if context.allows(differences) else "NOT"
        differences += (
            JsonDifference(f"PROPERTY_ADDED_{verb}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        )
    return (*differences, JsonDifference(f"{requirement}_ADDED_TO_UNOPEN_CONTENT_MODEL"))


def _requirement(node: JsonNode, name: str, *, is_required: bool) -> str:
    if not is_required:
        return "OPTIONAL_PROPERTY"
    return "REQUIRED_PROPERTY_WITH_DEFAULT" if has_default(node, name) else "REQUIRED_PROPERTY"


def is_open_object(node: JsonNode) -> bool:
    """Whether properties that are not named may have any value."""
    rest = rest_of(node, "additionalProperties")
    if node.members("patternProperties"):
        return False
    return is_open(rest, unevaluated(node, "unevaluatedProperties"))


def _cover(node: JsonNode, name: str, context: CompareContext) -> JsonNode | None:
    """The schema that an undeclared property of this name must match, if there is one."""
    context.budget.spend(PATTERN_STEPS * len(node.members("patternProperties")))
    for pattern, schema in node.members("patternProperties").items():
        if matches(pattern, name):
            return node.node(schema)
    rest = rest_of(node, "additionalProperties")
    return covering(rest, unevaluated(node, "unevaluatedProperties"))


def _compare_dependent_required(old: JsonNode, new: JsonNode) -> Iterator[JsonDifference]:
    before, after = _dependent_required(old), _dependent_required(new)
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


def _dependent_required(node: JsonNode) -> dict[str, frozenset[str]]:
    """The properties that become required if a property is present."""
    keyword = "dependentRequired" if node.draft.is_modern else "dependencies"
    return {
        name: frozenset([item for item in names if isinstance(item, str)])
        for name, names in node.members(keyword).items()
        if isinstance(names, list) and names
    }


def _compare_dependent_schemas(old: JsonNode, new: JsonNode) -> Comparison:
    differences: list[JsonDifference | PartDifferences] = []
    before, after = _dependent_schemas(old), _dependent_schemas(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            differences.append(difference_at("DEPENDENCY_SCHEMA_REMOVED", "dependencies", name))
        elif name not in before:
            differences.append(difference_at("DEPENDENCY_SCHEMA_ADDED", "dependencies", name))
        else:
            differences += yield from compare_part(before[name], after[name], "dependencies", name)
    return tuple(differences)


def _dependent_schemas(node: JsonNode) -> dict[str, JsonNode]:
    """The schemas that an object must match if a property is present."""
    keyword = "dependentSchemas" if node.draft.is_modern else "dependencies"
    return {
        name: node.node(schema)
        for name, schema in node.members(keyword).items()
        if isinstance(schema, dict | bool)
    }
