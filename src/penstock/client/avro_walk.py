"""Stands between payloads and fastavro, whose compiled reader trusts what it reads.

It lets numbers of more than 64 bits wrap around, ints of more than 32 pass, any byte be a boolean
and decimals lose digits. It follows crafted payloads of recursive types until the C stack ends, and
makes a billion items of an array of what takes no bytes. So each payload is walked once before,
by the rules and limits of the kernels in `columns.avro`, and what gets past here is sound: text
alone is left for fastavro to look at.

A schema becomes functions that step over its values: each takes the payload, a position and the
walk's budget, and returns the position after. Reading beyond the end is an IndexError or an
Unsound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.client.errors import Reason
from penstock.client.frame import BadFrame
from penstock.schemas.avro.logical import logical_type
from penstock.schemas.avro.tree import Array, Enum, Fixed, Kind, Map, Node, Record, Union

NESTING_MAX: Final = 200
ITEMS_MAX: Final = 1 << 20  # of all arrays and maps of a payload, as the kernels' limit
_INT_MIN: Final = -(2**31)
_INT_MAX: Final = 2**31 - 1
_VARINT_BYTES_MAX: Final = 10
_BITS: Final = 64
_PLAIN_BYTES: Final = {Kind.NULL: 0, Kind.FLOAT: 4, Kind.DOUBLE: 8}


class Unsound(BadFrame):
    """What is wrong, with its name among the kernels' (`columns.avro.program.Wrong`)."""

    def __init__(self, name: str, detail: str, position: int) -> None:
        super().__init__(Reason.UNDECODABLE, detail, position)
        self.name = name


@dataclass(slots=True)
class _Budget:
    items: int = ITEMS_MAX
    levels: int = NESTING_MAX


Step: TypeAlias = Callable[[bytes, int, _Budget], int]


class Walk:
    """The walk over payloads of one schema."""

    def __init__(self, root: Node) -> None:
        self._step = _Steps().step(root)

    def check(self, payload: bytes) -> None:
        """Raises Unsound. Bytes after the value are not looked at."""
        try:
            end = self._step(payload, 0, _Budget())
        except IndexError:
            end = len(payload) + 1
        if end > len(payload):
            raise Unsound("TRUNCATED", "ends too soon", len(payload))


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of up to 64 bits, and the position after it."""
    byte = payload[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for place in range(1, _VARINT_BYTES_MAX):
        byte = payload[at + place]
        raw |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if raw >> _BITS:
                break
            return (raw >> 1) ^ -(raw & 1), at + place + 1
    raise Unsound("VARINT", "a number of more than 64 bits", at)


def _long(payload: bytes, at: int, _: _Budget) -> int:
    return at + 1 if payload[at] < 0x80 else _varint(payload, at)[1]


def _int(payload: bytes, at: int, _: _Budget) -> int:
    if payload[at] < 0x80:
        return at + 1
    number, after = _varint(payload, at)
    if not _INT_MIN <= number <= _INT_MAX:
        raise Unsound("INT_RANGE", "an int of more than 32 bits", at)
    return after


def _boolean(payload: bytes, at: int, _: _Budget) -> int:
    if payload[at] > 1:
        raise Unsound("BOOLEAN", "a boolean that is neither 0 nor 1", at)
    return at + 1


def _sized(payload: bytes, at: int, _: _Budget) -> int:
    byte = payload[at]
    if byte < 0x80 and not byte & 1:  # nearly all
        size, after = byte >> 1, at + 1
    else:
        size, after = _varint(payload, at)
    if size < 0:
        raise Unsound("LENGTH", f"a length of {size}", at)
    if size > len(payload) - after:
        raise Unsound("TRUNCATED", f"a length of {size}, beyond the end", at)
    return after + size


def _plain(size: int) -> Step:
    return lambda _payload, at, _budget: at + size


def _decimal(inner: Step, precision: int) -> Step:
    end = 10**precision

    def step(payload: bytes, at: int, budget: _Budget) -> int:
        after = inner(payload, at, budget)
        start = at if inner is not _sized else _varint(payload, at)[1]
        if not -end < int.from_bytes(payload[start:after], "big", signed=True) < end:
            raise Unsound("DECIMAL_RANGE", f"a decimal of more than {precision} digits", at)
        return after

    return step


def _enum(count: int) -> Step:
    def step(payload: bytes, at: int, _: _Budget) -> int:
        index, after = _varint(payload, at)
        if not 0 <= index < count:
            raise Unsound("ENUM", f"an enum has no symbol {index}", at)
        return after

    return step


def _union(branches: list[Step]) -> Step:
    count = len(branches)

    def step(payload: bytes, at: int, budget: _Budget) -> int:
        index, after = _varint(payload, at)
        if not 0 <= index < count:
            raise Unsound("UNION", f"a union has no branch {index}", at)
        return branches[index](payload, after, budget)

    return step


def _record(fields: list[Step]) -> Step:
    def step(payload: bytes, at: int, budget: _Budget) -> int:
        _enter(budget, at)
        for field in fields:
            at = field(payload, at, budget)
        budget.levels += 1
        return at

    return step


def _entry(value: Step) -> Step:
    return lambda payload, at, budget: value(payload, _sized(payload, at, budget), budget)


def _items(item: Step, *, is_weightless: bool) -> Step:
    def step(payload: bytes, at: int, budget: _Budget) -> int:
        _enter(budget, at)
        while True:
            start = at
            count, at = _varint(payload, at)
            if count == 0:
                budget.levels += 1
                return at
            if count < 0:  # a block that says how large it is
                count = -count
                _, at = _varint(payload, at)
            budget.items -= count
            if budget.items < 0:
                raise Unsound("ITEMS", f"more than {ITEMS_MAX} items", start)
            if not is_weightless:
                if count > len(payload) - at:  # each takes a byte
                    raise Unsound("TRUNCATED", f"{count} items, beyond the end", start)
                for _ in range(count):
                    at = item(payload, at, budget)

    return step


def _enter(budget: _Budget, at: int) -> None:
    budget.levels -= 1
    if budget.levels < 0:
        raise Unsound("NESTING", f"values are nested more than {NESTING_MAX} deep", at)


class _Steps:
    """Makes the functions, one for each record however often it is used."""

    def __init__(self) -> None:
        self._records: dict[int, Step] = {}

    def step(self, node: Node) -> Step:
        match node:
            case Record():
                return self._record(node)
            case Union():
                return _union([self.step(branch) for branch in node.branches])
            case Array():
                item = self.step(node.items)
                return _items(item, is_weightless=_is_weightless(node.items, ()))
            case Map():
                return _items(_entry(self.step(node.values)), is_weightless=False)
            case _:
                return _leaf(node)

    def _record(self, record: Record) -> Step:
        known = self._records.get(id(record))
        if known is not None:
            return known
        fields: list[Step] = []
        step = self._records[id(record)] = _record(fields)
        fields += [self.step(field.type) for field in record.fields]
        return step


def _leaf(node: Node) -> Step:
    logical = logical_type(node)
    if isinstance(node, Enum):
        return _enum(len(node.symbols))
    if isinstance(node, Fixed):
        step = _plain(node.size)
    else:
        step = _LEAVES.get(node.kind) or _plain(_PLAIN_BYTES[node.kind])
    if logical is not None and logical.name == "decimal":
        return _decimal(step, logical.precision)
    return step


_LEAVES: Final[dict[Kind, Step]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _int,
    Kind.LONG: _long,
    Kind.BYTES: _sized,
    Kind.STRING: _sized,
}


def _is_weightless(node: Node, above: tuple[Node, ...]) -> bool:
    """Whether a value may take no bytes."""
    match node:
        case Record():
            if any(node is one for one in above):
                return True
            return all(_is_weightless(field.type, (*above, node)) for field in node.fields)
        case Fixed():
            return node.size == 0
        case _:
            return node.kind is Kind.NULL
