"""What a schema says about members it does not name: anything, some, or nothing more."""

from typing import NamedTuple

from penstock.schemas.json.compare_pairs import Comparison, compared
from penstock.schemas.json.differences import difference_at
from penstock.schemas.json.tree import Node, NodeType


class Rest(NamedTuple):
    """The keyword for members that are not named, such as `additionalProperties`."""

    is_allowed: bool
    schema: Node | None  # None: any, if allowed at all


def rest_of(node: Node, keyword: str) -> Rest:
    """What a keyword whose value is a boolean or a schema says."""
    value = node.keywords.get(keyword)
    if isinstance(value, dict):
        return Rest(is_allowed=True, schema=node.node(value))
    return Rest(is_allowed=value is not False, schema=None)


def unevaluated(node: Node, keyword: str) -> Node | None:
    """The schema of members that no other keyword has looked at."""
    return node.child(keyword) if node.draft.is_modern else None


def is_open(rest: Rest, left_over: Node | None) -> bool:
    """Whether members that are not named may be anything."""
    if not rest.is_allowed or rest.schema is not None:
        return False
    return left_over is None or left_over.kind is NodeType.ANYTHING


def covering(rest: Rest, left_over: Node | None) -> Node | None:
    """The schema that members which are not named must meet, if there is one."""
    if rest.schema is not None or not rest.is_allowed:
        return rest.schema
    if left_over is None or left_over.kind in (NodeType.NOTHING, NodeType.ANYTHING):
        return None
    return left_over


def compare_rest(old: Rest, new: Rest, keyword: str, stem: str) -> Comparison:
    """How the keyword for members that are not named changed."""
    if old.is_allowed is not new.is_allowed:
        return (difference_at(f"{stem}_{'ADDED' if new.is_allowed else 'REMOVED'}", keyword),)
    if old.schema is None and new.schema is not None:
        return (difference_at(f"{stem}_NARROWED", keyword),)
    if old.schema is not None and new.schema is None:
        return (difference_at(f"{stem}_EXTENDED", keyword),)
    return (yield from compared(old.schema, new.schema, keyword))


def compare_unevaluated(old: Node, new: Node, keyword: str, stem: str) -> Comparison:
    """How the keyword for members that nothing has looked at changed."""
    before, after = unevaluated(old, keyword), unevaluated(new, keyword)
    if before is None and after is None:
        return ()
    change = _unevaluated_change(before, after)
    if change:
        return (difference_at(f"{stem}_{change}", keyword),)
    return (yield from compared(before, after, keyword))


def _unevaluated_change(before: Node | None, after: Node | None) -> str:
    """The change as a word; empty if the two schemas have to be compared."""
    if _is(before, NodeType.NOTHING) is not _is(after, NodeType.NOTHING):
        return "ADDED" if _is(before, NodeType.NOTHING) else "REMOVED"
    if before is None:
        return "NARROWED"
    if after is None:
        return "EXTENDED"
    if _is(before, NodeType.ANYTHING) is not _is(after, NodeType.ANYTHING):
        return "NARROWED" if _is(before, NodeType.ANYTHING) else "EXTENDED"
    return ""


def _is(node: Node | None, kind: NodeType) -> bool:
    return node is not None and node.kind is kind
