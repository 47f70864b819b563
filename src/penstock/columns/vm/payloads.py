"""What payloads of any language decode to and are encoded to, and how much they may ask for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s

if TYPE_CHECKING:
    from penstock.columns.arrow_records import ArrowArray


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """How much one payload and one batch may ask for; beyond the first three a row is invalid."""

    value_bytes_max: int = 64 << 20
    items_max: int = 1 << 20  # of all arrays and maps of one payload together
    nesting_max: int = 200
    output_bytes_max: int = 1 << 30  # beyond: OutputTooLargeError, and the caller decodes fewer

    def __post_init__(self) -> None:
        assert 0 < self.output_bytes_max < 1 << 31, "Arrow's offsets have 32 bits"
        assert self.nesting_max > 0


USUAL_LIMITS: Final = PayloadLimits()


class OutputTooLargeError(Exception):
    """The rows together decode to more than the limit; fewer at a time fit."""

    def __init__(self, row: int, rows: int, limit_bytes: int) -> None:
        super().__init__(
            f"{rows} payloads decode to more than {limit_bytes} bytes; "
            f"the first {row} fit: decode fewer at a time"
        )
        self.row = row


class PayloadsTooLargeError(Exception):
    """The rows together encode to more than the limit; fewer at a time fit."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns with a value per payload, and a fault code per row: an invalid row is all nulls."""

    names: tuple[str, ...]
    columns: "tuple[ArrowArray, ...]"
    faults: Bytes  # a fault of the language per row; 0 if there is none
    fault_positions: Int64s  # where in the payload; of invalid rows only

    def to_batch(self) -> pa.RecordBatch:
        """The columns as a batch of Arrow's."""
        if not self.columns:  # a batch has no length of its own
            nothing: Any = pa.Array.from_buffers(
                pa.struct([]), len(self.faults), [None], children=[]
            )
            return pa.RecordBatch.from_struct_array(nothing)
        return pa.RecordBatch.from_arrays(list(self.columns), names=list(self.names))


@dataclass(frozen=True, slots=True)
class Encoded:
    """Payload i is buffer[offsets[i]:offsets[i + 1]]; that of an invalid row is empty."""

    buffer: Bytes
    offsets: Int64s
    faults: Bytes  # a fault of the language per row; 0 if there is none
