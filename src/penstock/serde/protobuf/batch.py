"""Many Protobuf payloads at once: bytes to an Arrow batch and back, with a fault per row.

A decoder is made once for a message and used for every batch. Nothing is silently wrong: a row that
cannot be decoded is null in every column and has its reason in `faults`; other rows are not
affected. Columns have the types of `protobuf.types`; one whose type contains itself is JSON text,
decoded row by row and so much slower.

    decoder = ProtobufBatchDecoder(order_pb2.Order, columns=["id", "total"])
    batch, faults = decoder.decode(buffer, starts, ends)
    reasons = [ProtobufFault(code).reason for code in faults[faults > 0]]
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import ArrowArray
from penstock.columns.compiled import Bytes, Int64s, read_only
from penstock.columns.protobuf.read_program import ProtobufFault
from penstock.columns.protobuf.run import decode, encode
from penstock.columns.vm.payloads import USUAL_LIMITS, Decoded, Encoded, PayloadLimits
from penstock.protocol.varint import Buffer
from penstock.serde.avro.compile_write import with_nulls
from penstock.serde.avro.types import NotExpressibleError
from penstock.serde.column_codec import join_payloads
from penstock.serde.protobuf.compile_read import compile_decoder, requested_names
from penstock.serde.protobuf.compile_write import compile_encoder
from penstock.serde.protobuf.rows import ProtobufRowDecoder, ProtobufRowEncoder
from penstock.serde.protobuf.types import TimeUnit, arrow_type

__all__ = ["ProtobufBatchDecoder", "ProtobufBatchEncoder", "ProtobufFault"]


# Each item takes a byte: the limit of an event's bytes is theirs too, as when one event is read.
LIMITS: Final = PayloadLimits(items_max=USUAL_LIMITS.value_bytes_max)


class ProtobufBatchDecoder:
    """Decodes one message, whichever schema wrote it.

    Payloads are bare messages: no frame around them. `columns` are names of fields, in the order
    requested; the others are skipped. Safe to share between threads.
    """

    def __init__(
        self,
        message_type: Any,
        columns: Sequence[str] | None = None,
        *,
        unit: TimeUnit = "us",
        limits: PayloadLimits = LIMITS,
    ) -> None:
        message = message_type.DESCRIPTOR
        self._limits = limits
        self._names = requested_names(message, columns)
        self._trees = tuple(name for name in self._names if not _is_expressible(message, name))
        self._rows = ProtobufRowDecoder(message_type, self._trees) if self._trees else None
        plain = [name for name in self._names if name not in self._trees]
        self._program = compile_decoder(message, plain, unit)

    def decode(
        self, buffer: Buffer | Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]:
        """The payloads buffer[starts[i]:ends[i]] as columns, and a `ProtobufFault` per row.

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
        return decoded.to_batch(), decoded.faults

    def _with_trees(
        self,
        decoded: Decoded,
        rows: ProtobufRowDecoder,
        source: Bytes,
        starts: Int64s,
        ends: Int64s,
    ) -> Decoded:
        """The kernel's columns, and the trees, which it skipped, of the rows it found valid."""
        faults = decoded.faults.copy()
        texts: dict[str, list[str | None]] = {name: [None] * len(faults) for name in self._trees}
        for row in np.flatnonzero(faults == 0).tolist():
            payload = source[starts[row] : ends[row]].tobytes()
            decoded_texts, faults[row] = rows.decode(payload)
            for name, text in decoded_texts.items():
                texts[name][row] = text
        columns = dict(zip(decoded.names, decoded.columns, strict=True))
        if (faults != decoded.faults).any():
            valid = faults == 0
            columns = {name: _nulled(column, valid) for name, column in columns.items()}
        columns |= {name: pa.array(column, pa.string()) for name, column in texts.items()}
        ordered = tuple(columns[name] for name in self._names)
        return Decoded(self._names, ordered, faults, decoded.fault_positions)


def _nulled(column: ArrowArray, valid: "np.ndarray[Any, Any]") -> ArrowArray:
    rows: Any = pa.array(np.arange(len(valid)), mask=~valid)
    return column.take(rows)


def _is_expressible(message: Any, name: str) -> bool:
    try:
        arrow_type(message.fields_by_name[name])
    except NotExpressibleError:
        return False
    return True


class ProtobufBatchEncoder:
    """Encodes rows as one message. Safe to share between threads.

    A null is a field that is not set, and so is a column that is missing. Nothing is made up: two
    members of a oneof, a null among items, or a name that an enum does not have is a fault of that
    row. An enum may also be given by number, in a column of numbers or as digits.
    """

    def __init__(self, message_type: Any, limits: PayloadLimits = USUAL_LIMITS) -> None:
        self._message = message_type.DESCRIPTOR
        self._limits = limits
        names = [field.name for field in self._message.fields]
        self._names = [name for name in names if _is_expressible(self._message, name)]
        self._trees = frozenset(names).difference(self._names)
        self._rows = ProtobufRowEncoder(message_type)
        self._programs: dict[TimeUnit, Any] = {}

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> tuple[Bytes, Int64s, Bytes]:
        """The rows as payloads after `prefix`: a buffer, one more offset than rows, faults by row.

        An invalid row has an empty payload, without prefix.

        ValueError when the columns are not the message's.
        """
        known = {*self._names, *self._trees}
        unknown = [name for name in batch.schema.names if name not in known]
        if unknown:
            raise ValueError(f"{self._message.full_name} has no field {unknown[0]!r}")
        unit: TimeUnit = "ns" if any(map(_has_nanos, batch.schema.types)) else "us"
        if unit not in self._programs:
            self._programs[unit] = compile_encoder(self._message, self._names, unit)
        program, inputs = self._programs[unit]
        columns = [self._column(batch, name, unit) for name in self._names]
        sources = list(zip(columns, inputs, strict=True))
        encoded = encode(program, sources, batch.num_rows, prefix, self._limits)
        if self._trees.intersection(batch.schema.names):
            encoded = self._with_trees(encoded, batch)
        return encoded.buffer, encoded.offsets, encoded.faults

    def _column(self, batch: pa.RecordBatch, name: str, unit: TimeUnit) -> Any:
        kind: Any = with_nulls(arrow_type(self._message.fields_by_name[name], unit))
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, kind)
        column = batch.column(name)
        try:
            fitting = column if with_nulls(column.type) == kind else column.cast(kind)
            fitting.validate()  # Arrow's cast of a slice may lose the length of null children
        except pa.ArrowException as wrong:
            raise ValueError(f"the column {name!r} does not fit the message: {wrong}") from None
        return fitting

    def _with_trees(self, encoded: Encoded, batch: pa.RecordBatch) -> Encoded:
        """The trees, which the kernel cannot encode, after the rest: together a message."""
        names = [name for name in batch.schema.names if name in self._trees]
        texts = [batch.column(name).to_pylist() for name in names]
        faults = encoded.faults.copy()
        payloads = []
        for row, given in enumerate(zip(*texts, strict=True)):
            start, end = encoded.offsets[row], encoded.offsets[row + 1]
            extra, fault = self._rows.encode(dict(zip(names, given, strict=True)))
            faults[row] = faults[row] or fault
            payloads.append(b"" if faults[row] else encoded.buffer[start:end].tobytes() + extra)
        buffer, offsets = join_payloads(payloads)
        return Encoded(buffer, offsets, faults)


def _has_nanos(kind: Any) -> bool:
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanos(kind.field(index).type) for index in range(kind.num_fields))
