"""Arrow columns to values that JSON can say, without a step of Python's for each row.

A column becomes a list by Arrow's and numpy's own conversions, lists are cut out of the list of
their items, and objects are made of the lists of their members, all by loops in C. Columns of other
types than a JSON Schema can assert, and cells that JSON has no text for, are NotPlain: `rows_of`
says what becomes of them, and gives the same values for all the others.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import delitem, is_, setitem
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.compiled import Int64s
from penstock.serde.json.event import DECODER, UNENCODABLE
from penstock.serde.json.value_types import VALUE, JsonColumns

Column: TypeAlias = Any  # an Arrow array; the stubs do not know what those of one type can do
_NOWHERE: Final = np.empty(0, dtype=np.int64)
_is_finite: Any = pc.is_finite  # pyarrow's functions are made at run time: no types
_list_lengths: Any = pc.list_value_length


class NotPlain(Exception):  # noqa: N818 - not an error: another way is taken
    """Something that has to be looked at row by row."""


class _Member(NamedTuple):
    """What objects have under a name."""

    name: str
    cells: list[Any]
    absent: Int64s  # rows that have nothing there


def values_of(batch: pa.RecordBatch, known: JsonColumns) -> list[Any]:
    """The rows as values of a schema with these columns; or NotPlain.

    Text columns are the JSON they hold. A null is left out unless the property must be there.
    """
    types = {column.name: column.type for column in known.columns}
    names = batch.schema.names
    if not types.keys() >= set(names):
        raise NotPlain
    try:
        members = [
            _text_member(name, batch.column(name))
            if types[name] is None
            else _member(name, batch.column(name))
            for name in names
        ]
        kept = [
            member._replace(absent=_NOWHERE) if member.name in known.required else member
            for member in members
        ]
        if known.is_object:
            return _objects(kept, batch.num_rows)
        return next((member.cells for member in members if member.name == VALUE), [])
    except (*UNENCODABLE, KeyError, pa.ArrowException):
        raise NotPlain from None


def _text_member(name: str, column: Column) -> _Member:
    """Of a column of JSON, where null is nothing as well."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise NotPlain
    cells = list(map(DECODER.decode, column.fill_null("null").to_numpy(zero_copy_only=False)))
    absent = np.flatnonzero(np.fromiter(map(is_, cells, repeat(None)), bool))
    return _Member(name, cells, absent)


def _member(name: str, column: Column) -> _Member:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()  # among its values may be nulls
    absent = np.flatnonzero(column.is_null()) if column.null_count else _NOWHERE
    return _Member(name, _cells(column), absent)


def _cells(column: Column) -> list[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _cells(column.dictionary_decode())
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts: list[Any] = column.to_numpy(zero_copy_only=False).tolist()  # nulls are None
        return texts
    if pa.types.is_struct(kind):
        return _nulled(_structs(column), column)
    if pa.types.is_map(kind):
        return _nulled(_maps(column), column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _nulled(_cut(_cells(column.flatten()), column), column)
    return _nulled(_numbers(column), column)


def _numbers(column: Column) -> list[Any]:
    kind = column.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        if _is_finite(column).false_count:  # JSON has no text for them, and msgspec writes null
            raise NotPlain
        column = column.fill_null(0.0)
    elif pa.types.is_integer(kind):
        column = column.fill_null(0)
    elif pa.types.is_boolean(kind):
        column = column.fill_null(False)
    else:
        raise NotPlain
    numbers: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return numbers


def _structs(column: Column) -> list[Any]:
    names = [column.type.field(index).name for index in range(column.type.num_fields)]
    return _objects(list(map(_member, names, column.flatten())), len(column))


def _objects(members: Sequence[_Member], count: int) -> list[Any]:
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        raise NotPlain
    objects = list(map(dict.copy, repeat(dict.fromkeys(names), count)))
    for member in members:
        _exhaust(map(setitem, objects, repeat(member.name), member.cells))
        owners = map(objects.__getitem__, member.absent.tolist())
        _exhaust(map(delitem, owners, repeat(member.name)))
    return objects


def _exhaust(steps: Iterator[None]) -> None:
    deque(steps, maxlen=0)  # a loop in C


def _maps(column: Column) -> list[Any]:
    kind = column.type
    entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    entries = column.cast(pa.list_(entry))
    keys, items = entries.flatten().flatten()
    if items.null_count or not pa.types.is_string(keys.type):
        raise NotPlain
    pairs = map(zip, _cut(_cells(keys), entries), _cut(_cells(items), entries))
    maps = list(map(dict, pairs))
    if sum(map(len, maps)) < len(keys):  # a key comes twice
        raise NotPlain
    return maps


def _cut(items: list[Any], column: Column) -> list[Any]:
    """The items of each list of a column, of all items one after the other."""
    ends = np.cumsum(_list_lengths(column).fill_null(0).to_numpy(zero_copy_only=False))
    starts = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))
    return list(map(items.__getitem__, map(slice, starts.tolist(), ends.tolist())))


def _nulled(cells: list[Any], column: Column) -> list[Any]:
    """The cells, and None where the column has none."""
    if not column.null_count:
        return cells
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    indexes = np.where(is_valid, np.arange(len(cells)), len(cells))
    return list(map([*cells, None].__getitem__, indexes.tolist()))
