"""Many events at once: framed values to Arrow and back, in any of the three languages.

    read = BatchDeserializer(registry, "orders", columns=["id", "total"])
    batch, wrongs = read.deserialize_many(values)

Values are grouped by the schema that wrote them and each group is read as a whole. Rows keep their
order; one that cannot be read is null in every column and has its reason among the wrongs. What the
registry cannot be asked for now raises RegistryUnavailableError.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import bytes_to_arrow, headers_to_arrow, timestamps_to_arrow
from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.open_batches import open_pages
from penstock.columns.record_columns import BytesPlaces, RecordColumns
from penstock.columns.vm.payloads import USUAL_LIMITS, OutputTooLargeError
from penstock.model import Offset, ProducerId
from penstock.protocol.varint import Buffer
from penstock.schemas.model import InvalidSchemaError, ParsedSchema, SchemaType
from penstock.serde.batch_frames import (
    FrameGroup,
    RowHeaders,
    Values,
    WrongRow,
    group_frames,
    lay_out,
)
from penstock.serde.column_codec import ColumnsReader, RowsWriter, all_wrong
from penstock.serde.contract import Contract, Form, subject_name
from penstock.serde.errors import DecodeError, EncodeError, Reason, UnknownSchemaError
from penstock.serde.event_codec import Misfit
from penstock.serde.frame import Side, write_header, write_prefix
from penstock.serde.schema_source import Registration, SchemaSource, UnusableSchemaError
from penstock.serde.serializers import Deserializer, Serializer

__all__ = [
    "BatchDeserializer",
    "BatchSerializer",
    "Encoded",
    "ReadBatch",
    "WrongRow",
    "to_arrow",
]

RUN_ROWS_MIN: Final = 32  # shorter runs of one schema are gathered row by row
Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.RecordBatch"


class ReadBatch(NamedTuple):
    """Columns with a row per value, and what was wrong with some; nulls are rows of nulls."""

    batch: pa.RecordBatch
    wrongs: list[WrongRow]


class Encoded(NamedTuple):
    """Framed values end to end: value i is buffer[offsets[i]:offsets[i + 1]]."""

    buffer: Bytes
    offsets: Int64s
    headers: Sequence[tuple[str, bytes]] = ()  # header form: to be added to every record's own

    def contents(self) -> list[bytes]:
        """The values one by one."""
        whole = self.buffer.tobytes()
        ends = self.offsets.tolist()
        return [whole[start:end] for start, end in pairwise(ends)]


class BatchSerializer:
    """Writes many values of one topic under a contract."""

    def __init__(
        self,
        registry: SchemaSource,
        topic: str,
        contract: Contract | None = None,
        *,
        side: Side = Side.VALUE,
    ) -> None:
        self._one = Serializer(registry, topic, contract, side=side)
        self._writer: tuple[ParsedSchema, RowsWriter] | None = None
        self.stats = self._one.stats

    @property
    def subject(self) -> str:
        """Where the contract is registered."""
        return self._one.subject

    def serialize_many(self, rows: Rows) -> Encoded:
        """All rows, or EncodeError that names the first one that does not fit."""
        start_s = time.perf_counter()
        registration, schema = self._one.prepare()
        if self._writer is None or self._writer[0] is not schema:
            self._writer = (schema, _writer_of(schema, self._one.contract))
        writer = self._writer[1]
        prefix, headers = self._frame(registration, writer.indexes)
        try:
            buffer, offsets = writer.write(rows, prefix)
        except Misfit as wrong:
            raise EncodeError(self._one.subject, schema.type, str(wrong)) from None
        self.stats.note(len(offsets) - 1, time.perf_counter() - start_s)
        return Encoded(buffer, offsets, headers)

    def _frame(
        self, registration: Registration, indexes: Sequence[int] | None
    ) -> tuple[bytes, Sequence[tuple[str, bytes]]]:
        """What comes before each payload, and what goes to each record's headers."""
        match self._one.contract.form:
            case Form.PREFIX:
                return write_prefix(registration.id, indexes), ()
            case Form.HEADER:
                header = write_header(registration.guid, indexes)
                return b"", ((self._one.side.header_name, header),)
            case other:
                assert_never(other)


class BatchDeserializer:
    """Reads many values of one topic, as one reader's schema sees them.

    `reader` is a contract; without one, the latest version of the subject. `columns` are the
    fields wanted, in that order; the others are stepped over. JSON values that the schema does not
    allow are wrong rows unless `validate` is False. `plain_indexes` is for topics written by old
    Python clients.

    Of a Protobuf schema one message is read, and the others are wrong rows: the contract's
    (`Contract(message=...)`), or the one that most of the first events name. Where the columns are
    asked for before, it is the first message of the subject's first version.
    """

    def __init__(
        self,
        registry: SchemaSource,
        topic: str,
        *,
        reader: Contract | None = None,
        columns: Sequence[str] | None = None,
        side: Side = Side.VALUE,
        validate: bool = True,
        plain_indexes: bool = False,
    ) -> None:
        self._registry = registry
        self._contract = reader or Contract()
        self._columns = columns
        self._side = side
        self._validate = validate
        self._plain_indexes = plain_indexes
        self._one = Deserializer(registry, topic, reader=self._contract, side=side)
        self._reader: tuple[ParsedSchema | None, str | None, ColumnsReader] | None = None
        self._message = self._contract.message  # Protobuf: settled by the first events otherwise
        self.stats = self._one.stats

    @property
    def subject(self) -> str:
        """What its errors are counted under."""
        return self._one.subject

    def arrow_schema(self) -> pa.Schema:
        """The columns that every batch will have; asks the registry, and reads no value."""
        schema = self._reader_schema()
        if self._message is None and _needs_message(schema, self._contract):
            self._message = self._first_message(schema)
        return self._columns_reader(schema).empty.schema

    def deserialize_many(self, values: Values, headers: RowHeaders = None) -> ReadBatch:
        """The values as columns; raises RegistryUnavailableError, never for a value's own fault.

        Values are bytes, confluent-kafka's messages, Arrow, or places of opened records. `headers`
        are the records' own, a list of pairs or None per value: a schema named there goes before
        one in a prefix. Messages bring theirs along.
        """
        start_s = time.perf_counter()
        schema = self._reader_schema()
        if not isinstance(values, pa.Array | BytesPlaces):
            values, headers = _contents(values, headers, self._side)
        layout = lay_out(values)
        groups, wrongs = group_frames(layout, headers, self._side)
        written = [(one, made) for one in groups if (made := self._writer(one, wrongs)) is not None]
        if self._message is None and _needs_message(schema, self._contract):
            self._message = self._most_named(schema, written, layout.source)
        reader = self._columns_reader(schema)
        order: list[Int64s] = []
        parts: list[pa.RecordBatch] = []
        for group, writer in written:
            for part in reader.read(writer, group, layout.source, wrongs):
                order.append(part.rows)
                parts.append(part.batch)
        rows = len(layout.starts)
        batch = _in_order(parts, order, rows, reader.empty)
        for wrong in wrongs:
            self.stats.note_error(self._one.subject, wrong.reason)
        read = rows - int(layout.is_null.sum()) - len(wrongs)
        self.stats.note(read, time.perf_counter() - start_s)
        return ReadBatch(batch, sorted(wrongs))

    def deserialize_records(self, records: RecordColumns) -> ReadBatch:
        """The keys or values of records that were opened; headers count if they were wanted."""
        column = records.values if self._side is Side.VALUE else records.keys
        assert column is not None, "open what is to be read"
        headers = None if records.headers is None else headers_to_arrow(records.headers)
        return self.deserialize_many(bytes_to_arrow(column), headers)

    def deserialize_batches(
        self,
        buffer: Buffer,
        *,
        start_offset: Offset = Offset(0),
        aborted: Iterable[tuple[ProducerId, Offset]] | None = None,
    ) -> Iterator[tuple[RecordColumns, ReadBatch]]:
        """Record batches as a broker sends them, page by page: the records, and what they say.

        `aborted` is what a fetch answers under read_committed. Malformed if the batches are.
        """
        for page in open_pages(buffer, start_offset=start_offset, aborted=aborted):
            yield page, self.deserialize_records(page)

    def _reader_schema(self) -> ParsedSchema | None:
        return None if self._contract.message_type is not None else self._one.reader_schema()

    def _columns_reader(self, schema: ParsedSchema | None) -> ColumnsReader:
        known = self._reader
        if known is None or known[0] is not schema or known[1] != self._message:
            known = self._reader = (schema, self._message, self._made_reader(schema))
        return known[2]

    def _most_named(
        self,
        schema: ParsedSchema | None,
        written: Sequence[tuple[FrameGroup, ParsedSchema]],
        source: Bytes,
    ) -> str | None:
        from penstock.serde.protobuf import columns as protobuf_columns
        from penstock.serde.protobuf import event as protobuf_event

        assert schema is not None, "a generated class is a message of its own"
        reader = protobuf_event.own(schema)
        return protobuf_columns.most_named(
            reader, written, source, plain_indexes=self._plain_indexes
        )

    def _first_message(self, schema: ParsedSchema | None) -> str | None:
        """Before any event: what the first version of the subject began with, if it is there still.

        A message that is added above it later does not change what is read.
        """
        from penstock.serde.protobuf import event as protobuf_event

        assert schema is not None, "a generated class is a message of its own"
        reader = protobuf_event.own(schema)
        if self._contract.schema is None and len(reader.file.messages) > 1:
            subject = subject_name(self._contract.names, self._one.topic, self._side, None)
            with suppress(UnknownSchemaError, UnusableSchemaError, InvalidSchemaError):
                first = self._registry.version(subject, 1).parsed.name
                if first is not None and reader.has_message(first):
                    return first
        return reader.name

    def _made_reader(self, schema: ParsedSchema | None) -> ColumnsReader:
        """A language is imported when it is first met: Protobuf's compiler is heavy."""
        if schema is None or schema.type is SchemaType.PROTOBUF:
            from penstock.serde.protobuf import columns as protobuf_columns

            message_type = protobuf_columns.message_type_of(schema, self._contract, self._message)
            return protobuf_columns.ProtobufColumns(
                message_type, self._columns, plain_indexes=self._plain_indexes
            )
        match schema.type:
            case SchemaType.AVRO:
                from penstock.serde.avro import columns as avro_columns
                from penstock.serde.avro import event as avro_event

                return avro_columns.AvroColumns(avro_event.own(schema), self._columns)
            case SchemaType.JSON:
                from penstock.serde.json import columns as json_columns
                from penstock.serde.json import event as json_event

                own_schema = json_event.own(schema, self._contract.assert_formats)
                return json_columns.JsonColumnsReader(
                    own_schema, self._columns, validate=self._validate
                )
            case other:
                assert_never(other)

    def _writer(self, group: FrameGroup, wrongs: list[WrongRow]) -> ParsedSchema | None:
        try:
            writer = self._registry.schema(group.schema)
            self._one.check_rules(writer)
            return writer.parsed
        except DecodeError as failure:
            wrongs += all_wrong(group, failure.reason, failure.detail)
        except UnknownSchemaError as failure:
            wrongs += all_wrong(group, Reason.UNKNOWN_SCHEMA, str(failure))
        except (UnusableSchemaError, InvalidSchemaError) as failure:
            wrongs += all_wrong(group, Reason.UNUSABLE_SCHEMA, str(failure))
        return None


def _needs_message(schema: ParsedSchema | None, contract: Contract) -> bool:
    is_protobuf = schema is not None and schema.type is SchemaType.PROTOBUF
    return is_protobuf and contract.message is None


def to_arrow(records: RecordColumns, read: ReadBatch) -> pa.RecordBatch:
    """Records with what they say: offset, timestamp, key, the value's columns as one struct, and
    `error`, which says why where a value could not be read.
    """
    assert len(records) == read.batch.num_rows, "what was read of these records"
    columns: dict[str, Any] = {"offset": pa.array(records.offsets)}
    columns["timestamp"] = timestamps_to_arrow(records)
    if records.keys is not None:
        columns["key"] = bytes_to_arrow(records.keys)
    errors: list[str | None] = [None] * len(records)
    for wrong in read.wrongs:
        errors[wrong.row] = f"{wrong.reason}: {wrong.detail}"
    columns["value"] = read.batch.to_struct_array()
    columns["error"] = pa.array(errors, pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _writer_of(schema: ParsedSchema, contract: Contract) -> RowsWriter:
    match schema.type:
        case SchemaType.AVRO:
            from penstock.serde.avro import columns as avro_columns
            from penstock.serde.avro import event as avro_event

            return avro_columns.AvroRows(avro_event.own(schema))
        case SchemaType.PROTOBUF:
            from penstock.serde.protobuf import columns as protobuf_columns
            from penstock.serde.protobuf import event as protobuf_event

            return protobuf_columns.ProtobufRows(protobuf_event.own(schema), contract.message_name)
        case SchemaType.JSON:
            from penstock.serde.json import columns as json_columns
            from penstock.serde.json import event as json_event

            return json_columns.JsonRows(json_event.own(schema, contract.assert_formats))
        case other:
            assert_never(other)


def _contents(
    values: Iterable[Any], headers: RowHeaders, side: Side
) -> tuple[list[bytes | None], RowHeaders]:
    """Bytes as they are; messages with the headers they have."""
    listed = list(values)
    if not any(hasattr(one, "headers") for one in listed[:1]):
        return listed, headers
    assert headers is None, "messages have their own headers"
    contents = [one.value() if side is Side.VALUE else one.key() for one in listed]
    return contents, [one.headers() for one in listed]


def _in_order(
    parts: list[pa.RecordBatch], order: list[Int64s], rows: int, empty: pa.RecordBatch
) -> pa.RecordBatch:
    """The parts' rows back where they were; rows of none of them are null."""
    if len(parts) == 1 and len(order[0]) == rows:
        return parts[0]
    if sum(part.nbytes for part in parts) > USUAL_LIMITS.output_bytes_max:
        raise OutputTooLargeError(len(order[0]), rows, USUAL_LIMITS.output_bytes_max)
    place = np.full(rows, -1, dtype=np.int64)
    if order:
        everything = np.concatenate(order)
        place[everything] = np.arange(len(everything))
    table = pa.Table.from_batches([empty, *parts], schema=empty.schema)
    cuts = np.flatnonzero(np.diff(place) != 1) + 1
    if len(cuts) < rows // RUN_ROWS_MIN and len(order) and (place >= 0).all():
        # Writers take turns by the batch: their runs are put together as they are.
        starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), rows]
        runs = [table.slice(place[at], end - at) for at, end in zip(starts, ends, strict=True)]
        batches = pa.concat_tables(runs).combine_chunks().to_batches()
    else:
        places: Any = pa.array(place, mask=place < 0)
        batches = table.combine_chunks().take(places).combine_chunks().to_batches()
    return batches[0] if batches else empty
