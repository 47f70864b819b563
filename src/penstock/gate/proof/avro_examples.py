"""Events of an Avro schema: a simple event, and variants that differ from it in one value each.

Together they cover every branch of every union and every symbol of every enum, as deep as the
limits allow. A recursive schema ends with its smallest values. Values are as fastavro writes them;
the value of a union is a pair of branch name and value.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Any, Final, NamedTuple

from penstock.gate.proof.prove import UnprovableError
from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.schemas.avro.types import LogicalType, logical_type

DEPTH_MAX: Final = 5  # nested records; deeper values are the smallest ones
SIZE_MAX: Final = 20_000  # values in an event
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord")
_LOGICAL: Final[Mapping[str, Any]] = {
    "date": 20_454,
    "time-millis": 43_200_000,
    "time-micros": 43_200_000_000,
    "timestamp-millis": 1_767_225_600_000,
    "timestamp-micros": 1_767_225_600_000_000,
    "timestamp-nanos": 1_767_225_600_000_000_000,
    "local-timestamp-millis": 1_767_225_600_000,
    "local-timestamp-micros": 1_767_225_600_000_000,
    "local-timestamp-nanos": 1_767_225_600_000_000_000,
}
_UUID: Final = "6f1d7a40-0c1e-4d6f-9a3b-5f1c2d3e4f50"


class RouteStep(NamedTuple):
    """One step of a path in an event."""

    kind: str
    name: str = ""
    branch_index: int = 0

    @classmethod
    def field(cls, name: str) -> "RouteStep":
        """Into a field of a record."""
        return cls("field", name=name)

    @classmethod
    def branch(cls, index: int) -> "RouteStep":
        """Into a branch of a union."""
        return cls("branch", branch_index=index)

    @classmethod
    def items(cls) -> "RouteStep":
        """Into the items of an array or the values of a map."""
        return cls("items")


class AvroExamples:
    """Generates events of one schema. Equal seeds give equal events."""

    def __init__(self, root: Node, seed: int) -> None:
        self._root = root
        self._random = Random(seed)
        self._sizes = _smallest_sizes(root)
        if self._is_endless(root):
            raise UnprovableError("every event of the schema is infinite or very large")
        self._left = 0  # values that the current event may still get
        self._simple: dict[tuple[int, int], Any] = {}

    def all_kinds(self) -> Iterator[Any]:
        """The simple event first."""
        return self._kinds(self._root, 0)

    def along(self, route: tuple[RouteStep, ...]) -> Iterator[Any]:
        """Simple events, with every possible value at the end of one route."""
        return self._along(self._root, route, 0)

    def _along(self, node: Node, route: tuple[RouteStep, ...], depth: int) -> Iterator[Any]:
        if not route or self._is_endless(node):
            yield from self._kinds(node, depth)
            return
        step, rest = route[0], route[1:]
        if isinstance(node, Record) and step.kind == "field":
            simple = self._simple_value(node, depth)
            for value in self._along(node.by_name[step.name].type, rest, depth + 1):
                yield {**simple, step.name: value}
        elif isinstance(node, Union) and step.kind == "branch":
            branch = node.branches[step.branch_index]
            for value in self._along(branch, rest, depth):
                yield (branch.full_name, value)
        elif isinstance(node, Union):
            for index in range(len(node.branches)):
                yield from self._along(node, (RouteStep.branch(index), *route), depth)
        elif isinstance(node, Array) and step.kind == "items":
            yield from ([value] for value in self._along(node.items, rest, depth + 1))
        elif isinstance(node, Map) and step.kind == "items":
            yield from ({"key": value} for value in self._along(node.values, rest, depth + 1))

    def _kinds(self, node: Node, depth: int) -> Iterator[Any]:
        if self._is_endless(node):
            return
        if depth > DEPTH_MAX:
            yield self._simple_value(node, depth)
        elif isinstance(node, Record):
            simple = self._simple_value(node, depth)
            yield simple
            for field in node.fields:
                for value in islice(self._kinds(field.type, depth + 1), 1, None):
                    yield {**simple, field.name: value}
        elif isinstance(node, Union):
            for branch in sorted(node.branches, key=lambda branch: branch.kind is AvroType.NULL):
                yield from ((branch.full_name, value) for value in self._kinds(branch, depth))
        elif isinstance(node, Array):
            yield from ([value] for value in self._kinds(node.items, depth + 1))
            yield []
        elif isinstance(node, Map):
            yield from ({"key": value} for value in self._kinds(node.values, depth + 1))
            yield {}
        else:
            yield from self._scalars(node)

    def _simple_value(self, node: Node, depth: int) -> Any:
        """The simple value of a type; the same each time."""
        key = (id(node), depth)
        if key not in self._simple:
            self._left = SIZE_MAX
            self._simple[key] = self._made(node, depth)
        return self._simple[key]

    def _made(self, node: Node, depth: int) -> Any:
        self._left -= 1
        is_small = depth > DEPTH_MAX or self._left <= 0
        if self._left < -SIZE_MAX:
            raise UnprovableError("every event of the schema is very large")
        if isinstance(node, Record):
            return {field.name: self._made(field.type, depth + 1) for field in node.fields}
        if isinstance(node, Union):
            branch = self._branch(node, is_small=is_small)
            return (branch.full_name, self._made(branch, depth))
        if isinstance(node, Array):
            inner = node.items
            return [] if is_small or self._is_endless(inner) else [self._made(inner, depth + 1)]
        if isinstance(node, Map):
            inner = node.values
            is_empty = is_small or self._is_endless(inner)
            return {} if is_empty else {"key": self._made(inner, depth + 1)}
        return self._scalars(node)[0]

    def _branch(self, node: Union, *, is_small: bool) -> Node:
        if not is_small:
            for branch in node.branches:
                if branch.kind is not AvroType.NULL and not self._is_endless(branch):
                    return branch
        return min(node.branches, key=lambda branch: self._sizes[id(branch)])

    def _is_endless(self, node: Node) -> bool:
        return self._sizes[id(node)] > SIZE_MAX

    def _scalars(self, node: Node) -> list[Any]:
        """All values worth trying, the simplest first."""
        logical = logical_type(node)
        if logical is not None and logical.name in _LOGICAL:
            return [_LOGICAL[logical.name]]
        if logical is not None and logical.name == "uuid" and node.kind is AvroType.STRING:
            return [_UUID]
        if logical is not None and logical.name == "decimal":
            return _decimals(node, logical)
        if isinstance(node, Enum):
            return list(node.symbols)
        if isinstance(node, Fixed):
            return [b"\x01" * node.size]
        return self._primitives(node.kind)

    def _primitives(self, kind: AvroType) -> list[Any]:
        number = self._random.randint(1, 99)
        values: dict[AvroType, list[Any]] = {
            AvroType.NULL: [None],
            AvroType.BOOLEAN: [True, False],
            AvroType.INT: [number, -(2**31)],
            AvroType.LONG: [2**40 + number, -(2**63)],
            AvroType.FLOAT: [1.5],
            AvroType.DOUBLE: [2.25, 1e300],
            AvroType.BYTES: [b"ab", b"\xff"],
            AvroType.STRING: [self._random.choice(_WORDS), ""],
        }
        return values[kind]


def _decimals(node: Node, decimal: LogicalType) -> list[bytes]:
    """A small number and the largest, neither ending in a zero."""
    numbers = [int("123456789"[: min(decimal.precision, 9)]), 10**decimal.precision - 1]
    sizes = [number.bit_length() // 8 + 1 for number in numbers]
    if isinstance(node, Fixed):
        sizes = [node.size, node.size]
    return [number.to_bytes(size, "big") for number, size in zip(numbers, sizes, strict=True)]


def all_nodes(root: Node) -> Iterator[Node]:
    """Every node of a schema, once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += node.parts


def _smallest_sizes(root: Node) -> dict[int, int]:
    """The number of values in the smallest event of each node; above SIZE_MAX if infinite."""
    nodes = {id(node): node for node in all_nodes(root)}
    sizes = dict.fromkeys(nodes, SIZE_MAX + 1)
    is_stable = False
    while not is_stable:
        is_stable = True
        for key, node in reversed(nodes.items()):
            size = min(_size(node, sizes), SIZE_MAX + 1)
            if size != sizes[key]:
                sizes[key], is_stable = size, False
    return sizes


def _size(node: Node, sizes: dict[int, int]) -> int:
    if isinstance(node, Record):
        return 1 + sum(sizes[id(field.type)] for field in node.fields)
    if isinstance(node, Union):
        return 1 + min((sizes[id(branch)] for branch in node.branches), default=SIZE_MAX)
    return SIZE_MAX + 1 if isinstance(node, Enum) and not node.symbols else 1
