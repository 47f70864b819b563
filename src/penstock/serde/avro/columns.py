"""Framed Avro values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.avro.read_program import AvroFault
from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.avro import AvroSchema
from penstock.schemas.avro.tree import AvroType
from penstock.schemas.model import ParsedSchema
from penstock.serde.avro.batch import AvroBatchDecoder, AvroBatchEncoder
from penstock.serde.avro.compile_read import VALUE
from penstock.serde.avro.event import REASONS, RawBytesEncoder, avro_schema, with_length
from penstock.serde.batch_frames import FrameGroup, RowError
from penstock.serde.column_codec import (
    ColumnRequest,
    DecodedRows,
    GroupDecoder,
    Rows,
    RowsEncoder,
    decode_group,
    group_errors,
    header_errors,
    join_payloads,
)
from penstock.serde.contract import Contract
from penstock.serde.errors import Reason
from penstock.serde.event_codec import Indexes, InvalidValueError, no_message

DECODERS_MAX: Final = 1000  # then all are dropped, and made again when they are needed


def group_decoder(
    reader: ParsedSchema | None, _contract: Contract, request: ColumnRequest
) -> GroupDecoder:
    """Decodes into the columns of a reader's schema."""
    assert reader is not None, "only Protobuf has generated classes"
    return AvroGroupDecoder(avro_schema(reader), request.columns)


def rows_encoder(schema: ParsedSchema, _contract: Contract) -> RowsEncoder:
    """Encodes rows of a schema."""
    avro = avro_schema(schema)
    return RawBytesRowsEncoder() if avro.root.kind is AvroType.BYTES else AvroRowsEncoder(avro)


most_named: Final = no_message
first_message: Final = no_message


class AvroGroupDecoder:
    """Decodes what any Avro schema wrote, resolved to one reader's."""

    def __init__(self, reader: AvroSchema, columns: Sequence[str] | None) -> None:
        self._reader = reader
        self._columns = columns
        self._decoders: dict[int, tuple[AvroSchema, AvroBatchDecoder]] = {}
        schema = self._decoder(reader).schema
        # Not from_pylist: it loads pandas, where it is installed, into every worker of Spark's.
        nothing: list[Any] = [pa.nulls(0, field.type) for field in schema]
        self.empty: pa.RecordBatch = pa.RecordBatch.from_arrays(nothing, schema=schema)

    def decode(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, errors: list[RowError]
    ) -> Iterator[DecodedRows]:
        """The rows of one writer's schema."""
        if not isinstance(writer, AvroSchema):
            detail = f"written as {writer.type}, to be read as AVRO"
            errors += group_errors(group, Reason.UNRESOLVABLE, detail)
        elif malformed := header_errors(group):
            errors += malformed
        else:
            decoder = self._decoder(writer)
            if writer.root.kind is AvroType.BYTES:
                source, group = _with_lengths(source, group)
            yield from decode_group(decoder, source, group, _explain, AvroFault.TOO_LARGE, errors)

    def _decoder(self, writer: AvroSchema) -> AvroBatchDecoder:
        known = self._decoders.get(id(writer))
        if known is None:
            if len(self._decoders) >= DECODERS_MAX:
                self._decoders.clear()
            known = (writer, AvroBatchDecoder(writer, self._reader, self._columns))
            self._decoders[id(writer)] = known  # the writer lives, so its id is unique
        return known[1]


def _with_lengths(source: Bytes, group: FrameGroup) -> tuple[Bytes, FrameGroup]:
    """Events that are bytes and nothing else are written without their length: here with it."""
    payloads = [
        with_length(source[start:end].tobytes())
        for start, end in zip(group.starts.tolist(), group.ends.tolist(), strict=True)
    ]
    buffer, offsets = join_payloads(payloads)
    return buffer, group._replace(starts=offsets[:-1], ends=offsets[1:])


def _explain(code: int) -> tuple[Reason, str]:
    fault = AvroFault(code)
    return REASONS.get(fault.name, Reason.UNDECODABLE), fault.reason


class AvroRowsEncoder:
    """Encodes dicts or Arrow batches."""

    indexes: Indexes | None = None

    def __init__(self, schema: AvroSchema) -> None:
        self._encoder = AvroBatchEncoder(schema)

    def encode(self, rows: Rows, prefix: bytes) -> tuple[Bytes, Int64s]:
        """Payloads after a prefix, and their offsets; InvalidValueError has the first bad row."""
        if isinstance(rows, pa.RecordBatch):
            buffer, offsets, faults = self._encoder.encode(rows, prefix)
        else:
            buffer, offsets, faults = self._encoder.encode_rows(rows, prefix)
        if faults.any():
            row = int(np.flatnonzero(faults)[0])
            raise InvalidValueError(f"row {row}: {AvroFault(int(faults[row])).reason}")
        return buffer, offsets


class RawBytesRowsEncoder:
    """Encodes rows of a schema of bytes and nothing else."""

    indexes: Indexes | None = None

    def encode(self, rows: Rows, prefix: bytes) -> tuple[Bytes, Int64s]:
        """Payloads after a prefix, and their offsets."""
        values = rows.column(VALUE).to_pylist() if isinstance(rows, pa.RecordBatch) else rows
        encoder = RawBytesEncoder()
        return join_payloads([prefix + encoder.encode(value)[0] for value in values])
