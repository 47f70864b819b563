"""Many events in one language: what batches need of Avro, Protobuf and JSON alike.

A group decoder belongs to one reader's schema and decodes what any writer's schema wrote; a rows
encoder belongs to one schema. Both are made once and used for many batches, from any thread.
Neither calls a registry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.vm.payloads import OutputTooLargeError
from penstock.schemas.model import ParsedSchema
from penstock.serde.batch_frames import FrameGroup, RowError
from penstock.serde.errors import Reason
from penstock.serde.event_codec import Indexes
from penstock.serde.frame import BadFrameError, require_header_end

if TYPE_CHECKING:
    from penstock.serde.contract import Contract

Rows: TypeAlias = "Sequence[Mapping[str, Any]] | pa.RecordBatch"


class DecodedRows(NamedTuple):
    """Some rows of a batch as columns; an invalid row is null in all of them."""

    rows: Int64s
    batch: pa.RecordBatch


class GroupDecoder(Protocol):
    """Decodes values into the columns of one reader's schema."""

    @property
    def empty(self) -> pa.RecordBatch:
        """The columns, without rows."""

    def decode(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, errors: list[RowError]
    ) -> Iterator[DecodedRows]:
        """What one schema wrote; invalid rows are added to the errors."""


class RowsEncoder(Protocol):
    """Encodes rows of one schema."""

    indexes: Indexes | None  # Protobuf: which message of the schema

    def encode(self, rows: Rows, prefix: bytes) -> tuple[Bytes, Int64s]:
        """Payloads after a prefix, end to end, and their offsets; InvalidValueError has the row."""


class ColumnRequest(NamedTuple):
    """Which columns a program reads, and how."""

    columns: Sequence[str] | None  # in this order; None: all
    validate: bool = True  # JSON: check each value against the schema
    plain_indexes: bool = False  # Protobuf: the topic was written by old Python clients
    message: str | None = None  # Protobuf: the message whose fields are the columns


class ColumnCodec(Protocol):
    """The module `columns` of a language."""

    def group_decoder(
        self, reader: ParsedSchema | None, contract: "Contract", request: ColumnRequest
    ) -> GroupDecoder:
        """Decodes into the columns of a reader's schema; None: of the contract's message class."""

    def rows_encoder(self, schema: ParsedSchema, contract: "Contract") -> RowsEncoder:
        """Encodes rows as a contract has it."""

    def most_named(
        self,
        reader: ParsedSchema,
        written: Sequence[tuple[FrameGroup, ParsedSchema]],
        source: Bytes,
        *,
        plain_indexes: bool,
    ) -> str | None:
        """The message that most events name; None in languages whose schemas have only one."""

    def first_message(
        self, reader: ParsedSchema, first_version: Callable[[], ParsedSchema | None]
    ) -> str | None:
        """The message to read before any event is known; None as above."""


class BatchDecoder(Protocol):
    """Decodes payloads from ranges of a buffer, with a fault per row."""

    def decode(
        self, buffer: Bytes, starts: Int64s, ends: Int64s
    ) -> tuple[pa.RecordBatch, Bytes]: ...


def decode_group(
    decoder: BatchDecoder,
    source: Bytes,
    group: FrameGroup,
    explain: Callable[[int], tuple[Reason, str]],
    too_large: int,
    errors: list[RowError],
) -> Iterator[DecodedRows]:
    """Decode a group as a whole, or in halves as long as it is too large for that.

    `explain` says what a fault means; a row that is too large alone gets the fault `too_large`.
    """
    try:
        batch, faults = decoder.decode(source, group.starts, group.ends)
    except OutputTooLargeError:
        if len(group.rows) > 1:
            for half in _halves(group):
                yield from decode_group(decoder, source, half, explain, too_large, errors)
            return
        reason, detail = explain(too_large)
        errors.append(RowError(int(group.rows[0]), reason, detail, str(group.schema)))
        return
    schema = str(group.schema)
    for index in np.flatnonzero(faults).tolist():
        reason, detail = explain(int(faults[index]))
        errors.append(RowError(int(group.rows[index]), reason, detail, schema))
    yield DecodedRows(group.rows, batch)


def _halves(group: FrameGroup) -> Iterator[FrameGroup]:
    middle = len(group.rows) // 2
    for half in (slice(None, middle), slice(middle, None)):
        yield group._replace(
            rows=group.rows[half], starts=group.starts[half], ends=group.ends[half]
        )


def group_errors(group: FrameGroup, reason: Reason, detail: str) -> list[RowError]:
    """The same error for every row of a group."""
    schema = str(group.schema)
    return [RowError(row, reason, detail, schema) for row in group.rows.tolist()]


def header_errors(group: FrameGroup) -> list[RowError]:
    """Errors of a group whose header continues after the GUID, in languages without indexes."""
    try:
        require_header_end(group.header or b"", 0, "GUID")
    except BadFrameError as error:
        return group_errors(group, error.kind, error.reason)
    return []


def requested_columns(
    known: Sequence[str], columns: Sequence[str] | None, owner: str
) -> tuple[str, ...]:
    """The columns to fill, in the requested order; ValueError if one is unknown or repeated."""
    if columns is None:
        return tuple(known)
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise ValueError(f"{owner} has no column {unknown[0]!r}")
    if len(set(columns)) < len(columns):
        raise ValueError("a column is requested twice")
    return tuple(columns)


def join_payloads(payloads: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Payloads end to end, and their offsets."""
    offsets = np.zeros(len(payloads) + 1, dtype=np.int64)
    np.cumsum([len(payload) for payload in payloads], out=offsets[1:])
    return np.frombuffer(b"".join(payloads), dtype=np.uint8), offsets
