"""Framed JSON values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.json import JsonSchema
from penstock.schemas.model import ParsedSchema
from penstock.serde.batch_frames import FrameGroup, WrongRow
from penstock.serde.column_codec import Part, all_wrong, joined
from penstock.serde.errors import Reason
from penstock.serde.event_codec import Misfit
from penstock.serde.json.arrow_values import NotPlain, values_of
from penstock.serde.json.batch import JsonBatchDecoder, rows_of
from penstock.serde.json.event import JsonEventEncoder
from penstock.serde.json.lines import framed, lines_of
from penstock.serde.json.number_check import NumberCheck
from penstock.serde.json.value_types import JsonColumns, columns_of

ROWS_AT_ONCE: Final = 1000  # so that values and texts do not pile up
_NO_ROWS: Final = np.empty(0, dtype=np.int64)
_NO_BYTES: Final = np.empty(0, dtype=np.uint8)


class JsonColumnsReader:
    """Reads what any JSON schema wrote, if one reader's schema allows it."""

    def __init__(
        self, reader: JsonSchema, columns: Sequence[str] | None, *, validate: bool = True
    ) -> None:
        self._decoder = JsonBatchDecoder(reader, columns, validate=validate)
        self.empty = self._decoder.decode(_NO_BYTES, _NO_ROWS, _NO_ROWS)[0]

    def read(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, wrongs: list[WrongRow]
    ) -> Iterator[Part]:
        """The rows of one writer's schema."""
        if not isinstance(writer, JsonSchema):
            told = f"written as {writer.type}, to be read as JSON"
            wrongs += all_wrong(group, Reason.UNRESOLVABLE, told)
        elif group.header:
            wrongs += all_wrong(group, Reason.TRAILING_BYTES, "the header goes on after the GUID")
        else:
            batch, found = self._decoder.decode(source, group.starts, group.ends)
            named = str(group.schema)
            for row, (reason, detail) in found.items():
                wrongs.append(WrongRow(int(group.rows[row]), reason, detail, named))
            yield Part(group.rows, batch)


class JsonRows:
    """Writes dicts or Arrow batches: all at once, or one by one to find the first that is wrong."""

    indexes: Sequence[int] | None = None

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._one = JsonEventEncoder(schema)
        self._numbers = NumberCheck(schema)

    @cached_property
    def _known(self) -> JsonColumns:
        return columns_of(self._schema)

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> tuple[Bytes, Int64s]:
        """Payloads behind a prefix, and their offsets; Misfit names the first row that is none."""
        if isinstance(rows, pa.RecordBatch):
            written = self._at_once(self._chunks_of(rows), prefix)
            if written is not None:
                return written
            rows = rows_of(rows, self._known)
        taken: list[Any] = rows if type(rows) is list else list(rows)
        starts = range(0, len(taken), ROWS_AT_ONCE)
        written = self._at_once((taken[at : at + ROWS_AT_ONCE] for at in starts), prefix)
        if written is not None:
            return written
        return joined([prefix + self._written(row, value) for row, value in enumerate(taken)])

    def _chunks_of(self, batch: pa.RecordBatch) -> Iterator[list[Any]]:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield values_of(batch.slice(start, ROWS_AT_ONCE), self._known)

    def _at_once(self, chunks: Iterator[list[Any]], prefix: bytes) -> tuple[Bytes, Int64s] | None:
        """All rows, a chunk of them in a few steps; None if something is not plain or wrong."""
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
            return is_valid and self._numbers.first_misfit(lines, values) is None
        except ValueError:  # what the validator cannot look at
            return False

    def _written(self, row: int, value: Any) -> bytes:
        try:
            return self._one.encode(value).payload
        except Misfit as wrong:
            raise Misfit(f"row {row}: {wrong}") from None
