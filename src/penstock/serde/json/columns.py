"""Framed JSON values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.json import JsonSchema
from penstock.schemas.model import ParsedSchema
from penstock.serde.batch_frames import FrameGroup, RowError
from penstock.serde.column_codec import (
    ColumnRequest,
    DecodedRows,
    GroupDecoder,
    Rows,
    RowsEncoder,
    group_errors,
    header_errors,
    join_payloads,
)
from penstock.serde.contract import Contract
from penstock.serde.errors import Reason
from penstock.serde.event_codec import Indexes, InvalidValueError, no_message
from penstock.serde.json.arrow_values import NotPlain, values_of
from penstock.serde.json.batch import JsonBatchDecoder, rows_of
from penstock.serde.json.event import JsonEventEncoder, json_schema
from penstock.serde.json.lines import framed, lines_of
from penstock.serde.json.number_check import NumberCheck
from penstock.serde.json.value_types import JsonColumns, columns_of

CHUNK_ROWS: Final = 1000  # bounds the values and texts in memory
_NO_ROWS: Final = np.empty(0, dtype=np.int64)
_NO_BYTES: Final = np.empty(0, dtype=np.uint8)


def group_decoder(
    reader: ParsedSchema | None, contract: Contract, request: ColumnRequest
) -> GroupDecoder:
    """Decodes into the columns of a reader's schema."""
    assert reader is not None, "only Protobuf has generated classes"
    schema = json_schema(reader, contract.assert_formats)
    return JsonGroupDecoder(schema, request.columns, validate=request.validate)


def rows_encoder(schema: ParsedSchema, contract: Contract) -> RowsEncoder:
    """Encodes rows of a schema."""
    return JsonRowsEncoder(json_schema(schema, contract.assert_formats))


most_named: Final = no_message
first_message: Final = no_message


class JsonGroupDecoder:
    """Decodes what any JSON schema wrote, if one reader's schema allows it."""

    def __init__(
        self, reader: JsonSchema, columns: Sequence[str] | None, *, validate: bool = True
    ) -> None:
        self._decoder = JsonBatchDecoder(reader, columns, validate=validate)
        self.empty: pa.RecordBatch = self._decoder.decode(_NO_BYTES, _NO_ROWS, _NO_ROWS)[0]

    def decode(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, errors: list[RowError]
    ) -> Iterator[DecodedRows]:
        """The rows of one writer's schema."""
        if not isinstance(writer, JsonSchema):
            detail = f"written as {writer.type}, to be read as JSON"
            errors += group_errors(group, Reason.UNRESOLVABLE, detail)
        elif malformed := header_errors(group):
            errors += malformed
        else:
            batch, by_row = self._decoder.decode(source, group.starts, group.ends)
            schema = str(group.schema)
            for row, (reason, detail) in by_row.items():
                errors.append(RowError(int(group.rows[row]), reason, detail, schema))
            yield DecodedRows(group.rows, batch)


class JsonRowsEncoder:
    """Encodes dicts or Arrow batches: in chunks, or one by one to find the first invalid row."""

    indexes: Indexes | None = None

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._single = JsonEventEncoder(schema)
        self._numbers = NumberCheck(schema)

    @cached_property
    def _known(self) -> JsonColumns:
        return columns_of(self._schema)

    def encode(self, rows: Rows, prefix: bytes) -> tuple[Bytes, Int64s]:
        """Payloads after a prefix, and their offsets; InvalidValueError has the first bad row."""
        if isinstance(rows, pa.RecordBatch):
            written = self._in_chunks(self._chunks_of(rows), prefix)
            if written is not None:
                return written
            rows = rows_of(rows, self._known)
        given: list[Any] = rows if type(rows) is list else list(rows)
        starts = range(0, len(given), CHUNK_ROWS)
        written = self._in_chunks((given[at : at + CHUNK_ROWS] for at in starts), prefix)
        if written is not None:
            return written
        return join_payloads(
            [prefix + self._encoded(row, value) for row, value in enumerate(given)]
        )

    def _chunks_of(self, batch: pa.RecordBatch) -> Iterator[list[Any]]:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            yield values_of(batch.slice(start, CHUNK_ROWS), self._known)

    def _in_chunks(self, chunks: Iterator[list[Any]], prefix: bytes) -> tuple[Bytes, Int64s] | None:
        """All rows, each chunk in a few steps; None if a value is invalid or not JSON's own."""
        payloads, sizes = [], [_NO_ROWS]
        try:
            for values in chunks:
                lines = lines_of(values)
                if lines is None or not self._allows(values, lines):
                    return None
                content, each = framed(lines, prefix)
                payloads.append(content)
                sizes.append(each)
        except NotPlain:
            return None
        offsets = np.concatenate((np.zeros(1, dtype=np.int64), *sizes)).cumsum()
        return np.frombuffer(b"".join(payloads), dtype=np.uint8), offsets

    def _allows(self, values: list[Any], lines: bytes) -> bool:
        try:
            is_valid = all(map(self._schema.validator.is_valid, values))
            return is_valid and self._numbers.first_invalid(lines, values) is None
        except ValueError:  # what the validator cannot check
            return False

    def _encoded(self, row: int, value: Any) -> bytes:
        try:
            return self._single.encode(value)[0]
        except InvalidValueError as error:
            raise InvalidValueError(f"row {row}: {error}") from None
