"""Framed Avro values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Mapping, Sequence
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
from penstock.serde.avro.event import REASONS, AvroEventEncoder, sized
from penstock.serde.batch_frames import FrameGroup, WrongRow
from penstock.serde.column_codec import Part, all_wrong, decoded_parts, joined
from penstock.serde.errors import Reason
from penstock.serde.event_codec import Misfit

DECODERS_MAX: Final = 1000  # then they are made anew when they are met again


class AvroColumns:
    """Reads what any Avro schema wrote, resolved to one reader's."""

    def __init__(self, reader: AvroSchema, columns: Sequence[str] | None) -> None:
        self._reader = reader
        self._columns = columns
        self._decoders: dict[int, tuple[AvroSchema, AvroBatchDecoder]] = {}
        schema = self._decoder(reader).schema
        # Not from_pylist: it loads pandas, where there is one, into every worker of Spark's.
        nothing: list[Any] = [pa.nulls(0, one.type) for one in schema]
        self.empty = pa.RecordBatch.from_arrays(nothing, schema=schema)

    def read(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, wrongs: list[WrongRow]
    ) -> Iterator[Part]:
        """The rows of one writer's schema."""
        if not isinstance(writer, AvroSchema):
            told = f"written as {writer.type}, to be read as AVRO"
            wrongs += all_wrong(group, Reason.UNRESOLVABLE, told)
        elif group.header:
            wrongs += all_wrong(group, Reason.TRAILING_BYTES, "the header goes on after the GUID")
        else:
            decoder = self._decoder(writer)
            if writer.root.kind is AvroType.BYTES:
                source, group = _sized(source, group)
            yield from decoded_parts(decoder, source, group, _told, AvroFault.TOO_LARGE, wrongs)

    def _decoder(self, writer: AvroSchema) -> AvroBatchDecoder:
        known = self._decoders.get(id(writer))
        if known is None:
            if len(self._decoders) >= DECODERS_MAX:
                self._decoders.clear()
            known = (writer, AvroBatchDecoder(writer, self._reader, self._columns))
            self._decoders[id(writer)] = known  # the writer is kept, so its id is too
        return known[1]


def _sized(source: Bytes, group: FrameGroup) -> tuple[Bytes, FrameGroup]:
    """Events that are bytes and nothing else are written without their length: here with it."""
    payloads = [
        sized(source[start:end].tobytes())
        for start, end in zip(group.starts.tolist(), group.ends.tolist(), strict=True)
    ]
    buffer, offsets = joined(payloads)
    return buffer, group._replace(starts=offsets[:-1], ends=offsets[1:])


def _told(code: int) -> tuple[Reason, str]:
    fault = AvroFault(code)
    return REASONS.get(fault.name, Reason.UNDECODABLE), fault.reason


class AvroRows:
    """Writes dicts or Arrow batches."""

    indexes: Sequence[int] | None = None

    def __init__(self, schema: AvroSchema) -> None:
        self._encoder = AvroBatchEncoder(schema)
        self._raw = AvroEventEncoder(schema) if schema.root.kind is AvroType.BYTES else None

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> tuple[Bytes, Int64s]:
        """Payloads behind a prefix, and their offsets; Misfit names the first row that is none."""
        if self._raw is not None:
            values = rows.column(VALUE).to_pylist() if isinstance(rows, pa.RecordBatch) else rows
            return joined([prefix + self._raw.encode(value).payload for value in values])
        if isinstance(rows, pa.RecordBatch):
            buffer, offsets, faults = self._encoder.encode(rows, prefix)
        else:
            buffer, offsets, faults = self._encoder.encode_rows(rows, prefix)
        if faults.any():
            row = int(np.flatnonzero(faults)[0])
            raise Misfit(f"row {row}: {AvroFault(int(faults[row])).reason}")
        return buffer, offsets
