"""Instructions that step over values nobody wants, whatever their type, recursive ones as well.

What is stepped over is looked at all the same: whether an event is wrong does not depend on which
of its fields a reader wants, texts and decimals aside, which would have to be read for that.
"""

from typing import Final

from penstock.columns.avro import program as ops
from penstock.columns.avro.program import NO_SLOT, Assembler, Wrong
from penstock.schemas.avro.sizes import bytes_min, self_containing
from penstock.schemas.avro.tree import Array, Enum, Fixed, Kind, Map, Node, Record, Union

_BYTES: Final = {
    Kind.NULL: 0,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
}
_RANGES: Final = {Kind.INT: (-(2**31), 2**31 - 1), Kind.LONG: (-(2**63), 2**63 - 1)}
_SIZED: Final = (Kind.STRING, Kind.BYTES)


class Skipping:
    """Puts such instructions. A record that may be in itself is a subroutine, whose calls count as
    levels; one met a second time is one too, so that diamonds are not written out."""

    def __init__(self, assembler: Assembler, writer: Node) -> None:
        self._asm = assembler
        self._endless = self_containing(writer)
        self._met: set[int] = set()
        self._calls: dict[int, tuple[Record, list[int]]] = {}  # places to patch, by id of record

    def put(self, node: Node) -> None:
        """Step over one value."""
        if isinstance(node, Record):
            self._put_record(node)
        elif isinstance(node, Union):
            self._put_union(node)
        elif isinstance(node, Array):
            self._put_items((node.items,), bytes_min(node.items))
        elif isinstance(node, Map):
            self._put_map(node)
        elif isinstance(node, Fixed):
            self._put_plain(node.size)
        elif node.kind in _BYTES:
            self._put_plain(_BYTES[node.kind])
        elif node.kind in _SIZED:
            self._asm.put(ops.SKIP_SIZED)
        elif node.kind is Kind.BOOLEAN:
            self._asm.put(ops.SKIP_FIXED, NO_SLOT, 1, 1)
        elif isinstance(node, Enum):
            self._asm.put(ops.SKIP_VARINT, NO_SLOT, 0, len(node.symbols) - 1, Wrong.ENUM)
        else:
            self._asm.put(ops.SKIP_VARINT, NO_SLOT, *_RANGES[node.kind], Wrong.INT_RANGE)

    def put_subroutines(self) -> None:
        """The bodies of all calls, after the program's end."""
        placed: dict[int, int] = {}
        while len(placed) < len(self._calls):
            for key, (record, _) in list(self._calls.items()):
                if key not in placed:
                    placed[key] = self._asm.here
                    for field in record.fields:
                        self.put(field.type)
                    self._asm.put(ops.RETURN, NO_SLOT, int(key in self._endless))
        for key, (_, places) in self._calls.items():
            for place in places:
                self._asm.patch(place, ops.A, placed[key])

    def _put_record(self, record: Record) -> None:
        key = id(record)
        if key in self._met or key in self._endless:
            _, places = self._calls.setdefault(key, (record, []))
            places.append(self._asm.put(ops.CALL, NO_SLOT, 0, int(key in self._endless)))
            return
        self._met.add(key)
        for field in record.fields:
            self.put(field.type)

    def _put_union(self, union: Union) -> None:
        first = len(self._asm.jumps)
        self._asm.jumps += [0] * len(union.branches)
        self._asm.put(ops.UNION, NO_SLOT, first, len(union.branches))
        exits = []
        for index, branch in enumerate(union.branches):
            self._asm.jumps[first + index] = self._asm.here
            self.put(branch)
            exits.append(self._asm.put(ops.JUMP))
        for place in exits:
            self._asm.patch(place, ops.A, self._asm.here)

    def _put_map(self, node: Map) -> None:
        self._put_items((None, node.values), 1 + bytes_min(node.values))

    def _put_items(self, parts: tuple[Node | None, ...], item_bytes_min: int) -> None:
        begin = self._asm.put(ops.LIST_BEGIN)
        for part in parts:
            if part is None:  # a map's key
                self._asm.put(ops.SKIP_SIZED)
            else:
                self.put(part)
        end = self._asm.put(ops.LIST_NEXT, NO_SLOT, begin + 1, item_bytes_min)
        self._asm.patch(begin, ops.A, end)

    def _put_plain(self, size: int) -> None:
        if size:
            self._asm.put(ops.SKIP_FIXED, NO_SLOT, size)
