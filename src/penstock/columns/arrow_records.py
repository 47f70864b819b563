"""Opened records as Arrow, over the same memory: only the validity bits are copied.

Needs the extra `arrow`; without it, opened batches stay the numpy columns.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.record_columns import BytesColumn, HeadersColumn, RecordColumns

ArrowArray: TypeAlias = "pa.Array[Any]"  # quoted: only the stubs know that it is generic

BINARY: Final = pa.binary()
TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)


def with_nulls(column: ArrowArray, valid: "ArrowArray | NDArray[Any]") -> ArrowArray:
    """A column of the valid rows, with nulls inserted for the others."""
    is_valid = np.asarray(valid)
    rows = np.cumsum(is_valid) - 1
    return column.take(pa.array(rows, mask=~is_valid))


def packed_bits(flags: NDArray[Any]) -> pa.Buffer:
    """A byte per flag as Arrow stores flags: a bit each."""
    return pa.py_buffer(np.packbits(flags, bitorder="little").data)


def bytes_to_arrow(column: BytesColumn, kind: pa.DataType = BINARY) -> ArrowArray:
    """A column of bytes as binary, or as another type of the same layout."""
    validity = None if column.valid is None else packed_bits(column.valid)
    buffers = [validity, pa.py_buffer(column.offsets.data), pa.py_buffer(column.content.data)]
    return pa.Array.from_buffers(kind, len(column), buffers)


def headers_to_arrow(headers: HeadersColumn) -> ArrowArray:
    """A list of (key: string, value: binary) per row."""
    pairs = pa.StructArray.from_arrays(
        [bytes_to_arrow(headers.keys, pa.string()), bytes_to_arrow(headers.values)],
        fields=list(HEADER_TYPE),
    )
    offsets = pa.py_buffer(headers.offsets.data)
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(headers.offsets) - 1, [None, offsets], children=[pairs]
    )


def timestamps_to_arrow(records: RecordColumns) -> ArrowArray:
    """The timestamps, in milliseconds UTC."""
    return pa.array(records.timestamps).view(TIMESTAMP_TYPE)


def records_to_arrow(records: RecordColumns) -> pa.RecordBatch:
    """offset, timestamp, then key, value and headers if they were opened."""
    columns: dict[str, ArrowArray] = {
        "offset": pa.array(records.offsets),
        "timestamp": timestamps_to_arrow(records),
    }
    if records.keys is not None:
        columns["key"] = bytes_to_arrow(records.keys)
    if records.values is not None:
        columns["value"] = bytes_to_arrow(records.values)
    if records.headers is not None:
        columns["headers"] = headers_to_arrow(records.headers)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
