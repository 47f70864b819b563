"""The other compiler: a schema -> a program that writes Arrow rows as Avro.

The arrays are of the types that `avro_types` says, with nulls allowed everywhere: a null where the
schema has none is wrong with that row, and the kernel says so.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.client.avro_types import decimal_bytes, values_of
from penstock.columns.arrow_inputs import Input
from penstock.columns.avro import write_program as ops
from penstock.columns.avro.program import CODE_FIELDS, NO_SLOT
from penstock.columns.avro.write_program import MEMBER_FIELDS, EncodeProgram
from penstock.schemas.avro.meaning import (
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)
from penstock.schemas.avro.tree import Array, Enum, Fixed, Kind, Map, Node, Record, Union

_RAW_BYTES: Final = {Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}
_SOURCE, _A, _B = 1, 2, 3  # of an instruction
_WIDTHS: Final = {Kind.INT: 4, Kind.LONG: 8}


def compile_encoder(root: Node) -> tuple[EncodeProgram, tuple[Input, ...]]:
    """The program, and which arrays it reads: one per field of a record, or one for all else."""
    compiler = _Compiler()
    if isinstance(root, Record):
        inputs = tuple(compiler.put(each.type) for each in root.fields)
    else:
        inputs = (compiler.put(root),)
    return compiler.finished(), inputs


@dataclass(slots=True)
class _Compiler:
    code: list[tuple[int, ...]] = field(default_factory=list)
    members: list[tuple[int, int, int]] = field(default_factory=list)
    symbols: list[tuple[int, int]] = field(default_factory=list)
    pool: bytearray = field(default_factory=bytearray)
    inputs: int = 0

    def finished(self) -> EncodeProgram:
        """Everything put so far."""
        self._emit(ops.END)
        return EncodeProgram(
            code=np.array(self.code, dtype=np.int64).reshape(-1, CODE_FIELDS),
            members=np.array(self.members, dtype=np.int64).reshape(-1, MEMBER_FIELDS),
            symbols=np.array(self.symbols, dtype=np.int64).reshape(-1, 2),
            pool=np.frombuffer(bytes(self.pool), dtype=np.uint8),
            inputs=self.inputs,
        )

    def put(self, node: Node) -> Input:
        """Instructions for one value, and the input it is read from."""
        if isinstance(node, Union):
            return self._put_union(node)
        if isinstance(node, Record):
            source = self._input()
            self._emit(ops.REQUIRED, source)
            return Input(source, tuple(self.put(each.type) for each in node.fields))
        if isinstance(node, Array):
            return self._put_list((node.items,))
        if isinstance(node, Map):
            return self._put_list((None, node.values))
        if node.kind is Kind.NULL:
            return Input(NO_SLOT)
        source = self._input()
        self._put_scalar(node, source)
        return Input(source)

    def _input(self) -> int:
        self.inputs += 1
        return self.inputs - 1

    def _emit(self, op: int, source: int = NO_SLOT, *operands: int) -> int:
        self.code.append((op, source, *(*operands, 0, 0, 0, 0)[: CODE_FIELDS - 2]))
        return len(self.code) - 1

    def _patch(self, place: int, operand: int, value: int) -> None:
        row = list(self.code[place])
        row[operand] = value
        self.code[place] = tuple(row)

    def _put_list(self, parts: tuple[Node | None, ...]) -> Input:
        source = self._input()
        begin = self._emit(ops.LIST_BEGIN, source)
        children = []
        for part in parts:
            if part is None:  # a map's key
                key = self._input()
                self._emit(ops.TEXT, key)
                children.append(Input(key))
            else:
                children.append(self.put(part))
        end = self._emit(ops.LIST_NEXT, source, begin + 1)
        self._patch(begin, _A, end)
        return Input(source, tuple(children))

    def _put_union(self, union: Union) -> Input:
        values = values_of(union)
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is Kind.NULL]
        if len(values) > 1:
            return self._put_members(union, values, nulls[0] if nulls else -1)
        if not values:
            source = self._input()
            self._emit(ops.NULLABLE, source, 0, len(self.code) + 1)
            return Input(source)
        if nulls:
            choice = self._emit(ops.NULLABLE, NO_SLOT, nulls[0])
        else:
            choice = self._emit(ops.UNION, NO_SLOT, len(self.members), 1, -1)
            self.members.append((self.inputs, 0, len(self.code)))  # of the input put next
        inner = self.put(values[0])
        self._patch(choice, _SOURCE, inner.slot)
        if nulls:
            self._patch(choice, _B, len(self.code))
        return inner

    def _put_members(self, union: Union, values: list[Node], null: int) -> Input:
        source = self._input()
        first = len(self.members)
        self._emit(ops.UNION, source, first, len(values), null)
        self.members += [(NO_SLOT, 0, 0)] * (len(values) + 1)
        children, exits = [], []
        for index, value in enumerate(values):
            place = len(self.code)
            child = self.put(value)
            exits.append(self._emit(ops.JUMP))
            branch = union.branches.index(value)
            self.members[first + index] = (child.slot, branch, place)
            children.append(child)
        for place in exits:
            self._patch(place, _A, len(self.code))
        self.members[first + len(values)] = (NO_SLOT, null, len(self.code))  # where a null goes
        return Input(source, tuple(children))

    def _put_scalar(self, node: Node, source: int) -> None:
        decimal = decimal_of(node)
        if isinstance(node, Enum):
            first = len(self.symbols)
            for symbol in node.symbols:
                self.symbols.append((len(self.pool), len(symbol.encode())))
                self.pool += symbol.encode()
            self._emit(ops.ENUM, source, first, len(node.symbols))
        elif decimal is not None:
            width = decimal_bytes(decimal.precision)
            if isinstance(node, Fixed):
                self._emit(ops.FIXED_DECIMAL, source, width, node.size)
            else:
                self._emit(ops.DECIMAL, source, width)
        elif isinstance(node, Fixed):
            self._emit(ops.RAW, source, node.size)
        elif is_restricted(node):
            meaning = number_meaning(node, node)
            assert meaning is not None, "a type can read itself"
            width = _WIDTHS[node.kind]
            self._emit(ops.TIME, source, meaning.least, meaning.greatest, width)
        elif is_uuid_text(node):
            self._emit(ops.TEXT, source, 1)
        elif node.kind in _RAW_BYTES:
            self._emit(ops.RAW, source, _RAW_BYTES[node.kind])
        else:
            self._emit(_PLAIN[node.kind], source)


_PLAIN: Final = {
    Kind.INT: ops.INT,
    Kind.LONG: ops.LONG,
    Kind.STRING: ops.TEXT,
    Kind.BYTES: ops.SIZED,
}
