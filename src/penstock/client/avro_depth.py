"""Stands between crafted Avro payloads and fastavro, whose compiled reader trusts what it reads.

Two kinds of schemas let a few bytes ask for everything: recursive ones, where each byte may open
another level until the C stack ends; and arrays of what takes no bytes, where a count alone makes
a billion items. Payloads of such schemas are walked once, with limits, before they are decoded.
In all other schemas each level and each item costs the payload a byte. Those whose ints nobody can
find again in what was read are walked too: an int of more than 32 bits is none.
"""

from typing import Final

from penstock.client.avro_ranges import INT_MAX, INT_MIN, hides_ints
from penstock.client.errors import Reason
from penstock.client.frame import BadFrame
from penstock.schemas.avro.tree import Array, Fixed, Kind, Map, Node, Record, Union

NESTING_MAX: Final = 200
NOTHINGS_MAX: Final = 1 << 16  # items that take no bytes, in one payload
_VARINT_BYTES_MAX: Final = 10


def needs_walk(root: Node) -> bool:
    """Whether payloads of this schema can ask for more than they weigh, or hide rotten ints."""
    return _finds_danger(root, ()) or hides_ints(root)


def _finds_danger(node: Node, above: tuple[Node, ...]) -> bool:
    if any(node is one for one in above):
        return True
    match node:
        case Record():
            inside = (*above, node)
            return any(_finds_danger(field.type, inside) for field in node.fields)
        case Union():
            return any(_finds_danger(branch, above) for branch in node.branches)
        case Array():
            return _is_weightless(node.items) or _finds_danger(node.items, above)
        case Map():
            return _finds_danger(node.values, above)
        case _:
            return False


def _is_weightless(node: Node) -> bool:
    """Whether a value may take no bytes. A record that is recursive was found out before."""
    match node:
        case Record():
            return all(_is_weightless(field.type) for field in node.fields)
        case Fixed():
            return node.size == 0
        case _:
            return node.kind is Kind.NULL


def check_depth(root: Node, payload: bytes) -> None:
    """Walk a payload; raises BadFrame if it ends too soon or goes beyond the limits."""
    _Walk(payload).step_over(root, 0)


class _Walk:
    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 0
        self._nothings_left = NOTHINGS_MAX

    def step_over(self, node: Node, depth: int) -> None:
        if depth > NESTING_MAX:
            raise self._wrong(f"values are nested more than {NESTING_MAX} deep")
        match node:
            case Record():
                for field in node.fields:
                    self.step_over(field.type, depth + 1)
            case Union():
                index = self._varint()
                if not 0 <= index < len(node.branches):
                    raise self._wrong(f"a union has no branch {index}")
                self.step_over(node.branches[index], depth)
            case Array():
                self._items(node.items, depth + 1, has_keys=False)
            case Map():
                self._items(node.values, depth + 1, has_keys=True)
            case Fixed():
                self._jump(node.size)
            case _:
                self._leaf(node.kind)

    def _leaf(self, kind: Kind) -> None:
        match kind:
            case Kind.BOOLEAN:
                self._jump(1)
            case Kind.FLOAT:
                self._jump(4)
            case Kind.DOUBLE:
                self._jump(8)
            case Kind.STRING | Kind.BYTES:
                self._jump(self._varint())
            case Kind.INT:
                if not INT_MIN <= self._varint() <= INT_MAX:
                    raise self._wrong("an int of more than 32 bits")
            case Kind.LONG | Kind.ENUM:
                self._varint()

    def _items(self, item: Node, depth: int, *, has_keys: bool) -> None:
        while count := self._varint():
            if count < 0:  # a block that says how large it is
                count = -count
                self._varint()
            if not has_keys and _is_weightless(item):
                self._nothings_left -= count
                if self._nothings_left < 0:
                    raise self._wrong(f"more than {NOTHINGS_MAX} items that take no bytes")
                continue
            for _ in range(count):
                if has_keys:
                    self._jump(self._varint())
                self.step_over(item, depth)

    def _jump(self, size: int) -> None:
        if not 0 <= size <= len(self._payload) - self._position:
            raise self._wrong(f"a length of {size}, beyond the end")
        self._position += size

    def _varint(self) -> int:
        number = 0
        for place in range(_VARINT_BYTES_MAX):
            if self._position >= len(self._payload):
                raise self._wrong("ends too soon")
            byte = self._payload[self._position]
            self._position += 1
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise self._wrong("a number of too many bytes")

    def _wrong(self, reason: str) -> BadFrame:
        return BadFrame(Reason.UNDECODABLE, reason, self._position)
