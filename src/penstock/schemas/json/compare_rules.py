"""The rules for a pair of schemas of any type.

As in Confluent's registry, these rules ignore `format`, `if`/`then`/`else`, `contains`,
`propertyNames`, changes inside `patternProperties`, and required properties that are not declared.
Confluent's errors are not repeated: a `$ref` to a `$ref` is followed to its end, an exclusive
maximum may decrease without a maximum beside it, and numbers are compared exactly.
"""

from collections.abc import Generator, Iterator
from typing import Final

from penstock.schemas.json.compare_arrays import compare_arrays
from penstock.schemas.json.compare_combined import compare_combined
from penstock.schemas.json.compare_numbers import compare_limit, compare_numbers
from penstock.schemas.json.compare_objects import compare_objects
from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Differences, Pair
from penstock.schemas.json.differences import JsonDifference, difference_at
from penstock.schemas.json.jsontext import same_value_key
from penstock.schemas.json.tree import JsonNode, NodeType, have_same_text

_CONNECT_TYPE: Final = "connect.type"


def compare_nodes(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    """All differences between two schemas."""
    if _are_same(old, new):
        return ()
    if old.kind is not NodeType.COMBINED and new.kind is NodeType.COMBINED:
        differences = yield from _became_branch(old, new, context)
    elif old.kind is NodeType.COMBINED and new.kind is not NodeType.COMBINED:
        differences = yield from _was_branch(old, new, context)
    else:
        differences = None
    if differences is not None:
        return differences
    if old.kind is not new.kind:
        return () if _reads_any_type(old, new) else (JsonDifference("TYPE_CHANGED"),)
    return (yield from _compare_same_type(old, new, context))


def _are_same(old: JsonNode, new: JsonNode) -> bool:
    """Whether two schemas have the same text and the same meaning."""
    if old.kind is not new.kind or old.is_integer is not new.is_integer:
        return False
    if old.criterion != new.criterion:
        return False
    return have_same_text(old, old.keywords, new, new.keywords)


def _became_branch(
    old: JsonNode, new: JsonNode, context: CompareContext
) -> Generator[Pair, Differences, Differences | None]:
    """A schema that became a branch, if one of the branches reads it."""
    branches = new.branches
    if len(branches) > 1 and new.criterion == "allOf":
        return None
    context.budget.spend(len(branches))
    for branch in branches:
        differences = yield Pair(old, branch)
        if context.allows(differences):
            extended = (JsonDifference("SUM_TYPE_EXTENDED"),) if len(branches) > 1 else ()
            return differences + extended
    return None


def _was_branch(
    old: JsonNode, new: JsonNode, context: CompareContext
) -> Generator[Pair, Differences, Differences | None]:
    """A branch of an `allOf` that remained alone, if the new schema reads it."""
    branches = old.branches
    if len(branches) > 1 and old.criterion != "allOf":
        return None
    context.budget.spend(len(branches))
    for branch in branches:
        differences = yield Pair(branch, new)
        if context.allows(differences):
            narrowed = (JsonDifference("PRODUCT_TYPE_NARROWED"),) if len(branches) > 1 else ()
            return differences + narrowed
    return None


def _reads_any_type(old: JsonNode, new: JsonNode) -> bool:
    if old.kind is NodeType.NOTHING or new.kind is NodeType.ANYTHING:
        return True
    # Kafka Connect writes decimals as numbers or as strings, and marks both as bytes.
    return old.keywords.get(_CONNECT_TYPE) == new.keywords.get(_CONNECT_TYPE) == "bytes"


def _compare_same_type(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    match old.kind:
        case NodeType.OBJECT:
            return (yield from compare_objects(old, new, context))
        case NodeType.ARRAY:
            return (yield from compare_arrays(old, new, context))
        case NodeType.COMBINED:
            return (yield from compare_combined(old, new, context))
        case NodeType.NOT:
            return (yield from _compare_negations(old, new, context))
        case NodeType.STRING:
            return tuple(_compare_strings(old, new))
        case NodeType.NUMBER:
            return tuple(compare_numbers(old, new))
        case NodeType.ENUM:
            return tuple(_compare_enums(old, new, context))
        case NodeType.CONST:
            same = same_value_key(old.keywords["const"]) == same_value_key(new.keywords["const"])
            return () if same else (difference_at("ENUM_ARRAY_CHANGED", "const"),)
        case _:
            return ()


def _compare_negations(old: JsonNode, new: JsonNode, context: CompareContext) -> Comparison:
    """A schema under `not` may only become narrower: compare with the roles exchanged."""
    differences = yield Pair(new.child("not"), old.child("not"))
    kind = "NOT_TYPE_NARROWED" if context.allows(differences) else "NOT_TYPE_EXTENDED"
    return (difference_at(kind, "not"),)


def _compare_strings(old: JsonNode, new: JsonNode) -> Iterator[JsonDifference]:
    yield from compare_limit(old, new, "maxLength", "MAX_LENGTH")
    yield from compare_limit(old, new, "minLength", "MIN_LENGTH")
    before, after = old.keywords.get("pattern"), new.keywords.get("pattern")
    if before != after:
        change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        yield difference_at(f"PATTERN_{change}", "pattern")


def _compare_enums(
    old: JsonNode, new: JsonNode, context: CompareContext
) -> Iterator[JsonDifference]:
    before, after = (_values(node) for node in (old, new))
    context.budget.spend(len(before) + len(after))
    if before == after:
        return
    if before <= after:
        yield difference_at("ENUM_ARRAY_EXTENDED", "enum")
    else:
        yield difference_at(f"ENUM_ARRAY_{'NARROWED' if after <= before else 'CHANGED'}", "enum")


def _values(node: JsonNode) -> set[object]:
    values = node.keywords["enum"]
    return {same_value_key(value) for value in values} if isinstance(values, list) else set()
