"""What opened batches look like: numpy arrays, one row per record, and Arrow over the same memory.

Nothing here is copied on the way to Arrow but the validity bits. A null and an empty value differ
in `valid` alone. Arrays belong to whoever holds the columns; nothing else writes to them.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.compiled import Bools, Bytes, Int32s, Int64s
from penstock.model import Offset

T = TypeVar("T", bound=np.generic)
ArrowArray: TypeAlias = "pa.Array[Any]"  # quoted: only the stubs know that it is generic

BINARY: Final = pa.binary()
TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)


def _arrow_buffer(array: NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(array.data)


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Arrow's binary layout: row i is content[offsets[i]:offsets[i + 1]]."""

    offsets: Int32s  # one more than rows
    content: Bytes
    valid: Bools | None  # None: no row is null

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> bytes | None:
        """One row as Python sees it: for tests and error messages, not for loops."""
        if self.valid is not None and not self.valid[index]:
            return None
        return self.content[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def to_arrow(self, kind: pa.DataType = BINARY) -> ArrowArray:
        """The same memory as an Arrow array, binary unless told otherwise."""
        validity = None
        if self.valid is not None:
            validity = _arrow_buffer(np.packbits(self.valid, bitorder="little"))
        buffers = [validity, _arrow_buffer(self.offsets), _arrow_buffer(self.content)]
        return pa.Array.from_buffers(kind, len(self), buffers)


@dataclass(frozen=True, slots=True)
class BytesPlaces:
    """A column left where it was opened: row i is source[starts[i]:ends[i]].

    For who looks at every row once and needs no copy. Holds on to the whole source.
    """

    source: Bytes
    starts: Int64s
    ends: Int64s
    valid: Bools | None  # None: no row is null

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, index: int) -> bytes | None:
        """One row as Python sees it."""
        if self.valid is not None and not self.valid[index]:
            return None
        return self.source[self.starts[index] : self.ends[index]].tobytes()


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """Row i has the headers offsets[i] to offsets[i + 1] of `keys` and `values`. Keys are UTF-8."""

    offsets: Int32s  # one more than rows
    keys: BytesColumn
    values: BytesColumn

    def to_arrow(self) -> ArrowArray:
        """A list of (key: string, value: binary) per row."""
        pairs = pa.StructArray.from_arrays(
            [self.keys.to_arrow(pa.string()), self.values.to_arrow()], fields=list(HEADER_TYPE)
        )
        return pa.Array.from_buffers(
            HEADERS_TYPE,
            len(self.offsets) - 1,
            [None, _arrow_buffer(self.offsets)],
            children=[pairs],
        )


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is true of a whole batch, a row per batch that was opened, in log order."""

    row_counts: Int64s  # how many rows of the columns are of this batch
    base_offsets: Int64s
    leader_epochs: Int32s
    attributes: NDArray[np.int16]
    producer_ids: Int64s  # -1: none
    producer_epochs: NDArray[np.int16]
    base_sequences: Int32s

    def per_row(self, facts: NDArray[T]) -> NDArray[T]:
        """One of the arrays above, a value per record instead of per batch."""
        return np.repeat(facts, self.row_counts)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records of one run of batches. A column that was not wanted is None.

    offsets rise; every offset is below end_offset, and end_offset is where to read on: past control
    batches, aborted records and the gaps that compaction left.
    """

    offsets: Int64s
    timestamps: Int64s  # milliseconds; the append time where the topic says so
    keys: BytesColumn | None
    values: BytesColumn | None
    headers: HeadersColumn | None
    batches: BatchFacts
    end_offset: Offset  # exclusive
    end_position: int  # where in the buffer the first batch begins that was not looked at
    value_places: BytesPlaces | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def to_arrow(self) -> pa.RecordBatch:
        """offset, timestamp, then key, value and headers if they were wanted."""
        timestamps = pa.array(self.timestamps).view(TIMESTAMP_TYPE)
        columns: dict[str, ArrowArray] = {
            "offset": pa.array(self.offsets),
            "timestamp": timestamps,
        }
        if self.keys is not None:
            columns["key"] = self.keys.to_arrow()
        if self.values is not None:
            columns["value"] = self.values.to_arrow()
        if self.headers is not None:
            columns["headers"] = self.headers.to_arrow()
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
