"""Arrow columns as the arrays that the write kernels take: without a copy of any key or value.

Expects the columns `value` and, if wanted, `key`, `headers`, `timestamp`, `partition`; `offset` is
allowed and means nothing to a writer, so what was opened can be written elsewhere as it is. What a
column holds must fit what Kafka can say: otherwise ValueError, with the column's name.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.compiled import Bools, Int64s
from penstock.columns.shape import ArrowArray
from penstock.columns.write_kernels import BytesLayout, RowsLayout
from penstock.model import NO_TIMESTAMP, Millis

COLUMN_NAMES: Final = frozenset({"key", "value", "headers", "timestamp", "partition", "offset"})


def _fixed(array: Any, kind: type[np.generic]) -> Any:
    """An array nobody writes through, of the one type that the kernels are compiled for."""
    view = np.ascontiguousarray(array, dtype=kind).view()
    view.flags.writeable = False
    return view


_NO_BOOLS: Final[Bools] = _fixed((), np.bool_)
_NO_INTS: Final[Int64s] = _fixed((), np.int64)
_NO_BYTES: Final = _fixed((), np.uint8)
_NO_COLUMN: Final = BytesLayout(_NO_INTS, _NO_BYTES, _NO_BOOLS)


def rows_layout(records: pa.RecordBatch, now: Millis) -> RowsLayout:
    """The rows as the kernels take them. A row without a timestamp gets `now`."""
    names = set(records.schema.names)
    if "value" not in names or not names <= COLUMN_NAMES or len(names) != records.num_columns:
        raise ValueError(f"expected value and some of {sorted(COLUMN_NAMES)}, not {sorted(names)}")
    keys = bytes_layout("key", records.column("key")) if "key" in names else _all_null(len(records))
    values = bytes_layout("value", records.column("value"))
    timestamps = _timestamps(records, now)
    if "headers" not in names:
        return RowsLayout(keys, values, timestamps, _NO_INTS, _NO_COLUMN, _NO_COLUMN)
    return RowsLayout(keys, values, timestamps, *_headers(records.column("headers")))


def bytes_layout(name: str, column: ArrowArray) -> BytesLayout:
    """Any of Arrow's binary or text types."""
    if pa.types.is_null(column.type):
        return _all_null(len(column))
    try:
        wide = column.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise ValueError(f"column {name} is {column.type}, not binary or text") from error
    _, ends, content = wide.buffers()
    if ends is None or len(wide) == 0:
        return BytesLayout(_fixed((0,), np.int64), _NO_BYTES, _NO_BOOLS)
    rows = slice(wide.offset, wide.offset + len(wide) + 1)
    return BytesLayout(
        ends=_fixed(np.frombuffer(memoryview(ends), dtype=np.int64)[rows], np.int64),
        content=_NO_BYTES
        if content is None
        else _fixed(np.frombuffer(memoryview(content), np.uint8), np.uint8),
        valid=_valid(wide),
    )


def chosen_partitions(records: pa.RecordBatch) -> Int64s | None:
    """The column `partition`, -1 where it is null; None without one."""
    if "partition" not in records.schema.names:
        return None
    column = records.column("partition")
    if not pa.types.is_integer(column.type):
        raise ValueError(f"column partition is {column.type}, not a whole number")
    if column.null_count < len(column) and pc.min(column).as_py() < 0:
        raise ValueError("column partition holds a number below zero")
    return np.asarray(column.cast(pa.int64()).fill_null(-1))


def _all_null(rows: int) -> BytesLayout:
    ends = _fixed(np.zeros(rows + 1), np.int64)
    return BytesLayout(ends, _NO_BYTES, _fixed(np.zeros(rows), np.bool_))


def _valid(column: ArrowArray) -> Bools:
    if column.null_count == 0:
        return _NO_BOOLS
    valid: Bools = _fixed(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return valid


def _timestamps(records: pa.RecordBatch, now: Millis) -> Int64s:
    if "timestamp" not in records.schema.names:
        constant: Int64s = _fixed(np.full(len(records), now), np.int64)
        return constant
    column = records.column("timestamp")
    if pa.types.is_timestamp(column.type):
        zone = column.type.tz
        column = column.cast(pa.timestamp("ms", tz=zone), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"column timestamp is {column.type}, not a timestamp or milliseconds")
    times: Int64s = _fixed(column.cast(pa.int64()).fill_null(now), np.int64)
    if len(times) and times.min() < NO_TIMESTAMP:
        raise ValueError("column timestamp holds a time before 1970")
    return times


def _headers(column: ArrowArray) -> tuple[Int64s, BytesLayout, BytesLayout]:
    """A list of pairs (key: text, value: binary) per row; a null list is an empty one."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (is_list and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2):
        raise ValueError(f"column headers is {kind}, not a list of (key, value)")
    counts = np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)
    pairs: Any = pc.list_flatten(column)
    names, values = pairs.flatten()
    if names.null_count:
        raise ValueError("column headers has a header without a name")
    ends = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    return (
        _fixed(ends, np.int64),
        bytes_layout("headers.key", names),
        bytes_layout("headers.value", values),
    )
