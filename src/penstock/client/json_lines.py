"""Arrow columns to lines of JSON, without a step of Python's for each row.

A column becomes a list by Arrow's and numpy's own conversions, lists are cut out of the list of
their items, and objects are msgspec's structs, which leave out what is None. Columns of other types
than a JSON Schema can assert, and cells that JSON has no text for, are NotPlain: `rows_of` says
what becomes of them, and gives the same values for all the others.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.json_text import DECODER, ENCODER, UNSAYABLE
from penstock.client.json_types import VALUE, JsonColumns

Column: TypeAlias = Any  # an Arrow array; the stubs do not know what those of one type can do
_STRUCTS_MAX: Final = 1_000  # kept; then they are made anew
_NEVER: Final = ...  # no cell is this, so a member of this default is always written
_is_finite: Any = pc.is_finite  # pyarrow's functions are made at run time: no types
_list_lengths: Any = pc.list_value_length


class NotPlain(Exception):
    """Something that has to be looked at row by row."""


def lines_of_batch(batch: pa.RecordBatch, known: JsonColumns) -> bytes:
    """The rows as values of a schema with these columns; or NotPlain.

    Text columns are the JSON they hold. A null is left out unless the property must be there.
    """
    types = {one.name: one.type for one in known.columns}
    names = batch.schema.names
    if len(set(names)) < len(names) or not types.keys() >= set(names):
        raise NotPlain
    try:
        columns = [
            _parsed(batch.column(name)) if types[name] is None else _values(batch.column(name))
            for name in names
        ]
        if known.is_object:
            kept = tuple(name in known.required for name in names)
            return ENCODER.encode_lines(_objects(names, kept, columns, batch.num_rows))
        return ENCODER.encode_lines(columns[names.index(VALUE)] if VALUE in names else [])
    except (*UNSAYABLE, pa.ArrowException):
        raise NotPlain from None


def _parsed(column: Column) -> list[Any]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise NotPlain
    return list(map(DECODER.decode, column.fill_null("null").to_numpy(zero_copy_only=False)))


def _values(column: Column) -> list[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_null(kind):
        return [None] * len(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts: list[Any] = column.to_numpy(zero_copy_only=False).tolist()  # nulls are None
        return texts
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        if len(set(names)) < len(names):
            raise NotPlain
        members = [_values(member) for member in column.flatten()]
        return _nulled(_objects(names, (False,) * len(names), members, len(column)), column)
    if pa.types.is_map(kind):
        return _nulled(_maps(column), column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _nulled(_cut(_values(column.flatten()), column), column)
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


def _maps(column: Column) -> list[Any]:
    kind = column.type
    entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    entries = column.cast(pa.list_(entry))
    keys, items = entries.flatten().flatten()
    if items.null_count or not pa.types.is_string(keys.type):
        raise NotPlain
    pairs = map(zip, _cut(_values(keys), entries), _cut(_values(items), entries))
    maps = list(map(dict, pairs))
    if sum(map(len, maps)) < len(keys):  # a key comes twice
        raise NotPlain
    return maps


def _cut(items: list[Any], column: Column) -> list[Any]:
    """The items of each list of a column, of all items one after the other."""
    ends = np.cumsum(_list_lengths(column).fill_null(0).to_numpy(zero_copy_only=False))
    starts = np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))
    return list(map(items.__getitem__, map(slice, starts.tolist(), ends.tolist())))


def _nulled(values: list[Any], column: Column) -> list[Any]:
    """The values, and None where the column has none."""
    if not column.null_count:
        return values
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    places = np.where(is_valid, np.arange(len(values)), len(values))
    return list(map([*values, None].__getitem__, places.tolist()))


def _objects(
    names: Sequence[str], kept: Sequence[bool], members: Sequence[list[Any]], count: int
) -> list[Any]:
    if not names:
        return [{}] * count
    return list(map(_struct(tuple(names), tuple(kept)), *members))


@lru_cache(maxsize=_STRUCTS_MAX)
def _struct(names: tuple[str, ...], kept: tuple[bool, ...]) -> type[msgspec.Struct]:
    """An object with members of these names; one that is None is left out, if it is not kept."""
    fields: list[Any] = [
        (f"member_{index}", Any, _NEVER if keep else None) for index, keep in enumerate(kept)
    ]
    renamed = {field[0]: name for field, name in zip(fields, names, strict=True)}
    return msgspec.defstruct("Object", fields, rename=renamed, omit_defaults=True, gc=False)
