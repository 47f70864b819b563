"""What callers have, as the arrays an encoding program reads.

Columns come by name, in any order. One that is missing is filled from its field's default; one that
the schema does not have is refused, as is a type that does not convert without loss.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.client.avro_program import VALUE, compile_decoder
from penstock.client.avro_types import arrow_type, values_of
from penstock.columns.avro.decoding import decode
from penstock.columns.compiled import read_only
from penstock.columns.shape import ArrowArray
from penstock.schemas.avro.tree import Array, Map, Node, Record, Union


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
