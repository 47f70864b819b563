"""What opened batches look like: numpy arrays with a row per record. `arrow_records` has the Arrow.

A null and an empty value differ in `valid` alone. Nothing writes to the arrays once they are made.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.columns.compiled import Bools, Bytes, Int32s, Int64s
from penstock.model import Offset

T = TypeVar("T", bound=np.generic)


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


@dataclass(frozen=True, slots=True)
class BytesSpans:
    """A column left where it was opened: row i is source[starts[i]:ends[i]].

    For callers that look at every row once and need no copy. Keeps the whole source in memory.
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
    """The records of one run of batches. A column that was not requested is None.

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
    value_spans: BytesSpans | None = None

    def __len__(self) -> int:
        return len(self.offsets)
