"""Digests of what matters for reading: equal digests, and one side reads whatever the other writes.

Documentation, properties, order and the values of defaults are not part of a shape. A node that
refers back to a record around it has no shape of its own (None): what it means depends on where
it stands. Nor has a record with a field whose alias names another field: it cannot even be
compared with itself.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from penstock.schemas.avro.tree import (
    NESTING_MAX,
    Array,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    Named,
    Node,
    Record,
    Union,
)
from penstock.schemas.model import InvalidSchema

Shape = bytes
_DIGEST_BYTES: Final = 16
_PRIMITIVE_SHAPES: Final[Mapping[Kind, Shape]] = {kind: kind.value.encode() for kind in Kind}
_OUTSIDE: Final = 1 << 30  # no reference back


def shapes_of(root: Node) -> dict[int, Shape]:
    """The shapes of all nodes below and including `root` that have one, by id of the node."""
    shaper = _Shaper()
    shaper.shape(root, 0)
    return shaper.shapes


def check_reach(root: Node) -> None:
    """Refuse a schema whose names lead deeper than any walk may go."""
    seen: set[int] = set()
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > NESTING_MAX:
            raise InvalidSchema(f"types lead to types more than {NESTING_MAX} levels deep")
        if id(node) not in seen:
            seen.add(id(node))
            # Last in, first out: the order of every other walk, so the depth is theirs as well.
            waiting += [(part, depth + 1) for part in reversed(_parts(node))]


def _parts(node: Node) -> list[Node]:
    if isinstance(node, Record):
        return [field.type for field in node.fields]
    if isinstance(node, Array):
        return [node.items]
    if isinstance(node, Map):
        return [node.values]
    return node.branches if isinstance(node, Union) else []


class _Shaper:
    def __init__(self) -> None:
        self.shapes: dict[int, Shape] = {}
        self._lows: dict[int, int] = {}  # of records: the outermost record referred back to
        self._open: dict[int, int] = {}  # records around the present node, with their depth

    def shape(self, node: Node, depth: int) -> tuple[Shape, int]:
        """The digest, and the depth of the outermost open record it refers back to."""
        if isinstance(node, Named):
            return self._shape_named(node, depth)
        if isinstance(node, Array):
            inner, low = self.shape(node.items, depth)
            return self._closed(node, (b"array", inner), low)
        if isinstance(node, Map):
            inner, low = self.shape(node.values, depth)
            return self._closed(node, (b"map", inner), low)
        if isinstance(node, Union):
            shaped = [self.shape(branch, depth) for branch in node.branches]
            low = min((low for _, low in shaped), default=_OUTSIDE)
            return self._closed(node, (b"union", *(inner for inner, _ in shaped)), low)
        shape = _PRIMITIVE_SHAPES[node.kind]
        self.shapes[id(node)] = shape
        return shape, _OUTSIDE

    def _shape_named(self, node: Named, depth: int) -> tuple[Shape, int]:
        key = id(node)
        if key in self._open:
            return b"back " + node.full_name.encode(), self._open[key]
        if key in self.shapes:
            return self.shapes[key], _OUTSIDE
        head = "\0".join((node.kind, node.full_name, *node.alias_names)).encode()
        if isinstance(node, Enum):
            symbols = "\0".join(node.symbols).encode()
            return self._closed(node, (head, symbols, str(node.default).encode()), _OUTSIDE)
        if isinstance(node, Fixed):
            return self._closed(node, (head, str(node.size).encode()), _OUTSIDE)
        assert isinstance(node, Record)
        return self._shape_record(node, head, depth)

    def _shape_record(self, node: Record, head: bytes, depth: int) -> tuple[Shape, int]:
        self._open[id(node)] = depth
        low = -1 if _is_ambiguous(node) else _OUTSIDE
        parts = [head]
        for field in node.fields:
            inner, inner_low = self.shape(field.type, depth + 1)
            parts += (_field_head(field), inner)
            low = min(low, inner_low)
        del self._open[id(node)]
        return self._closed(node, tuple(parts), _OUTSIDE if low == depth else low)

    def _closed(self, node: Node, parts: tuple[bytes, ...], low: int) -> tuple[Shape, int]:
        lengths = ",".join([str(len(part)) for part in parts]).encode()
        shape = blake2b(lengths + b";" + b"".join(parts), digest_size=_DIGEST_BYTES).digest()
        if low == _OUTSIDE:
            self.shapes[id(node)] = shape
        return shape, low


def _field_head(field: Field) -> bytes:
    if field.aliases:
        return "\0".join((field.name, str(field.has_default), *field.aliases)).encode()
    return f"{field.name}\0{field.has_default}".encode()


def _is_ambiguous(record: Record) -> bool:
    return any(
        alias in record.by_name
        for field in record.fields
        if field.aliases
        for alias in field.aliases
    )
