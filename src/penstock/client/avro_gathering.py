"""Python values as Arrow arrays, a column at a time, where Arrow takes them for what they are.

`pa.array` makes 1 of 1.5, bytes of text, a list of letters of a word, and passes over keys that the
type does not have. Values that are not exactly of the types below are NotTaken and go another way,
one by one. Nulls are let through: whether they may be there is the kernel's to say.

Dicts are taken apart here and not by `pa.array`, whose way through nested ones takes three times as
long; each leaf is one flat list when it gets there.
"""

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.client.avro_types import decimal_of, values_of
from penstock.columns.shape import ArrowArray
from penstock.schemas.avro.logical import LOGICAL_TYPE, logical_type
from penstock.schemas.avro.tree import Array, Kind, Map, Node, Record, Union

_BYTES: Final = frozenset((bytes, bytearray))
_TAKEN: Final[Mapping[Kind, frozenset[type]]] = {
    Kind.BOOLEAN: frozenset((bool,)),
    Kind.INT: frozenset((int,)),
    Kind.LONG: frozenset((int,)),
    Kind.FLOAT: frozenset((int, float)),
    Kind.DOUBLE: frozenset((int, float)),
    Kind.STRING: frozenset((str,)),
    Kind.ENUM: frozenset((str,)),
    Kind.BYTES: _BYTES,
    Kind.FIXED: _BYTES,
    Kind.NULL: frozenset(),
}
_TAKEN_DECIMAL: Final = frozenset((Decimal,))
_TAKEN_LOGICAL: Final[Mapping[str, frozenset[type]]] = {
    "date": frozenset((int, datetime.date)),
    "time-millis": frozenset((int, datetime.time)),
    "time-micros": frozenset((int, datetime.time)),
}
_TAKEN_TIMESTAMP: Final = frozenset((int, datetime.datetime))
_UNFIT: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)


class NotTaken(Exception):
    """Values that Arrow would change, or cannot hold."""


def gathered(node: Node, values: Sequence[Any], kind: Any) -> ArrowArray:
    """Values of `node` as an array of the Arrow type `kind`; raises NotTaken."""
    try:
        array: ArrowArray = _gathered(node, values, kind)
    except _UNFIT as wrong:
        raise NotTaken(str(wrong)) from None
    return array


def _gathered(node: Node, values: Sequence[Any], kind: Any) -> Any:
    if isinstance(node, Union):
        inner = values_of(node)
        if len(inner) > 1:
            raise NotTaken("which branch of the union a value is of")
        node = inner[0] if inner else next(iter(node.branches), node)
    kinds = set(map(type, values))
    is_null = None
    if NoneType in kinds:
        kinds.discard(NoneType)
        if not isinstance(node, Record | Array | Map):
            return _scalars(node, kinds, values, kind)
        is_null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if isinstance(node, Record):
        return _structs(node, kinds, values, kind, is_null)
    if isinstance(node, Array):
        if not kinds <= {list, tuple}:
            raise NotTaken("what is no list")
        return _lists(node, values, kind, is_null)
    if isinstance(node, Map):
        if not kinds <= {dict}:
            raise NotTaken("what is no dict")
        return _maps(node, values, kind, is_null)
    return _scalars(node, kinds, values, kind)


def _structs(
    record: Record, kinds: set[type], values: Sequence[Any], kind: Any, is_null: Any
) -> ArrowArray:
    if not kinds <= {dict}:
        raise NotTaken("what is no dict")
    names = record.by_name.keys()
    rows = values if is_null is None else [value or {} for value in values]
    is_whole = set(map(len, rows)) == {len(names)}
    if not is_whole and not all(row.keys() <= names for row in rows):
        raise NotTaken("a key that the record does not have")
    children = []
    for index, field in enumerate(record.fields):
        try:
            column = list(map(itemgetter(field.name), rows)) if is_whole else None
        except KeyError:  # as many keys as fields, but not the same ones
            raise NotTaken("a key that the record does not have") from None
        if column is None:
            column = [row.get(field.name) for row in rows]
        children.append(_gathered(field.type, column, kind.field(index).type))
    valid = None if is_null is None else _bits(~is_null)
    return pa.Array.from_buffers(kind, len(values), [valid], children=children)


def _lists(node: Array, values: Sequence[Any], kind: Any, is_null: Any) -> ArrowArray:
    rows = values if is_null is None else [value or () for value in values]
    items = _gathered(node.items, list(chain.from_iterable(rows)), kind.value_type)
    buffers = [None if is_null is None else _bits(~is_null), _offsets(rows)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[items])


def _maps(node: Map, values: Sequence[Any], kind: Any, is_null: Any) -> ArrowArray:
    rows = values if is_null is None else [value or {} for value in values]
    names = list(chain.from_iterable(rows))
    if not set(map(type, names)) <= {str}:
        raise NotTaken("a key that is no text")
    keys = pa.array(names, pa.string())
    items = _gathered(node.values, [one for row in rows for one in row.values()], kind.item_type)
    entries = pa.Array.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), len(names), [None], children=[keys, items]
    )
    buffers = [None if is_null is None else _bits(~is_null), _offsets(rows)]
    return pa.Array.from_buffers(kind, len(values), buffers, children=[entries])


def _offsets(rows: Sequence[Any]) -> pa.Buffer:
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, rows), np.int32, len(rows)), out=offsets[1:])
    return pa.py_buffer(offsets.data)


def _bits(flags: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little").data)


def _scalars(node: Node, kinds: set[type], values: Sequence[Any], kind: Any) -> Any:
    taken = _TAKEN[node.kind]
    if (LOGICAL_TYPE in node.properties or not kinds <= taken) and not _are_logical(
        node, kinds, values
    ):
        raise NotTaken(f"what is no {node.kind}")
    return pa.array(values, kind)


def _are_logical(node: Node, kinds: set[type], values: Sequence[Any]) -> bool:
    if decimal_of(node) is not None:
        return kinds <= _TAKEN_DECIMAL
    logical = logical_type(node)
    name = "" if logical is None else logical.name
    head, _, _ = name.rpartition("-")
    if head.endswith("timestamp"):
        # A local one has no zone and the others have one: anything else would be a guess.
        is_local = head.startswith("local")
        return kinds <= _TAKEN_TIMESTAMP and all(
            (value.tzinfo is None) == is_local
            for value in values
            if type(value) is datetime.datetime
        )
    return kinds <= _TAKEN_LOGICAL.get(name, _TAKEN[node.kind])
