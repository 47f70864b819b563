"""Many Protobuf payloads at once: bytes to an Arrow batch and back, with an error per row.

A decoder is made once for a message and used for every batch. Nothing is silently wrong: a row that
cannot be read is null in every column and has its reason in `errors`; its neighbours never know.
Columns have the types that `protobuf_types` says; one whose type contains itself is JSON text, read
row by row and so much slower.

    decoder = ProtobufDecoder(order_pb2.Order, columns=["id", "total"])
    batch, errors = decoder.decode(buffer, starts, ends)
    reasons = [Wrong(code).reason for code in errors[errors > 0]]
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.client.avro_types import NotExpressible
from penstock.client.protobuf_program import compile_decoder, wanted_names
from penstock.client.protobuf_rows import RowReader
from penstock.client.protobuf_types import TimeUnit, arrow_type
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.payloads import USUAL_LIMITS, Decoded, Limits
from penstock.columns.protobuf.decoding import decode
from penstock.columns.protobuf.program import Wrong
from penstock.columns.shape import ArrowArray
from penstock.protocol.primitives import Buffer

__all__ = ["ProtobufDecoder", "Wrong"]


class ProtobufDecoder:
    """Reads one message, whoever wrote it.

    Payloads are bare messages: no frame around them. `columns` are names of fields, in the order
    wanted; the others are stepped over. Safe to share between threads.
    """

    def __init__(
        self,
        message_type: Any,
        columns: Sequence[str] | None = None,
        *,
        unit: TimeUnit = "us",
        limits: Limits = USUAL_LIMITS,
    ) -> None:
        message = message_type.DESCRIPTOR
        self._limits = limits
        self._names = wanted_names(message, columns)
        self._trees = tuple(name for name in self._names if not _is_expressible(message, name))
        self._rows = RowReader(message_type, self._trees) if self._trees else None
        plain = [name for name in self._names if name not in self._trees]
        self._program = compile_decoder(message, plain, unit)

    def decode(
        self, buffer: Buffer | Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]:
        """The payloads buffer[starts[i]:ends[i]] as columns, and a `Wrong` per row.

        Raises OutputTooLarge when all rows together are beyond the limit: decode fewer at a time.
        """
        source = read_only(buffer)
        decoded = decode(
            self._program,
            source,
            np.ascontiguousarray(starts, dtype=np.int64),
            np.ascontiguousarray(ends, dtype=np.int64),
            self._limits,
        )
        if self._rows is not None:
            decoded = self._with_trees(decoded, self._rows, source, starts, ends)
        return decoded.to_batch(), decoded.errors

    def _with_trees(
        self, decoded: Decoded, rows: RowReader, source: Bytes, starts: Int64s, ends: Int64s
    ) -> Decoded:
        """The kernel's columns, and those it left, for the rows it found nothing wrong with."""
        errors = decoded.errors.copy()
        texts: dict[str, list[str | None]] = {name: [None] * len(errors) for name in self._trees}
        for row in np.flatnonzero(errors == 0).tolist():
            payload = source[starts[row] : ends[row]].tobytes()
            told, errors[row] = rows.read(payload)
            for name, text in told.items():
                texts[name][row] = text
        columns = dict(zip(decoded.names, decoded.columns, strict=True))
        if (errors != decoded.errors).any():
            valid = errors == 0
            columns = {name: _nulled(column, valid) for name, column in columns.items()}
        columns |= {name: pa.array(column, pa.string()) for name, column in texts.items()}
        ordered = tuple(columns[name] for name in self._names)
        return Decoded(self._names, ordered, errors, decoded.error_places)


def _nulled(column: ArrowArray, valid: "np.ndarray[Any, Any]") -> ArrowArray:
    rows: Any = pa.array(np.arange(len(valid)), mask=~valid)
    return column.take(rows)


def _is_expressible(message: Any, name: str) -> bool:
    try:
        arrow_type(message.fields_by_name[name])
    except NotExpressible:
        return False
    return True
