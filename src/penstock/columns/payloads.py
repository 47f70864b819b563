"""What payloads of any language decode to and are encoded from, and how much they may ask for."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.shape import ArrowArray


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one payload and one batch may ask for; beyond the first three a row is wrong."""

    value_bytes_max: int = 64 << 20
    items_max: int = 1 << 20  # of all arrays and maps of one payload together
    nesting_max: int = 200
    output_bytes_max: int = 1 << 30  # beyond: OutputTooLarge, and the caller decodes fewer rows

    def __post_init__(self) -> None:
        assert 0 < self.output_bytes_max < 1 << 31, "Arrow's offsets have 32 bits"
        assert self.nesting_max > 0


USUAL_LIMITS: Final = Limits()


class OutputTooLarge(Exception):
    """The rows together decode to more than the limit; fewer at a time will do."""

    def __init__(self, row: int, rows: int, limit_bytes: int) -> None:
        super().__init__(
            f"{rows} payloads decode to more than {limit_bytes} bytes; "
            f"the first {row} fit: decode fewer at a time"
        )
        self.row = row


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns with a value per payload, and what is wrong with each: such a row is all nulls."""

    names: tuple[str, ...]
    columns: tuple[ArrowArray, ...]
    errors: Bytes  # a Wrong per row
    error_places: Int64s  # where in the payload; of rows that are wrong only

    def to_batch(self) -> pa.RecordBatch:
        """The columns as a batch of Arrow's."""
        if not self.columns:  # a batch has no length of its own
            nothing: Any = pa.Array.from_buffers(
                pa.struct([]), len(self.errors), [None], children=[]
            )
            return pa.RecordBatch.from_struct_array(nothing)
        return pa.RecordBatch.from_arrays(list(self.columns), names=list(self.names))


class PayloadsTooLarge(Exception):
    """The rows together encode to more than the limit; fewer at a time will do."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Payload i is buffer[offsets[i]:offsets[i + 1]]; that of a wrong row is empty."""

    buffer: Bytes
    offsets: Int64s
    errors: Bytes  # a Wrong per row


def packed_bits(flags: NDArray[Any]) -> pa.Buffer:
    """A byte per flag as Arrow has them, a bit each."""
    return pa.py_buffer(np.packbits(flags, bitorder="little").data)
