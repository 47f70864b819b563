"""Arrow columns as decoded -> the Arrow types that Spark has, without a copy where the bytes agree.

Values are never bent to fit: what the type cannot hold raises ArrowInvalid, and `fit_rows` says of
which rows that is true. Imports no pyspark.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.arrow_records import ArrowArray, packed_bits
from penstock.columns.compiled import Bools

_arrow: Final[Any] = pa  # its stubs want the type to be known beforehand


def all_null(rows: int, kind: pa.DataType) -> ArrowArray:
    """So many nulls."""
    nulls: ArrowArray = _arrow.nulls(rows, kind)
    return nulls


def repeated(value: str | int, kind: pa.DataType, rows: int) -> ArrowArray:
    """The same value in every row."""
    column: ArrowArray = _arrow.repeat(_arrow.scalar(value, kind), rows)
    return column


def numbers(values: NDArray[Any], kind: pa.DataType, valid: Bools | None = None) -> ArrowArray:
    """Numbers as a column, over the same memory; `pa.array` would load pandas into the worker."""
    validity = None if valid is None or valid.all() else packed_bits(valid)
    content = pa.py_buffer(np.ascontiguousarray(values).data)
    column: ArrowArray = pa.Array.from_buffers(kind, len(values), [validity, content])
    return column


def kept_where(array: ArrowArray, kept: Bools) -> ArrowArray:
    """The column with nulls in all other rows."""
    places = _arrow.array(np.arange(len(array)), mask=~kept)
    column: ArrowArray = array.take(places)
    return column


def fit(array: ArrowArray, wanted: pa.DataType) -> ArrowArray:
    """The same values in another type; ArrowInvalid where one does not fit."""
    have = array.type
    if have.equals(wanted):
        return array
    if pa.types.is_nested(wanted):
        return _fit_nested(array, wanted)
    if pa.types.is_integer(wanted) and (pa.types.is_time(have) or pa.types.is_timestamp(have)):
        return array.view(wanted)
    return array.cast(wanted)


def fit_rows(array: ArrowArray, wanted: pa.DataType) -> tuple[ArrowArray, Bools]:
    """The same, and which rows did not fit: those are null."""
    try:
        return fit(array, wanted), np.zeros(len(array), dtype=np.bool_)
    except pa.ArrowInvalid:
        return _row_by_row(array, wanted)


def _row_by_row(array: ArrowArray, wanted: pa.DataType) -> tuple[ArrowArray, Bools]:
    """What does not fit is rare enough for a loop."""
    parts: list[ArrowArray] = []
    unfit = np.zeros(len(array), dtype=np.bool_)
    for row in range(len(array)):
        try:
            parts.append(fit(pa.concat_arrays([array.slice(row, 1)]), wanted))
        except pa.ArrowInvalid:
            parts.append(all_null(1, wanted))
            unfit[row] = True
    return pa.concat_arrays(parts), unfit


def _fit_nested(array: Any, wanted: Any) -> ArrowArray:
    if array.offset:
        array = pa.concat_arrays([array])  # from its first row on
    validity, *rest = array.buffers()
    if pa.types.is_struct(wanted):
        children = [
            fit(array.field(index), wanted.field(index).type) for index in range(wanted.num_fields)
        ]
        return _assembled(wanted, array, [validity], children)
    if pa.types.is_map(wanted):
        entries = pa.StructArray.from_arrays(
            [fit(array.keys, wanted.key_type), fit(array.items, wanted.item_type)],
            fields=[wanted.key_field, wanted.item_field],
        )
        return _assembled(wanted, array, [validity, rest[0]], [entries])
    if pa.types.is_large_list(array.type):
        column: ArrowArray = array.cast(wanted)
        return column
    return _assembled(wanted, array, [validity, rest[0]], [fit(array.values, wanted.value_type)])


def _assembled(
    wanted: pa.DataType, array: ArrowArray, buffers: list[Any], children: list[ArrowArray]
) -> ArrowArray:
    return pa.Array.from_buffers(
        wanted, len(array), buffers, null_count=array.null_count, children=children
    )
