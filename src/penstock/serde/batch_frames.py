"""The frames of many values: which schema wrote each, and where its payload is.

Values that one schema wrote are a group, whatever their order; a value that is not a frame is a row
error with the reason that `frame` gives for a single one. Nothing is copied, and only the errors
are handled row by row. Never calls a registry.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.arrow_records import HEADERS_TYPE
from penstock.columns.compiled import Bools, Bytes, Int64s, read_only
from penstock.columns.record_columns import BytesSpans
from penstock.serde.errors import Reason
from penstock.serde.frame import (
    GUID_BYTES,
    GUID_MAGIC,
    ID_MAGIC,
    PREFIX_BYTES,
    BadFrameError,
    Headers,
    SchemaId,
    SchemaKey,
    Side,
    read_frame,
)

Values: TypeAlias = "Sequence[Any] | pa.Array[Any] | BytesSpans"  # bytes, None, messages
RowHeaders: TypeAlias = "Sequence[Headers | None] | pa.Array[Any] | None"  # None: there are none

_NO_BYTES: Final = read_only(b"")


class RowError(NamedTuple):
    """A row that could not be decoded, and why."""

    row: int
    reason: Reason
    detail: str
    schema: str | None


class Layout(NamedTuple):
    """Value i is source[starts[i]:ends[i]], unless it is null."""

    source: Bytes
    starts: Int64s
    ends: Int64s
    is_null: Bools


class FrameGroup(NamedTuple):
    """The values that one schema wrote."""

    schema: SchemaKey
    rows: Int64s
    starts: Int64s  # in the source, after the id or GUID
    ends: Int64s
    header: bytes | None = None  # header form: what comes after the GUID there


def lay_out(values: Values) -> Layout:
    """The values' bytes, without a copy where they are Arrow's already."""
    if isinstance(values, BytesSpans):
        missing = np.zeros(len(values), np.bool_) if values.valid is None else ~values.valid
        return Layout(values.source, values.starts, values.ends, missing)
    column: Any = values if isinstance(values, pa.Array) else pa.array(values, pa.large_binary())
    wide = column.cast(pa.large_binary())
    _, offsets, content = wide.buffers()
    rows = len(wide)
    if offsets is None or rows == 0:
        nowhere = np.zeros(rows, dtype=np.int64)
        return Layout(_NO_BYTES, nowhere, nowhere, np.ones(rows, dtype=np.bool_))
    bounds = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + rows + 1]
    source = _NO_BYTES if content is None else read_only(memoryview(content))
    is_null: Bools = np.asarray(wide.is_null())
    return Layout(source, bounds[:-1], bounds[1:], is_null)


def group_frames(
    layout: Layout, headers: RowHeaders, side: Side
) -> tuple[list[FrameGroup], list[RowError]]:
    """The groups, each schema and form once, and the rows that are not frames."""
    groups: list[FrameGroup] = []
    errors: list[RowError] = []
    left = ~layout.is_null
    if headers is not None:
        by_header, header_errors = _by_header(layout, headers, side, left)
        groups += by_header
        errors += header_errors
    for group in (*_by_id(layout, left), *_by_guid(layout, left)):
        groups.append(group)
        left[group.rows] = False
    errors += [_unframed(layout, row) for row in np.flatnonzero(left).tolist()]
    return groups, errors


def _by_header(
    layout: Layout, headers: RowHeaders, side: Side, left: Bools
) -> tuple[list[FrameGroup], list[RowError]]:
    """Rows whose own header names the schema; they are removed from `left`."""
    rows, contents = _schema_headers(headers, side.header_name)
    assert len(left) >= (rows.max() + 1 if len(rows) else 0), "headers for each value or for none"
    is_left = left[rows]
    rows = rows[is_left]
    left[rows] = False
    encoded: Any = contents.filter(pa.array(is_left)).dictionary_encode()
    codes = np.asarray(encoded.indices)
    groups, errors = [], []
    for code, header in enumerate(encoded.dictionary.to_pylist()):
        of_header = rows[codes == code]
        try:
            frame = read_frame(b"", ((side.header_name, header),), side)
        except BadFrameError as error:
            errors += [RowError(row, error.kind, str(error), None) for row in of_header.tolist()]
            continue
        starts, ends = layout.starts[of_header], layout.ends[of_header]
        tail = header[frame.position :]
        groups.append(FrameGroup(frame.schema, of_header, starts, ends, tail))
    return groups, errors


def _schema_headers(headers: Any, name: str) -> "tuple[Int64s, pa.Array[Any]]":
    """The rows with a header of that name, and its content; the first one where there are more."""
    column: Any = headers if isinstance(headers, pa.Array) else pa.array(headers, HEADERS_TYPE)
    counts = np.asarray(pc.list_value_length(column).fill_null(0), dtype=np.int64)
    names, contents = column.flatten().flatten()
    chosen = pc.and_(pc.equal(names, pa.scalar(name)), contents.is_valid())
    where = np.flatnonzero(np.asarray(chosen))
    parents = np.repeat(np.arange(len(column)), counts)[where]
    rows, first = np.unique(parents, return_index=True)
    return rows, contents.take(pa.array(where[first])).cast(pa.large_binary())


def _by_id(layout: Layout, left: Bools) -> Iterator[FrameGroup]:
    rows = _starting_with(layout, left, ID_MAGIC, PREFIX_BYTES)
    starts, ends = layout.starts[rows], layout.ends[rows]
    ids = np.zeros(len(rows), dtype=np.int64)
    for byte in range(1, PREFIX_BYTES):
        ids = ids << 8 | layout.source[starts + byte]
    for schema_id in _distinct(ids):
        of_id = slice(None) if schema_id is None else np.flatnonzero(ids == schema_id)
        key = SchemaId(int(ids[0] if schema_id is None else schema_id))
        yield FrameGroup(key, rows[of_id], starts[of_id] + PREFIX_BYTES, ends[of_id])


def _distinct(ids: Int64s) -> list[int | None]:
    """The ids; None for the only one, if all rows have the same, as nearly always."""
    if len(ids) and (ids == ids[0]).all():
        return [None]
    return list(np.unique(ids).tolist())


def _by_guid(layout: Layout, left: Bools) -> Iterator[FrameGroup]:
    """A GUID in front of the payload, where a header was folded into the value."""
    rows = _starting_with(layout, left, GUID_MAGIC, GUID_BYTES)
    starts, ends = layout.starts[rows], layout.ends[rows]
    guids = layout.source[starts[:, None] + np.arange(1, GUID_BYTES)]
    distinct, codes = np.unique(guids, axis=0, return_inverse=True)
    for code, guid in enumerate(distinct):
        of_guid = np.flatnonzero(codes.reshape(-1) == code)
        key = UUID(bytes=guid.tobytes())
        yield FrameGroup(key, rows[of_guid], starts[of_guid] + GUID_BYTES, ends[of_guid])


def _starting_with(layout: Layout, left: Bools, magic: int, size_min: int) -> Int64s:
    rows = np.flatnonzero(left & (layout.ends - layout.starts >= size_min))
    chosen: Int64s = rows[layout.source[layout.starts[rows]] == magic]
    return chosen


def _unframed(layout: Layout, row: int) -> RowError:
    """Why this is not a frame, as for a single value."""
    try:
        read_frame(layout.source[layout.starts[row] : layout.ends[row]].tobytes())
    except BadFrameError as error:
        return RowError(row, error.kind, str(error), None)
    raise AssertionError("a frame is in a group")
