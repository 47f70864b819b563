"""The constraints of a schema on members that it does not name: open, partly open or closed."""

from typing import NamedTuple

from penstock.schemas.json.compare_pairs import Comparison, compare_part
from penstock.schemas.json.differences import difference_at
from penstock.schemas.json.tree import JsonNode, NodeType


class Rest(NamedTuple):
    """The keyword for members that are not named, such as `additionalProperties`."""

    is_allowed: bool
    schema: JsonNode | None  # None: any value, if allowed


def rest_of(node: JsonNode, keyword: str) -> Rest:
    """The meaning of a keyword whose value is a boolean or a schema."""
    value = node.keywords.get(keyword)
    if isinstance(value, dict):
        return Rest(is_allowed=True, schema=node.node(value))
    return Rest(is_allowed=value is not False, schema=None)


def unevaluated(node: JsonNode, keyword: str) -> JsonNode | None:
    """The schema of members that no other keyword evaluates."""
    return node.child(keyword) if node.draft.is_modern else None


def is_open(rest: Rest, not_evaluated: JsonNode | None) -> bool:
    """Whether members that are not named may have any value."""
    if not rest.is_allowed or rest.schema is not None:
        return False
    return not_evaluated is None or not_evaluated.kind is NodeType.ANYTHING


def covering(rest: Rest, not_evaluated: JsonNode | None) -> JsonNode | None:
    """The schema that members without a name must match, if there is one."""
    if rest.schema is not None or not rest.is_allowed:
        return rest.schema
    if not_evaluated is None or not_evaluated.kind in (NodeType.NOTHING, NodeType.ANYTHING):
        return None
    return not_evaluated


def compare_rest(old: Rest, new: Rest, keyword: str, stem: str) -> Comparison:
    """How the keyword for members without a name changed."""
    if old.is_allowed is not new.is_allowed:
        return (difference_at(f"{stem}_{'ADDED' if new.is_allowed else 'REMOVED'}", keyword),)
    if old.schema is None and new.schema is not None:
        return (difference_at(f"{stem}_NARROWED", keyword),)
    if old.schema is not None and new.schema is None:
        return (difference_at(f"{stem}_EXTENDED", keyword),)
    return (yield from compare_part(old.schema, new.schema, keyword))


def compare_unevaluated(old: JsonNode, new: JsonNode, keyword: str, stem: str) -> Comparison:
    """How the keyword for members that no other keyword evaluates changed."""
    before, after = unevaluated(old, keyword), unevaluated(new, keyword)
    if before is None and after is None:
        return ()
    change = _unevaluated_change(before, after)
    if change:
        return (difference_at(f"{stem}_{change}", keyword),)
    return (yield from compare_part(before, after, keyword))


def _unevaluated_change(before: JsonNode | None, after: JsonNode | None) -> str:
    """The change in one word; empty if the two schemas must be compared."""
    if _is(before, NodeType.NOTHING) is not _is(after, NodeType.NOTHING):
        return "ADDED" if _is(before, NodeType.NOTHING) else "REMOVED"
    if before is None:
        return "NARROWED"
    if after is None:
        return "EXTENDED"
    if _is(before, NodeType.ANYTHING) is not _is(after, NodeType.ANYTHING):
        return "NARROWED" if _is(before, NodeType.ANYTHING) else "EXTENDED"
    return ""


def _is(node: JsonNode | None, kind: NodeType) -> bool:
    return node is not None and node.kind is kind
