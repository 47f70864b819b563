"""The other compiler: a schema -> a program that writes Arrow rows as Avro.

The arrays are of the types that `avro_types` says, with nulls allowed everywhere: a null where the
schema has none is wrong with that row, and the kernel says so.

What callers have, as the arrays an encoding program reads.

Columns come by name, in any order. One that is missing is filled from its field's default; one that
the schema does not have is refused, as is a type that does not convert without loss.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray
from penstock.columns.avro import write_program as ops
from penstock.columns.avro.read_program import CODE_FIELDS, A, B
from penstock.columns.avro.run import decode
from penstock.columns.avro.write_program import MEMBER_FIELDS, AvroWriteProgram
from penstock.columns.compiled import read_only
from penstock.columns.vm.arrow_inputs import Input
from penstock.columns.vm.assembler import NOTHING, OPERAND, Assembler, table_of
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
_WIDTHS: Final = {AvroType.INT: 4, AvroType.LONG: 8}


def compile_encoder(root: Node) -> tuple[AvroWriteProgram, tuple[Input, ...]]:
    """The program, and which arrays it reads: one per field of a record, or one for all else."""
    compiler = _Compiler()
    if isinstance(root, Record):
        inputs = tuple(compiler.put(each.type) for each in root.fields)
    else:
        inputs = (compiler.put(root),)
    return compiler.finished(), inputs


class _Compiler:
    def __init__(self) -> None:
        self._asm = Assembler(CODE_FIELDS)
        self._members: list[tuple[int, int, int]] = []

    def finished(self) -> AvroWriteProgram:
        """The program of everything put so far."""
        self._asm.put(ops.END)
        return AvroWriteProgram(
            code=self._asm.code(),
            members=table_of(self._members, MEMBER_FIELDS),
            symbols=table_of(self._asm.symbols, 2),
            pool=self._asm.pool(),
            inputs=self._asm.inputs,
        )

    def put(self, node: Node) -> Input:
        """Instructions for one value, and the input it is read from."""
        if isinstance(node, Union):
            return self._put_union(node)
        if isinstance(node, Record):
            source = self._asm.add_input()
            self._asm.put(ops.REQUIRED, source)
            return Input(source, tuple(self.put(each.type) for each in node.fields))
        if isinstance(node, Array):
            return self._put_list((node.items,))
        if isinstance(node, Map):
            return self._put_list((None, node.values))
        if node.kind is AvroType.NULL:
            return Input(NOTHING)
        source = self._asm.add_input()
        self._put_scalar(node, source)
        return Input(source)

    def _put_list(self, parts: tuple[Node | None, ...]) -> Input:
        source = self._asm.add_input()
        begin = self._asm.put(ops.LIST_BEGIN, source)
        children = []
        for part in parts:
            if part is None:  # a map's key
                key = self._asm.add_input()
                self._asm.put(ops.TEXT, key)
                children.append(Input(key))
            else:
                children.append(self.put(part))
        end = self._asm.put(ops.LIST_NEXT, source, begin + 1)
        self._asm.patch(begin, A, end)
        return Input(source, tuple(children))

    def _put_union(self, union: Union) -> Input:
        values = values_of(union)
        nulls = [at for at, branch in enumerate(union.branches) if branch.kind is AvroType.NULL]
        if len(values) > 1:
            return self._put_members(union, values, nulls[0] if nulls else -1)
        if not values:
            source = self._asm.add_input()
            self._asm.put(ops.NULLABLE, source, 0, self._asm.here + 1)
            return Input(source)
        if nulls:
            choice = self._asm.put(ops.NULLABLE, NOTHING, nulls[0])
        else:
            choice = self._asm.put(ops.UNION, NOTHING, len(self._members), 1, -1)
            self._members.append((self._asm.inputs, 0, self._asm.here))  # of the input put next
        inner = self.put(values[0])
        self._asm.patch(choice, OPERAND, inner.slot)
        if nulls:
            self._asm.patch(choice, B, self._asm.here)
        return inner

    def _put_members(self, union: Union, values: list[Node], null: int) -> Input:
        source = self._asm.add_input()
        first = len(self._members)
        self._asm.put(ops.UNION, source, first, len(values), null)
        self._members += [(NOTHING, 0, 0)] * (len(values) + 1)
        children, exits = [], []
        for index, value in enumerate(values):
            start = self._asm.here
            child = self.put(value)
            exits.append(self._asm.put(ops.JUMP))
            branch = union.branches.index(value)
            self._members[first + index] = (child.slot, branch, start)
            children.append(child)
        for jump in exits:
            self._asm.patch(jump, A, self._asm.here)
        self._members[first + len(values)] = (NOTHING, null, self._asm.here)  # where a null goes
        return Input(source, tuple(children))

    def _put_scalar(self, node: Node, source: int) -> None:
        decimal = decimal_of(node)
        if isinstance(node, Enum):
            first = self._asm.add_symbols(node.symbols)
            self._asm.put(ops.ENUM, source, first, len(node.symbols))
        elif decimal is not None:
            width = decimal_bytes(decimal.precision)
            if isinstance(node, Fixed):
                self._asm.put(ops.FIXED_DECIMAL, source, width, node.size)
            else:
                self._asm.put(ops.DECIMAL, source, width)
        elif isinstance(node, Fixed):
            self._asm.put(ops.RAW, source, node.size)
        elif is_restricted(node):
            meaning = number_meaning(node, node)
            assert meaning is not None, "a type can read itself"
            width = _WIDTHS[node.kind]
            self._asm.put(ops.TIME, source, meaning.least, meaning.greatest, width)
        elif is_uuid_text(node):
            self._asm.put(ops.TEXT, source, 1)
        elif node.kind in _RAW_BYTES:
            self._asm.put(ops.RAW, source, _RAW_BYTES[node.kind])
        else:
            self._asm.put(_PLAIN[node.kind], source)


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
        return len(values) > 1 or any(has_wide_union(branch, inside) for branch in values)
    if isinstance(node, Array):
        return has_wide_union(node.items, inside)
    return isinstance(node, Map) and has_wide_union(node.values, inside)
