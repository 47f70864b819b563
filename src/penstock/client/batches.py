"""Many Avro events at once: framed values to Arrow and back, grouped by schema, without a loop.

    read = BatchDeserializer(registry, "orders", columns=["id", "total"])
    batch, wrongs = read.deserialize_many(values)

Rows keep their order; one that cannot be read is null in every column and has its reason among the
wrongs. Protobuf and JSON go one by one through `Deserializer`. What
the registry cannot be asked for now raises RegistryUnavailable.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.client.avro_batches import AvroDecoder, AvroEncoder, Wrong
from penstock.client.avro_event import own
from penstock.client.batch_frames import (
    FrameGroup,
    RowHeaders,
    Values,
    WrongRow,
    group_frames,
    lay_out,
)
from penstock.client.contract import Contract
from penstock.client.errors import ClientError, Reason, Unencodable, UnknownSchema
from penstock.client.frame import Side, write_prefix
from penstock.client.registry import Registry, UnusableSchema
from penstock.client.serializers import Deserializer, Serializer
from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.avro import AvroSchema
from penstock.schemas.model import SchemaType

DECODERS_MAX: Final = 1000
_REASONS: Final = {
    Wrong.TRAILING: Reason.TRAILING_BYTES,
    Wrong.SYMBOL: Reason.UNRESOLVABLE,
    Wrong.UNRESOLVABLE: Reason.UNRESOLVABLE,
}


class ReadBatch(NamedTuple):
    """Columns with a row per value, and what was wrong with some; nulls are rows of nulls."""

    batch: pa.RecordBatch
    wrongs: list[WrongRow]


class Encoded(NamedTuple):
    """Framed values end to end: value i is buffer[offsets[i]:offsets[i + 1]]."""

    buffer: Bytes
    offsets: Int64s

    def contents(self) -> list[bytes]:
        """The values one by one."""
        whole = self.buffer.tobytes()
        return [
            whole[start:end] for start, end in zip(self.offsets, self.offsets[1:], strict=False)
        ]


class BatchSerializer:
    """Writes many values of one topic under an Avro contract."""

    def __init__(
        self,
        registry: Registry,
        topic: str,
        contract: Contract | None = None,
        *,
        side: Side = Side.VALUE,
    ) -> None:
        self._one = Serializer(registry, topic, contract, side=side)
        self._encoder: tuple[AvroSchema, AvroEncoder] | None = None

    def serialize_many(self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch") -> Encoded:
        """All rows, or Unencodable that names the first one that does not fit."""
        registration, parsed = self._one.prepare()
        schema = _avro(parsed, self._one.subject)
        if self._encoder is None or self._encoder[0] is not schema:
            self._encoder = (schema, AvroEncoder(schema))
        encoder, prefix = self._encoder[1], write_prefix(registration.id)
        if isinstance(rows, pa.RecordBatch):
            buffer, offsets, errors = encoder.encode(rows, prefix)
        else:
            buffer, offsets, errors = encoder.encode_rows(rows, prefix)
        if errors.any():
            row = int(np.flatnonzero(errors)[0])
            told = f"row {row}: {Wrong(int(errors[row])).reason}"
            raise Unencodable(self._one.subject, SchemaType.AVRO, told)
        self._one.stats.events += len(errors)
        return Encoded(buffer, offsets)


class BatchDeserializer:
    """Reads many values of one topic, as one reader's schema sees them.

    `reader` is a contract; without one, the latest version of the subject. `columns` are the
    fields wanted, in that order; the others are stepped over.
    """

    def __init__(
        self,
        registry: Registry,
        topic: str,
        *,
        reader: Contract | None = None,
        columns: Sequence[str] | None = None,
        side: Side = Side.VALUE,
    ) -> None:
        self._registry = registry
        self._columns = columns
        self._side = side
        self._one = Deserializer(registry, topic, reader=reader or Contract(), side=side)
        self._decoders: dict[tuple[int, int], tuple[AvroSchema, AvroSchema, AvroDecoder]] = {}
        self.stats = self._one.stats

    def arrow_schema(self) -> pa.Schema:
        """The columns that every batch will have; asks the registry once, and reads no value."""
        return self._empty(self._reader()).schema

    def deserialize_many(self, values: Values, headers: RowHeaders = None) -> ReadBatch:
        """The values as columns; raises RegistryUnavailable, never for a value's own fault.

        `headers` are the records' own, a list of pairs or None per value: a schema named there
        goes before one in a prefix.
        """
        layout = lay_out(values)
        reader = self._reader()
        groups, wrongs = group_frames(layout, headers, self._side)
        order: list[Int64s] = []
        parts: list[pa.RecordBatch] = []
        for group in groups:
            part = self._decoded(group, layout.source, reader, wrongs)
            if part is not None:
                order.append(group.rows)
                parts.append(part)
        for wrong in wrongs:
            self.stats.note_error(self._one.subject, wrong.reason)
        rows = len(layout.starts)
        self.stats.events += rows - int(layout.is_null.sum()) - len(wrongs)
        return ReadBatch(_in_order(parts, order, rows, self._empty(reader)), sorted(wrongs))

    def _empty(self, reader: AvroSchema) -> pa.RecordBatch:
        return self._decoder(reader, reader).decode(b"", _NO_ROWS, _NO_ROWS)[0]

    def _reader(self) -> AvroSchema:
        schema = self._one.reader_schema()
        assert schema is not None, "there is always a reader"
        return _avro(schema, self._one.subject)

    def _decoded(
        self, group: FrameGroup, source: Bytes, reader: AvroSchema, wrongs: list[WrongRow]
    ) -> pa.RecordBatch | None:
        named, rows = str(group.schema), group.rows.tolist()
        if group.header:
            told = "the header goes on after the GUID"
            wrongs += [WrongRow(row, Reason.TRAILING_BYTES, told, named) for row in rows]
            return None
        try:
            writer = self._registry.schema(group.schema).parsed
        except UnknownSchema as failure:
            wrongs += [WrongRow(row, Reason.UNKNOWN_SCHEMA, str(failure), named) for row in rows]
            return None
        except UnusableSchema as failure:
            wrongs += [WrongRow(row, Reason.UNUSABLE_SCHEMA, str(failure), named) for row in rows]
            return None
        if not isinstance(writer, AvroSchema):
            told = f"written as {writer.type}, to be read as AVRO"
            wrongs += [WrongRow(row, Reason.UNRESOLVABLE, told, named) for row in rows]
            return None
        decoder = self._decoder(writer, reader)
        batch, errors = decoder.decode(source, group.starts, group.ends)
        for index in np.flatnonzero(errors).tolist():
            wrong = Wrong(int(errors[index]))
            reason = _REASONS.get(wrong, Reason.UNDECODABLE)
            wrongs.append(WrongRow(rows[index], reason, wrong.reason, named))
        return batch

    def _decoder(self, writer: AvroSchema, reader: AvroSchema) -> AvroDecoder:
        known = self._decoders.get((id(writer), id(reader)))
        if known is None:
            if len(self._decoders) >= DECODERS_MAX:
                self._decoders.clear()
            known = (writer, reader, AvroDecoder(writer, reader, self._columns))
            self._decoders[id(writer), id(reader)] = known  # both kept, so that their ids are
        return known[2]


_NO_ROWS: Final = np.empty(0, dtype=np.int64)


def _avro(schema: Any, subject: str) -> AvroSchema:
    if schema.type is not SchemaType.AVRO:
        raise ClientError(f"{subject} is {schema.type}: its events go one by one")
    return own(schema)


def _in_order(
    parts: list[pa.RecordBatch], order: list[Int64s], rows: int, empty: pa.RecordBatch
) -> pa.RecordBatch:
    """The parts' rows back where they were; rows of none of them are null."""
    if len(parts) == 1 and len(order[0]) == rows:
        return parts[0]
    table = pa.Table.from_batches([empty, *parts], schema=empty.schema).combine_chunks()
    place = np.full(rows, -1, dtype=np.int64)
    if order:
        everything = np.concatenate(order)
        place[everything] = np.arange(len(everything))
    places: Any = pa.array(place, mask=place < 0)
    taken = table.take(places).combine_chunks()
    batches = taken.to_batches()
    return batches[0] if batches else empty
