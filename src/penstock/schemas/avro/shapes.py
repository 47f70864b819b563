"""Shapes: digests of what matters for reading. Nodes of equal shapes can read each other's data.

Documentation, properties, order and the values of defaults are not part of a shape. A node that
refers back to an enclosing record has no shape (None): its meaning depends on where it is used.
Nor has a record with a field whose alias is the name of another field: it cannot even be compared
with itself. A shape is stored in its node, so a node that many schemas share is visited once. Nodes
without a shape are visited wherever they are used; if that happens too often, the rest of the
schema gets no shapes and is compared node by node.
"""

from contextlib import suppress
from hashlib import blake2b
from typing import Final

from penstock.schemas.avro.tree import (
    NESTING_MAX,
    Array,
    Enum,
    Fixed,
    Map,
    Named,
    Node,
    Primitive,
    Record,
    Union,
)
from penstock.schemas.model import InvalidSchemaError

_DIGEST_BYTES: Final = 16
_OUTSIDE: Final = 1 << 30  # no reference to an enclosing record
_FIELDS_AGAIN_MAX: Final = 10_000  # visited again, in records without a shape


def find_shapes(root: Node) -> None:
    """Set the shapes of all nodes that have one, except primitives."""
    with suppress(_TooManyVisitsError):
        _Shaper().shape(root, 0)


def check_depth(root: Node) -> None:
    """Refuse a schema whose types lead deeper than recursive functions can follow."""
    seen: set[int] = set()
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > NESTING_MAX:
            raise InvalidSchemaError(f"types lead to types more than {NESTING_MAX} levels deep")
        if id(node) not in seen:
            seen.add(id(node))
            # Last in, first out: the order of the recursive functions, so the depth is the same.
            waiting += [(part, depth + 1) for part in reversed(node.parts)]


class _TooManyVisitsError(Exception):
    """Records without a shape are used in too many places."""


class _Shaper:
    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # depths of the enclosing records, by id
        self._seen: set[int] = set()
        self._fields_again = 0

    def shape(self, node: Node, depth: int) -> tuple[str, int]:
        """The shape, and the depth of the outermost enclosing record that it refers to."""
        if node.shape is not None:
            return node.shape, _OUTSIDE
        if isinstance(node, Primitive):
            return node.kind, _OUTSIDE
        if isinstance(node, Named):
            return self._shape_named(node, depth)
        if isinstance(node, Union):
            shapes, low = [], _OUTSIDE
            for branch in node.branches:
                shape, branch_low = self.shape(branch, depth)
                shapes.append(shape)
                low = min(low, branch_low)
            return self._stored(node, f"[{','.join(shapes)}]", low)
        assert isinstance(node, Array | Map)
        inner, low = self.shape(node.items if isinstance(node, Array) else node.values, depth)
        return self._stored(node, f"{node.kind}<{inner}>", low)

    def _shape_named(self, node: Named, depth: int) -> tuple[str, int]:
        key = id(node)
        if key in self._open:
            return f"back {node.full_name}", self._open[key]
        head = f"{node.kind} {node.full_name} {node.alias_names if node.aliases else ''}"
        if isinstance(node, Enum):
            return self._digested(node, [head, *node.symbols, f"={node.default}"], _OUTSIDE)
        if isinstance(node, Fixed):
            return self._digested(node, [head, str(node.size)], _OUTSIDE)
        assert isinstance(node, Record)
        if key in self._seen:
            self._fields_again += 1 + len(node.fields)
            if self._fields_again > _FIELDS_AGAIN_MAX:
                raise _TooManyVisitsError
        self._seen.add(key)
        self._open[key] = depth
        low = _OUTSIDE
        parts = [head]
        for field in node.fields:
            inner, inner_low = self.shape(field.type, depth + 1)
            aliases = field.aliases or ""
            parts.append(f"{field.name} {'=' if field.has_default else ''}{aliases}:{inner}")
            if inner_low < low:
                low = inner_low
        del self._open[key]
        if low == depth:
            low = _OUTSIDE
        return self._digested(node, parts, -1 if _is_ambiguous(node) else low)

    def _digested(self, node: Node, parts: list[str], low: int) -> tuple[str, int]:
        # Aliases are printed with escapes, so no name contains the separator.
        text = "\n".join(parts).encode(errors="surrogatepass")
        return self._stored(node, blake2b(text, digest_size=_DIGEST_BYTES).hexdigest(), low)

    def _stored(self, node: Node, shape: str, low: int) -> tuple[str, int]:
        if low == _OUTSIDE:
            node.shape = shape
        return shape, low


def _is_ambiguous(record: Record) -> bool:
    return any(
        alias in record.by_name
        for field in record.fields
        if field.aliases
        for alias in field.aliases
    )
