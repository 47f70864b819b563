"""Many events at once: framed values to Arrow and back, in any of the three languages.

    deserializer = BatchDeserializer(registry, "orders", columns=["id", "total"])
    batch, errors = deserializer.deserialize_many(values)

Values are grouped by the schema that wrote them, and each group is decoded as a whole. Rows stay in
order; one that cannot be decoded is null in every column, and its reason is among the errors. If
the registry is needed and cannot be reached, RegistryUnavailableError is raised.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.arrow_records import bytes_to_arrow, headers_to_arrow, timestamps_to_arrow
from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.open_batches import open_pages
from penstock.columns.record_columns import BytesSpans, RecordColumns
from penstock.columns.vm.payloads import USUAL_LIMITS, OutputTooLargeError
from penstock.model import Offset, ProducerId
from penstock.protocol.varint import Buffer
from penstock.schemas.model import InvalidSchemaError, ParsedSchema, SchemaType
from penstock.serde.batch_frames import (
    FrameGroup,
    RowError,
    RowHeaders,
    Values,
    group_frames,
    lay_out,
)
from penstock.serde.column_codec import (
    ColumnRequest,
    GroupDecoder,
    Rows,
    RowsEncoder,
    group_errors,
)
from penstock.serde.contract import Contract, subject_name
from penstock.serde.errors import DecodeError, EncodeError, Reason, UnknownSchemaError
from penstock.serde.event_codec import InvalidValueError
from penstock.serde.frame import Side
from penstock.serde.language import LANGUAGES, Language
from penstock.serde.schema_source import SchemaSource, UnusableSchemaError
from penstock.serde.serializers import Deserializer, Serializer

if TYPE_CHECKING:
    from penstock.serde.serde_stats import SerdeStats

__all__ = [
    "BatchDeserializer",
    "BatchSerializer",
    "FramedBatch",
    "ReadBatch",
    "RowError",
    "to_arrow",
]

RUN_ROWS_MIN: Final = 32  # shorter runs of one schema are gathered row by row


class ReadBatch(NamedTuple):
    """Columns with a row per value, and the errors of some; an event without value is all nulls."""

    batch: pa.RecordBatch
    errors: list[RowError]


class FramedBatch(NamedTuple):
    """Framed values end to end: value i is buffer[offsets[i]:offsets[i + 1]]."""

    buffer: Bytes
    offsets: Int64s
    headers: Sequence[tuple[str, bytes]] = ()  # header form: to be added to every record's own

    def as_arrow(self) -> "pa.Array[Any]":
        """A column over the same memory."""
        buffers: list[Any] = [self.offsets, self.buffer]
        return pa.Array.from_buffers(
            pa.large_binary(),
            len(self.offsets) - 1,
            [None, *(pa.py_buffer(buffer) for buffer in buffers)],
        )

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
        self._single = Serializer(registry, topic, contract, side=side)
        self._encoder: tuple[ParsedSchema, RowsEncoder] | None = None
        self.stats: SerdeStats = self._single.stats

    @property
    def subject(self) -> str:
        """Where the contract is registered."""
        return self._single.subject

    def serialize_many(self, rows: Rows) -> FramedBatch:
        """All rows, or EncodeError with the first one that the schema does not allow."""
        start_s = time.perf_counter()
        writing = self._single.prepare()
        schema = writing.schema
        if self._encoder is None or self._encoder[0] is not schema:
            codec = LANGUAGES[schema.type].column_codec
            self._encoder = (schema, codec.rows_encoder(schema, self._single.contract))
        encoder = self._encoder[1]
        prefix, headers = writing.frames.parts(encoder.indexes)
        try:
            buffer, offsets = encoder.encode(rows, prefix)
        except InvalidValueError as error:
            raise EncodeError(self.subject, schema.type, str(error)) from None
        self.stats.note(len(offsets) - 1, time.perf_counter() - start_s)
        return FramedBatch(buffer, offsets, headers)


class BatchDeserializer:
    """Reads many values of one topic, as one reader's schema sees them.

    `reader` is a contract; without one, the latest version of the subject. `columns` are the
    requested fields, in that order; the others are skipped. JSON values that the schema does not
    allow are errors unless `validate` is False. `plain_indexes` is for topics written by old
    Python clients.

    Of a Protobuf schema one message is read, and the others are errors: the contract's
    (`Contract(message=...)`), or the one that most of the first events name. If the columns are
    requested before, it is the first message of the subject's first version.
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
        self._side = side
        self._single = Deserializer(registry, topic, reader=self._contract, side=side)
        self._decoder: tuple[ParsedSchema | None, ColumnRequest, GroupDecoder] | None = None
        self._request = ColumnRequest(columns, validate, plain_indexes, self._contract.message)
        self.stats: SerdeStats = self._single.stats

    @property
    def subject(self) -> str:
        """What its errors are counted under."""
        return self._single.subject

    def arrow_schema(self) -> pa.Schema:
        """The columns that every batch will have; calls the registry, and reads no value."""
        schema = self._reader_schema()
        if schema is not None and self._needs_message(schema):
            codec = _language(schema).column_codec
            message = codec.first_message(schema, self._first_version)
            self._request = self._request._replace(message=message)
        return self._group_decoder(schema).empty.schema

    def deserialize_many(self, values: Values, headers: RowHeaders = None) -> ReadBatch:
        """The values as columns; raises RegistryUnavailableError, never for a value's own fault.

        Values are bytes, confluent-kafka's messages, Arrow, or spans of opened records. `headers`
        are the records' own, a list of pairs or None per value: a schema named there takes
        precedence over one in a prefix. Messages bring theirs along.
        """
        start_s = time.perf_counter()
        schema = self._reader_schema()
        if not isinstance(values, pa.Array | BytesSpans):
            values, headers = _contents(values, headers, self._side)
        layout = lay_out(values)
        groups, errors = group_frames(layout, headers, self._side)
        written = [
            (group, writer)
            for group in groups
            if (writer := self._writer(group, errors)) is not None
        ]
        if schema is not None and self._needs_message(schema):
            message = _language(schema).column_codec.most_named(
                schema, written, layout.source, plain_indexes=self._request.plain_indexes
            )
            self._request = self._request._replace(message=message)
        decoder = self._group_decoder(schema)
        order: list[Int64s] = []
        batches: list[pa.RecordBatch] = []
        for group, writer in written:
            for decoded in decoder.decode(writer, group, layout.source, errors):
                order.append(decoded.rows)
                batches.append(decoded.batch)
        rows = len(layout.starts)
        batch = _in_order(batches, order, rows, decoder.empty)
        for error in errors:
            self.stats.note_error(self.subject, error.reason)
        read = rows - int(layout.is_null.sum()) - len(errors)
        self.stats.note(read, time.perf_counter() - start_s)
        return ReadBatch(batch, sorted(errors))

    def deserialize_records(self, records: RecordColumns) -> ReadBatch:
        """The keys or values of records that were opened; headers count if they were opened too."""
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
        """Record batches as a broker sends them, page by page: the records, and their values.

        `aborted` is what a fetch returns under read_committed. Malformed if the batches are.
        """
        for page in open_pages(buffer, start_offset=start_offset, aborted=aborted):
            yield page, self.deserialize_records(page)

    def _reader_schema(self) -> ParsedSchema | None:
        return None if self._contract.message_type is not None else self._single.reader_schema()

    def _needs_message(self, schema: ParsedSchema) -> bool:
        return _language(schema).has_messages and self._request.message is None

    def _first_version(self) -> ParsedSchema | None:
        """Of the subject, where events are read as its latest one."""
        if self._contract.schema is not None:
            return None
        subject = subject_name(self._contract.names, self._single.topic, self._side, None)
        with suppress(UnknownSchemaError, UnusableSchemaError, InvalidSchemaError):
            return self._registry.version(subject, 1).parsed
        return None

    def _group_decoder(self, schema: ParsedSchema | None) -> GroupDecoder:
        known = self._decoder
        if known is None or known[0] is not schema or known[1] != self._request:
            codec = _language(schema).column_codec
            decoder = codec.group_decoder(schema, self._contract, self._request)
            known = self._decoder = (schema, self._request, decoder)
        return known[2]

    def _writer(self, group: FrameGroup, errors: list[RowError]) -> ParsedSchema | None:
        try:
            writer = self._registry.schema(group.schema)
            self._single.check_rules(writer)
            return writer.parsed
        except DecodeError as failure:
            errors += group_errors(group, failure.reason, failure.detail)
        except UnknownSchemaError as failure:
            errors += group_errors(group, Reason.UNKNOWN_SCHEMA, str(failure))
        except (UnusableSchemaError, InvalidSchemaError) as failure:
            errors += group_errors(group, Reason.UNUSABLE_SCHEMA, str(failure))
        return None


def _language(schema: ParsedSchema | None) -> Language:
    """Without a schema it is a generated class, of Protobuf."""
    return LANGUAGES[SchemaType.PROTOBUF if schema is None else schema.type]


def to_arrow(records: RecordColumns, read: ReadBatch) -> pa.RecordBatch:
    """Records with their values: offset, timestamp, key, the value's columns as one struct, and
    `error`, the reason where a value could not be decoded.
    """
    assert len(records) == read.batch.num_rows, "what was read of these records"
    columns: dict[str, Any] = {"offset": pa.array(records.offsets)}
    columns["timestamp"] = timestamps_to_arrow(records)
    if records.keys is not None:
        columns["key"] = bytes_to_arrow(records.keys)
    texts: list[str | None] = [None] * len(records)
    for error in read.errors:
        texts[error.row] = f"{error.reason}: {error.detail}"
    columns["value"] = read.batch.to_struct_array()
    columns["error"] = pa.array(texts, pa.string())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _contents(
    values: Iterable[Any], headers: RowHeaders, side: Side
) -> tuple[list[bytes | None], RowHeaders]:
    """Bytes as they are; messages with the headers they have."""
    given = list(values)
    if not any(hasattr(value, "headers") for value in given[:1]):
        return given, headers
    assert headers is None, "messages have their own headers"
    contents = [message.value() if side is Side.VALUE else message.key() for message in given]
    return contents, [message.headers() for message in given]


def _in_order(
    batches: list[pa.RecordBatch], order: list[Int64s], rows: int, empty: pa.RecordBatch
) -> pa.RecordBatch:
    """The rows of all batches in their original order; rows of none of them are null."""
    if len(batches) == 1 and len(order[0]) == rows:
        return batches[0]
    if sum(batch.nbytes for batch in batches) > USUAL_LIMITS.output_bytes_max:
        raise OutputTooLargeError(len(order[0]), rows, USUAL_LIMITS.output_bytes_max)
    index = np.full(rows, -1, dtype=np.int64)
    if order:
        everything = np.concatenate(order)
        index[everything] = np.arange(len(everything))
    table = pa.Table.from_batches([empty, *batches], schema=empty.schema)
    cuts = np.flatnonzero(np.diff(index) != 1) + 1
    if len(cuts) < rows // RUN_ROWS_MIN and len(order) and (index >= 0).all():
        # Writers take turns by the batch: their runs are concatenated as they are.
        starts, ends = [0, *cuts.tolist()], [*cuts.tolist(), rows]
        runs = [table.slice(index[at], end - at) for at, end in zip(starts, ends, strict=True)]
        chunks = pa.concat_tables(runs).combine_chunks().to_batches()
    else:
        indexes: Any = pa.array(index, mask=index < 0)
        chunks = table.combine_chunks().take(indexes).combine_chunks().to_batches()
    return chunks[0] if chunks else empty
