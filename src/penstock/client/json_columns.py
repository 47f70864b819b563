"""Framed JSON values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.client.batch_codec import Part, all_wrong, joined
from penstock.client.batch_frames import FrameGroup, WrongRow
from penstock.client.codec import Misfit
from penstock.client.errors import Reason
from penstock.client.json_batches import JsonDecoder, rows_of
from penstock.client.json_event import JsonEncoder
from penstock.client.json_lines import NotPlain, lines_of_batch
from penstock.client.json_text import DECODER, framed, lines_of
from penstock.client.json_types import JsonColumns, columns_of
from penstock.columns.compiled import Bytes, Int64s
from penstock.schemas.json import JsonSchema
from penstock.schemas.model import ParsedSchema

_NO_ROWS: Final = np.empty(0, dtype=np.int64)
_NO_BYTES: Final = np.empty(0, dtype=np.uint8)


class JsonColumnsReader:
    """Reads what any JSON schema wrote, if one reader's schema allows it."""

    def __init__(self, reader: JsonSchema, columns: Sequence[str] | None) -> None:
        self._decoder = JsonDecoder(reader, columns)
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
        self._one = JsonEncoder(schema)

    @cached_property
    def _known(self) -> JsonColumns:
        return columns_of(self._schema)

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> tuple[Bytes, Int64s]:
        """Payloads behind a prefix, and their offsets; Misfit names the first row that is none."""
        if isinstance(rows, pa.RecordBatch):
            lines = self._lines_of_batch(rows)
            if lines is not None:
                return framed(lines, prefix)
            rows = rows_of(rows, self._known)
        taken: list[Any] = rows if type(rows) is list else list(rows)
        lines = lines_of(taken)
        if lines is not None and self._allows(taken):
            return framed(lines, prefix)
        return joined([prefix + self._written(row, value) for row, value in enumerate(taken)])

    def _lines_of_batch(self, batch: pa.RecordBatch) -> bytes | None:
        try:
            lines = lines_of_batch(batch, self._known)
        except NotPlain:
            return None
        return lines if self._allows(DECODER.decode_lines(lines)) else None

    def _allows(self, values: list[Any]) -> bool:
        try:
            return all(map(self._schema.validator.is_valid, values))
        except ValueError:  # what the validator cannot look at
            return False

    def _written(self, row: int, value: Any) -> bytes:
        try:
            return self._one.encode(value).payload
        except Misfit as wrong:
            raise Misfit(f"row {row}: {wrong}") from None
