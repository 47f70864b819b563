"""How few bytes a value may take, and which types contain themselves."""

from typing import Final

from penstock.schemas.avro.tree import AvroType, Fixed, Node, Record, Union

_BYTES: Final = {AvroType.NULL: 0, AvroType.FLOAT: 4, AvroType.DOUBLE: 8}


def bytes_min(node: Node) -> int:
    """The least bytes a value takes; a record within itself counts nothing the second time."""
    return _bytes_min(node, {})


def _bytes_min(node: Node, known: dict[int, int]) -> int:
    if isinstance(node, Record):
        if id(node) not in known:
            known[id(node)] = 0
            known[id(node)] = sum(_bytes_min(field.type, known) for field in node.fields)
        return known[id(node)]
    if isinstance(node, Union):
        return 1 + min((_bytes_min(branch, known) for branch in node.branches), default=0)
    if isinstance(node, Fixed):
        return node.size
    return _BYTES.get(node.kind, 1)


def self_containing(root: Node) -> frozenset[int]:
    """The ids of all records that may be within themselves, and so nest without end."""
    nodes: dict[int, Node] = {id(root): root}
    waiting = [root]
    while waiting:
        for part in waiting.pop().parts:
            if id(part) not in nodes:
                nodes[id(part)] = part
                waiting.append(part)
    left = {key: {id(part) for part in node.parts} for key, node in nodes.items()}
    is_settled = False
    while not is_settled:  # what leads to nothing that is left is in no circle
        gone = {key for key, parts in left.items() if not parts & left.keys()}
        is_settled = not gone
        for key in gone:
            del left[key]
    return frozenset(
        key for key in left if isinstance(nodes[key], Record) and _leads_back(key, left)
    )


def _leads_back(start: int, parts: dict[int, set[int]]) -> bool:
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        for part in parts[waiting.pop()] & parts.keys():
            if part == start:
                return True
            if part not in seen:
                seen.add(part)
                waiting.append(part)
    return False
