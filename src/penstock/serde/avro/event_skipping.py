"""Steps over Avro values, one function per type: finds their end, by the rules of the kernels.

Numbers, lengths, branches and counts are looked at; texts and decimals are not, as no reader wants
them. Each function takes the payload, a position and the budget, and returns the position after.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.serde.avro.limits import EVENT_BYTES_MAX, ITEMS_MAX
from penstock.serde.avro.sizes import bytes_min, self_containing
from penstock.serde.avro.varints import Budget, UnreadableError, read_count, read_size, read_varint

Skip: TypeAlias = Callable[[bytes, int, Budget], int]
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_PLAIN_BYTES: Final = {AvroType.NULL: 0, AvroType.FLOAT: 4, AvroType.DOUBLE: 8}


class Skips:
    """Makes the functions for one writer's schema, one for each record however often it is used."""

    def __init__(self, root: Node) -> None:
        self._endless = self_containing(root)
        self._records: dict[int, Skip] = {}

    def skip(self, node: Node) -> Skip:
        """Steps over one value."""
        if isinstance(node, Record):
            return self._record(node)
        if isinstance(node, Union):
            return _union([self.skip(branch) for branch in node.branches])
        if isinstance(node, Array):
            return _items(self.skip(node.items), bytes_min(node.items))
        if isinstance(node, Map):
            return _items(_entry(self.skip(node.values)), 1 + bytes_min(node.values))
        if isinstance(node, Enum):
            return _enum(len(node.symbols))
        if isinstance(node, Fixed):
            return _plain(node.size)
        return _LEAVES.get(node.kind) or _plain(_PLAIN_BYTES[node.kind])

    def whole(self, root: Node) -> Skip:
        """Steps over an event: levels begin below the fields of its record."""
        if isinstance(root, Record):
            return _record([self.skip(field.type) for field in root.fields])
        return self.skip(root)

    def is_endless(self, record: Record) -> bool:
        """Whether the record may contain itself: then it counts as a level."""
        return id(record) in self._endless

    def _record(self, record: Record) -> Skip:
        known = self._records.get(id(record))
        if known is not None:
            return known
        fields: list[Skip] = []
        step = _levelled(fields) if self.is_endless(record) else _record(fields)
        self._records[id(record)] = step
        fields += [self.skip(field.type) for field in record.fields]
        return step


class WriteLimits:
    """Whether events of one schema are within what will be read again."""

    def __init__(self, root: Node) -> None:
        self._skip = Skips(root).whole(root)
        self.may_be_small: bool = bool(self_containing(root)) or _has_weightless_items(root)

    def exceeded_by(self, payload: bytes) -> UnreadableError | None:
        """The limit that a payload, just written, is beyond; looks inside only if it may be."""
        if len(payload) > EVENT_BYTES_MAX:
            detail = f"{len(payload)} bytes, and an event has {EVENT_BYTES_MAX} at most"
            return UnreadableError("TOO_LARGE", detail, 0)
        if len(payload) <= ITEMS_MAX and not self.may_be_small:
            return None  # items take a byte each
        try:
            self._skip(payload, 0, Budget())
        except UnreadableError as wrong:
            return wrong
        return None


def _has_weightless_items(root: Node) -> bool:
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Array) and not bytes_min(node.items):
            return True
        waiting += node.parts
    return False


def _plain(size: int) -> Skip:
    def skip(payload: bytes, at: int, _: Budget) -> int:
        if at + size > len(payload):
            raise IndexError
        return at + size

    return skip


def _long(payload: bytes, at: int, _: Budget) -> int:
    return at + 1 if payload[at] < 0x80 else read_varint(payload, at)[1]


def _int(payload: bytes, at: int, _: Budget) -> int:
    if payload[at] < 0x80:
        return at + 1
    number, after = read_varint(payload, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise UnreadableError("INT_RANGE", "an int of more than 32 bits", at)
    return after


def _boolean(payload: bytes, at: int, _: Budget) -> int:
    if payload[at] > 1:
        raise UnreadableError("BOOLEAN", "a boolean that is neither 0 nor 1", at)
    return at + 1


def _sized(payload: bytes, at: int, _: Budget) -> int:
    return read_size(payload, at)[1]


def _enum(count: int) -> Skip:
    def skip(payload: bytes, at: int, _: Budget) -> int:
        index, after = read_varint(payload, at)
        if not 0 <= index < count:
            raise UnreadableError("ENUM", f"an enum has no symbol {index}", at)
        return after

    return skip


def _union(branches: list[Skip]) -> Skip:
    count = len(branches)

    def skip(payload: bytes, at: int, budget: Budget) -> int:
        index, after = read_varint(payload, at)
        if not 0 <= index < count:
            raise UnreadableError("UNION", f"a union has no branch {index}", at)
        return branches[index](payload, after, budget)

    return skip


def _record(fields: list[Skip]) -> Skip:
    def skip(payload: bytes, at: int, budget: Budget) -> int:
        for field in fields:
            at = field(payload, at, budget)
        return at

    return skip


def _levelled(fields: list[Skip]) -> Skip:
    inner = _record(fields)

    def skip(payload: bytes, at: int, budget: Budget) -> int:
        budget.enter(at)
        at = inner(payload, at, budget)
        budget.levels += 1
        return at

    return skip


def _entry(value: Skip) -> Skip:
    return lambda payload, at, budget: value(payload, read_size(payload, at)[1], budget)


def _items(item: Skip, item_bytes_min: int) -> Skip:
    def skip(payload: bytes, at: int, budget: Budget) -> int:
        budget.enter(at)
        while True:
            count, at = read_count(payload, at, item_bytes_min, budget)
            if not count:
                budget.levels += 1
                return at
            for _ in range(count):
                at = item(payload, at, budget)

    return skip


_LEAVES: Final[dict[AvroType, Skip]] = {
    AvroType.BOOLEAN: _boolean,
    AvroType.INT: _int,
    AvroType.LONG: _long,
    AvroType.BYTES: _sized,
    AvroType.STRING: _sized,
}
