"""Decoded Arrow columns -> the Arrow types that Spark has, without a copy where the bytes agree.

No value is changed to fit: what the type cannot represent raises ArrowInvalid, and `fit_rows`
reports which rows those are. Imports no pyspark.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.arrow_records import ArrowArray, packed_bits
from penstock.columns.compiled import Bools

_arrow: Final[Any] = pa  # its stubs need the element type beforehand


def all_null(rows: int, arrow_type: pa.DataType) -> ArrowArray:
    """A column of nulls."""
    nulls: ArrowArray = _arrow.nulls(rows, arrow_type)
    return nulls


def repeated(value: str | int, arrow_type: pa.DataType, rows: int) -> ArrowArray:
    """The same value in every row."""
    column: ArrowArray = _arrow.repeat(_arrow.scalar(value, arrow_type), rows)
    return column


def numbers(
    values: NDArray[Any], arrow_type: pa.DataType, valid: Bools | None = None
) -> ArrowArray:
    """Numbers as a column, over the same memory; `pa.array` would load pandas into the worker."""
    validity = None if valid is None or valid.all() else packed_bits(valid)
    content = pa.py_buffer(np.ascontiguousarray(values).data)
    column: ArrowArray = pa.Array.from_buffers(arrow_type, len(values), [validity, content])
    return column


def null_unless(array: ArrowArray, valid: Bools) -> ArrowArray:
    """The column with nulls in all rows that are not valid."""
    rows = _arrow.array(np.arange(len(array)), mask=~valid)
    column: ArrowArray = array.take(rows)
    return column


def fit(array: ArrowArray, target: pa.DataType) -> ArrowArray:
    """The same values in another type; ArrowInvalid if one does not fit."""
    present = array.type
    if present.equals(target):
        return array
    if pa.types.is_nested(target):
        return _fit_nested(array, target)
    is_time = pa.types.is_time(present) or pa.types.is_timestamp(present)
    if pa.types.is_integer(target) and is_time:
        return array.view(target)
    return array.cast(target)


def fit_rows(array: ArrowArray, target: pa.DataType) -> tuple[ArrowArray, Bools]:
    """The same, and which rows did not fit: those are null."""
    try:
        return fit(array, target), np.zeros(len(array), dtype=np.bool_)
    except pa.ArrowInvalid:
        return _fit_row_by_row(array, target)


def _fit_row_by_row(array: ArrowArray, target: pa.DataType) -> tuple[ArrowArray, Bools]:
    """Values that do not fit are rare enough for a loop."""
    rows: list[ArrowArray] = []
    unfit = np.zeros(len(array), dtype=np.bool_)
    for row in range(len(array)):
        try:
            rows.append(fit(pa.concat_arrays([array.slice(row, 1)]), target))
        except pa.ArrowInvalid:
            rows.append(all_null(1, target))
            unfit[row] = True
    return pa.concat_arrays(rows), unfit


def _fit_nested(array: Any, target: Any) -> ArrowArray:
    if array.offset:
        array = pa.concat_arrays([array])  # a copy that starts at its first row
    validity, *rest = array.buffers()
    if pa.types.is_struct(target):
        children = [
            fit(array.field(index), target.field(index).type) for index in range(target.num_fields)
        ]
        return _assembled(target, array, [validity], children)
    if pa.types.is_map(target):
        entries = pa.StructArray.from_arrays(
            [fit(array.keys, target.key_type), fit(array.items, target.item_type)],
            fields=[target.key_field, target.item_field],
        )
        return _assembled(target, array, [validity, rest[0]], [entries])
    if pa.types.is_large_list(array.type):
        column: ArrowArray = array.cast(target)
        return column
    return _assembled(target, array, [validity, rest[0]], [fit(array.values, target.value_type)])


def _assembled(
    target: pa.DataType, array: ArrowArray, buffers: list[Any], children: list[ArrowArray]
) -> ArrowArray:
    return pa.Array.from_buffers(
        target, len(array), buffers, null_count=array.null_count, children=children
    )
