"""The other compiler: a schema -> a program that writes Arrow rows as Avro.

The arrays are of the types that `avro_types` says, with nulls allowed everywhere: a null where the
schema has none is wrong with that row, and the kernel says so.

What callers have, as the arrays an encoding program reads.

Columns come by name, in any order. One that is missing is filled from its field's default; one that
the schema does not have is refused, as is a type that does not convert without loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray
from penstock.columns.avro import write_program as ops
from penstock.columns.avro.read_program import CODE_FIELDS, NO_SLOT
from penstock.columns.avro.run import decode
from penstock.columns.avro.write_program import MEMBER_FIELDS, EncodeProgram
from penstock.columns.compiled import read_only
from penstock.columns.vm.arrow_arena import Input
from penstock.schemas.avro.tree import Array, AvroType, Enum, Fixed, Map, Node, Record, Union
from penstock.serde.avro.compile_read import VALUE, compile_decoder
from penstock.serde.avro.logical_types import (
    decimal_of,
    is_restricted,
    is_uuid_text,
    number_meaning,
)
from penstock.serde.avro.types import arrow_type, decimal_bytes, values_of

_RAW_BYTES: Final = {AvroType.BOOLEAN: 1, AvroType.FLOAT: 4, AvroType.DOUBLE: 8}
_SOURCE, _A, _B = 1, 2, 3  # of an instruction
_WIDTHS: Final = {AvroType.INT: 4, AvroType.LONG: 8}


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
        if node.kind is AvroType.NULL:
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
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is AvroType.NULL]
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
    AvroType.INT: ops.INT,
    AvroType.LONG: ops.LONG,
    AvroType.STRING: ops.TEXT,
    AvroType.BYTES: ops.SIZED,
}


def input_types(root: Node) -> dict[str, pa.DataType]:
    """The type each column is wanted in, by name; nulls are allowed all the way down."""
    if isinstance(root, Record):
        return {field.name: with_nulls(arrow_type(field.type)) for field in root.fields}
    return {VALUE: with_nulls(arrow_type(root))}


def with_nulls(kind: Any) -> pa.DataType:
    """The same type with every field nullable, for values that have not been checked yet."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, with_nulls(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, with_nulls(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(with_nulls(kind.value_type))
    assert isinstance(kind, pa.DataType)
    return kind


def columns_of(batch: pa.RecordBatch, root: Node, types: Mapping[str, pa.DataType]) -> list[Any]:
    """The batch's columns in the schema's order and types; ValueError if that cannot be."""
    names = batch.schema.names
    unknown = [name for name in names if name not in types]
    if unknown:
        raise ValueError(f"the schema has no field {unknown[0]!r}")
    missing = [name for name in types if name not in names]
    defaults = _defaults(root, missing, batch.num_rows) if missing else {}
    columns = []
    for name, kind in types.items():
        if name in defaults:
            columns.append(defaults[name])
            continue
        column = batch.column(name)
        try:
            is_fit = column.type == kind or with_nulls(column.type) == kind
            fitting = column if is_fit else column.cast(kind)
            fitting.validate()  # Arrow's cast of a slice may lose the length of null children
            columns.append(fitting)
        except pa.ArrowException as wrong:
            raise ValueError(f"the column {name!r} does not fit the schema: {wrong}") from None
    return columns


def _defaults(root: Node, names: Sequence[str], rows: int) -> dict[str, ArrowArray]:
    """Columns of defaults: what a reader sees of empty payloads that lack the fields."""
    if not isinstance(root, Record):
        raise ValueError(f"the batch has no column {names[0]!r}")
    for name in names:
        if not root.by_name[name].has_default:
            raise ValueError(f"the batch has no column {name!r}, and the field has no default")
    bare = Record(root.name, None, (), {}, [], is_error=False)
    lacking = [root.by_name[name] for name in names]
    only = Record(root.name, None, (), {}, lacking, is_error=False)
    nowhere = np.zeros(rows, dtype=np.int64)
    decoded = decode(compile_decoder(bare, only), read_only(b""), nowhere, nowhere)
    return dict(zip(decoded.names, decoded.columns, strict=True))


def has_wide_union(node: Node, inside: frozenset[int] = frozenset()) -> bool:
    """Whether a plain Python value would have to say which branch it is of."""
    if isinstance(node, Record):
        if id(node) in inside:
            return False
        within = inside | {id(node)}
        return any(has_wide_union(field.type, within) for field in node.fields)
    if isinstance(node, Union):
        values = values_of(node)
        return len(values) > 1 or any(has_wide_union(one, inside) for one in values)
    if isinstance(node, Array):
        return has_wide_union(node.items, inside)
    return isinstance(node, Map) and has_wide_union(node.values, inside)
