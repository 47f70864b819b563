"""Framed JSON values to the columns of a reader's schema, and rows to payloads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.client.batch_codec import Part, all_wrong, joined
from penstock.client.batch_frames import FrameGroup, WrongRow
from penstock.client.codec import Misfit
from penstock.client.errors import Reason
from penstock.client.json_batches import JsonDecoder, rows_of
from penstock.client.json_event import JsonEncoder
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
    """Writes dicts or Arrow batches, one by one."""

    indexes: Sequence[int] | None = None

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._one = JsonEncoder(schema)

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> tuple[Bytes, Int64s]:
        """Payloads behind a prefix, and their offsets; Misfit names the first row that is none."""
        values: Any = rows_of(rows, self._schema) if isinstance(rows, pa.RecordBatch) else rows
        payloads = []
        for row, value in enumerate(values):
            try:
                payloads.append(prefix + self._one.encode(value).payload)
            except Misfit as wrong:
                raise Misfit(f"row {row}: {wrong}") from None
        return joined(payloads)
