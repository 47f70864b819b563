"""The rules for a pair of schemas of any kind, and for the kinds that hold no others.

The peer does not look at `format`, `if`/`then`/`else`, `contains`, `propertyNames`, changes inside
`patternProperties`, nor at required properties that are not declared; neither do these rules. Where
the peer errs they do not follow: a `$ref` to a `$ref` is followed to its end, an exclusive maximum
may decrease without a maximum beside it, and numbers are compared exactly.
"""

from collections.abc import Generator, Iterator
from decimal import Decimal, localcontext
from typing import Final

from penstock.schemas.json.compare_arrays import compare_arrays, compare_limit
from penstock.schemas.json.compare_combined import compare_combined
from penstock.schemas.json.compare_objects import compare_objects
from penstock.schemas.json.compare_pairs import CompareContext, Comparison, Findings, Pair
from penstock.schemas.json.differences import JsonDifference, difference_at
from penstock.schemas.json.jsontext import EXPONENT_MAX, JsonValue, same_value_key
from penstock.schemas.json.tree import Node, NodeType, are_written_alike

_CONNECT_TYPE: Final = "connect.type"
_DIGITS_MAX: Final = 2 * EXPONENT_MAX + 2_000  # what a remainder of two numbers can need


def compare_nodes(old: Node, new: Node, context: CompareContext) -> Comparison:
    """All differences between two schemas."""
    if _are_same(old, new):
        return ()
    if old.kind is not NodeType.COMBINED and new.kind is NodeType.COMBINED:
        findings = yield from _joined_a_union(old, new, context)
    elif old.kind is NodeType.COMBINED and new.kind is not NodeType.COMBINED:
        findings = yield from _left_a_product(old, new, context)
    else:
        findings = None
    if findings is not None:
        return findings
    if old.kind is not new.kind:
        return () if _reads_any_kind(old, new) else (JsonDifference("TYPE_CHANGED"),)
    return (yield from _compare_kind(old, new, context))


def _are_same(old: Node, new: Node) -> bool:
    """Whether two schemas are written alike and mean the same wherever they stand."""
    if old.kind is not new.kind or old.is_integer is not new.is_integer:
        return False
    if old.criterion != new.criterion:
        return False
    return are_written_alike(old, old.keywords, new, new.keywords)


def _joined_a_union(
    old: Node, new: Node, context: CompareContext
) -> Generator[Pair, Findings, Findings | None]:
    """A schema that became one of several, if one of them reads it."""
    branches = new.branches
    if len(branches) > 1 and new.criterion == "allOf":
        return None
    context.budget.spend(len(branches))
    for branch in branches:
        findings = yield Pair(old, branch)
        if context.allows(findings):
            extended = (JsonDifference("SUM_TYPE_EXTENDED"),) if len(branches) > 1 else ()
            return findings + extended
    return None


def _left_a_product(
    old: Node, new: Node, context: CompareContext
) -> Generator[Pair, Findings, Findings | None]:
    """One of several schemas that had to be met, if it alone is read."""
    branches = old.branches
    if len(branches) > 1 and old.criterion != "allOf":
        return None
    context.budget.spend(len(branches))
    for branch in branches:
        findings = yield Pair(branch, new)
        if context.allows(findings):
            narrowed = (JsonDifference("PRODUCT_TYPE_NARROWED"),) if len(branches) > 1 else ()
            return findings + narrowed
    return None


def _reads_any_kind(old: Node, new: Node) -> bool:
    if old.kind is NodeType.NOTHING or new.kind is NodeType.ANYTHING:
        return True
    # Connect writes decimals as numbers or as strings, and calls both bytes.
    return old.keywords.get(_CONNECT_TYPE) == new.keywords.get(_CONNECT_TYPE) == "bytes"


def _compare_kind(old: Node, new: Node, context: CompareContext) -> Comparison:
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
            return tuple(_compare_numbers(old, new))
        case NodeType.ENUM:
            return tuple(_compare_enums(old, new, context))
        case NodeType.CONST:
            same = same_value_key(old.keywords["const"]) == same_value_key(new.keywords["const"])
            return () if same else (difference_at("ENUM_ARRAY_CHANGED", "const"),)
        case _:
            return ()


def _compare_negations(old: Node, new: Node, context: CompareContext) -> Comparison:
    """What must not match may only shrink: the two trade places."""
    findings = yield Pair(new.child("not"), old.child("not"))
    kind = "NOT_TYPE_NARROWED" if context.allows(findings) else "NOT_TYPE_EXTENDED"
    return (difference_at(kind, "not"),)


def _compare_strings(old: Node, new: Node) -> Iterator[JsonDifference]:
    yield from compare_limit(old, new, "maxLength", "MAX_LENGTH")
    yield from compare_limit(old, new, "minLength", "MIN_LENGTH")
    before, after = old.keywords.get("pattern"), new.keywords.get("pattern")
    if before != after:
        change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        yield difference_at(f"PATTERN_{change}", "pattern")


def _compare_numbers(old: Node, new: Node) -> Iterator[JsonDifference]:
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


def _compare_enums(old: Node, new: Node, context: CompareContext) -> Iterator[JsonDifference]:
    before, after = (_values(node) for node in (old, new))
    context.budget.spend(len(before) + len(after))
    if before == after:
        return
    if before <= after:
        yield difference_at("ENUM_ARRAY_EXTENDED", "enum")
    else:
        yield difference_at(f"ENUM_ARRAY_{'NARROWED' if after <= before else 'CHANGED'}", "enum")


def _values(node: Node) -> set[object]:
    values = node.keywords["enum"]
    return {same_value_key(one) for one in values} if isinstance(values, list) else set()
