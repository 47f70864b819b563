"""Many events in one language: what whole batches need of Avro, Protobuf and JSON alike.

A reader of columns belongs to one reader's schema and reads what any writer's schema wrote; a
writer of rows belongs to one schema. Both are made once and used for many batches, from any thread.
Neither talks to a registry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.vm.payloads import OutputTooLargeError
from penstock.schemas.model import ParsedSchema
from penstock.serde.batch_frames import FrameGroup, WrongRow
from penstock.serde.errors import Reason


class Part(NamedTuple):
    """Some rows of a batch as columns; a row that is wrong is null in all of them."""

    rows: Int64s
    batch: pa.RecordBatch


class ColumnsReader(Protocol):
    """Reads values into the columns of one schema."""

    @property
    def empty(self) -> pa.RecordBatch:
        """The columns, without rows."""

    def read(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, wrongs: list[WrongRow]
    ) -> Iterator[Part]:
        """What one schema wrote; what is wrong with some of it goes to the wrongs."""


class RowsWriter(Protocol):
    """Writes rows in one schema."""

    indexes: Sequence[int] | None  # Protobuf: which message of the schema

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> "tuple[Bytes, Int64s]":
        """Payloads behind a prefix, end to end, and their offsets; Misfit names the row."""


class Decoder(Protocol):
    """Reads payloads that start and end at places of a buffer, with an error code per row."""

    def decode(
        self, buffer: Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]: ...


def decoded_parts(
    decoder: Decoder,
    source: Bytes,
    group: FrameGroup,
    told: Callable[[int], tuple[Reason, str]],
    too_large: int,
    wrongs: list[WrongRow],
) -> Iterator[Part]:
    """A group in one go, or in halves as long as it is too large for that.

    `told` says what a code means; a row that is too large by itself gets the code `too_large`.
    """
    try:
        batch, errors = decoder.decode(source, group.starts, group.ends)
    except OutputTooLargeError:
        if len(group.rows) > 1:
            for half in _halves(group):
                yield from decoded_parts(decoder, source, half, told, too_large, wrongs)
            return
        reason, detail = told(too_large)
        wrongs.append(WrongRow(int(group.rows[0]), reason, detail, str(group.schema)))
        return
    named = str(group.schema)
    for index in np.flatnonzero(errors).tolist():
        reason, detail = told(int(errors[index]))
        wrongs.append(WrongRow(int(group.rows[index]), reason, detail, named))
    yield Part(group.rows, batch)


def _halves(group: FrameGroup) -> Iterator[FrameGroup]:
    middle = len(group.rows) // 2
    for part in (slice(None, middle), slice(middle, None)):
        yield group._replace(
            rows=group.rows[part], starts=group.starts[part], ends=group.ends[part]
        )


def all_wrong(group: FrameGroup, reason: Reason, detail: str) -> list[WrongRow]:
    """The same for every row of a group."""
    named = str(group.schema)
    return [WrongRow(row, reason, detail, named) for row in group.rows.tolist()]


def joined(payloads: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Payloads end to end, and their offsets."""
    offsets = np.zeros(len(payloads) + 1, dtype=np.int64)
    np.cumsum([len(one) for one in payloads], out=offsets[1:])
    return np.frombuffer(b"".join(payloads), dtype=np.uint8), offsets
