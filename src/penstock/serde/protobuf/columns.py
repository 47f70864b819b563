"""Framed Protobuf values to the columns of a reader's message.

The message indexes of a frame say which message of its schema a value is. Columns are those of one
message, by default of the one that most values name, and values of others are errors. Old Python
clients wrote indexes as plain varints: if the zigzag reading leads to no message of the schema, the
plain one is tried.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.compiled import Bytes, Int64s
from penstock.columns.protobuf.dict_program import ProtobufDictProgram
from penstock.columns.protobuf.read_program import ProtobufFault
from penstock.columns.protobuf.run import encode_dicts
from penstock.schemas.model import InvalidSchemaError, ParsedSchema
from penstock.schemas.protobuf import ProtobufSchema
from penstock.serde.batch_frames import FrameGroup, RowError
from penstock.serde.column_codec import (
    ColumnRequest,
    DecodedRows,
    GroupDecoder,
    Rows,
    RowsEncoder,
    decode_group,
    group_errors,
    join_payloads,
)
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason
from penstock.serde.event_codec import Indexes, InvalidValueError
from penstock.serde.frame import BadFrameError, read_indexes, require_header_end
from penstock.serde.protobuf.batch import ProtobufBatchDecoder, ProtobufBatchEncoder
from penstock.serde.protobuf.compile_dicts import compile_dicts
from penstock.serde.protobuf.event import (
    EVENT_BYTES_MAX,
    UNFIT,
    MessageTypes,
    ProtobufEventEncoder,
    is_decoded_again,
    payload_of,
    protobuf_schema,
)
from penstock.serde.protobuf.message_check import nests_freely
from penstock.serde.protobuf.types import TimeUnit

FIRST_MESSAGE: Final = (0,)
_FIRST_BYTE: Final = 0  # how that path is written
_PATH_BYTES_MAX: Final = 16  # of indexes compared as columns; longer ones are read one by one
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


def group_decoder(
    reader: ParsedSchema | None, contract: Contract, request: ColumnRequest
) -> GroupDecoder:
    """Decodes into the columns of one message of a reader's schema, or of a generated class."""
    message_type = message_type_of(reader, contract, request.message)
    return ProtobufGroupDecoder(message_type, request.columns, plain_indexes=request.plain_indexes)


def rows_encoder(schema: ParsedSchema, contract: Contract) -> RowsEncoder:
    """Encodes rows as one message of a schema."""
    return ProtobufRowsEncoder(protobuf_schema(schema), contract.message_name)


def first_message(
    reader: ParsedSchema, first_version: Callable[[], ParsedSchema | None]
) -> str | None:
    """The first message of the subject's first version, if the reader's schema still has it.

    A message that is added above it later does not change what is read.
    """
    schema = protobuf_schema(reader)
    if len(schema.file.messages) > 1:
        first = first_version()
        if first is not None and first.name is not None and schema.has_message(first.name):
            return first.name
    return schema.name


class _Path(NamedTuple):
    """Where indexes lead: the message's name, and how many bytes they took."""

    name: str
    size_bytes: int


class ProtobufGroupDecoder:
    """Decodes values of one message, whichever schema wrote them."""

    def __init__(
        self,
        message_type: Any,
        columns: Sequence[str] | None,
        *,
        plain_indexes: bool = False,
        unit: TimeUnit = "us",
    ) -> None:
        self._name: str = message_type.DESCRIPTOR.full_name
        self._forms = _forms(plain_indexes)
        self._decoder = ProtobufBatchDecoder(message_type, columns, unit=unit)
        self.empty: pa.RecordBatch = self._decoder.decode(b"", _NO_ROWS, _NO_ROWS)[0]

    def decode(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, errors: list[RowError]
    ) -> Iterator[DecodedRows]:
        """The rows of one writer's schema."""
        if not isinstance(writer, ProtobufSchema):
            detail = f"written as {writer.type}, to be read as PROTOBUF"
            errors += group_errors(group, Reason.UNRESOLVABLE, detail)
            return
        for some, path in _paths(writer, group, source, self._forms, errors):
            if path.name != self._name:
                detail = (
                    f"written as {path.name}, to be read as {self._name}: one message is read, "
                    "the one that Contract(message=...) names"
                )
                errors += group_errors(some, Reason.UNRESOLVABLE, detail)
                continue
            yield from decode_group(
                self._decoder, source, some, _explain, ProtobufFault.TOO_LARGE, errors
            )


def _paths(
    writer: ProtobufSchema,
    group: FrameGroup,
    source: Bytes,
    forms: tuple[bool, ...],
    errors: list[RowError],
) -> Iterator[tuple[FrameGroup, _Path]]:
    """The group by message, payloads without their indexes."""
    if group.header is not None:
        try:
            yield group, _path(writer, group.header, forms, is_whole=True)
        except BadFrameError as error:
            errors += group_errors(group, error.kind, str(error))
        return
    for rows in _alike(source, group.starts, group.ends):
        start, end = int(group.starts[rows[0]]), int(group.ends[rows[0]])
        some = group._replace(
            rows=group.rows[rows], starts=group.starts[rows], ends=group.ends[rows]
        )
        try:
            path = _path(writer, source[start:end].tobytes(), forms)
        except BadFrameError as error:
            errors += group_errors(some, error.kind, str(error))
            continue
        yield some._replace(starts=some.starts + path.size_bytes), path


def _path(
    writer: ProtobufSchema, source: bytes, forms: tuple[bool, ...], *, is_whole: bool = False
) -> _Path:
    failure: BadFrameError | None = None
    for plain in forms:
        try:
            indexes, end = read_indexes(source, plain=plain)
            if is_whole:
                require_header_end(source, end, "indexes")
            return _Path(writer.message_at(indexes), end)
        except BadFrameError as error:
            failure = failure or error
        except InvalidSchemaError as error:
            failure = failure or BadFrameError(Reason.BAD_INDEXES, str(error), 0)
    assert failure is not None
    raise failure


def most_named(
    reader: ParsedSchema,
    written: Sequence[tuple[FrameGroup, ParsedSchema]],
    source: Bytes,
    *,
    plain_indexes: bool,
) -> str | None:
    """The message of the reader's schema that most events name; of equals, the last written."""
    counts: dict[str, tuple[int, int]] = {}  # how many, and the last row
    for group, writer in written:
        if isinstance(writer, ProtobufSchema):
            for some, path in _paths(writer, group, source, _forms(plain_indexes), []):
                count, last = counts.get(path.name, (0, -1))
                counts[path.name] = (count + len(some.rows), max(last, int(some.rows.max())))
    schema = protobuf_schema(reader)
    known = [name for name in counts if schema.has_message(name)]
    return max(known, key=counts.__getitem__, default=None)


def _forms(plain_indexes: bool) -> tuple[bool, ...]:
    """How indexes may be written: zigzag first, or plain only."""
    return (True,) if plain_indexes else (False, True)


def message_type_of(schema: ParsedSchema | None, contract: Contract, name: str | None) -> Any:
    """The class that a contract reads as: generated, or the message of the schema that is named."""
    if contract.message_type is not None:
        return contract.message_type
    assert isinstance(schema, ProtobufSchema), "a schema's type says which class it is"
    types = MessageTypes(schema)
    if name is None:
        return types.at(FIRST_MESSAGE)
    try:
        return types.named(name)
    except KeyError:
        raise ClientError(f"the reader's schema has no message {name}") from None


def _alike(source: Bytes, starts: Int64s, ends: Int64s) -> Iterator[Int64s]:
    """Values whose indexes are the same bytes, and so lead to the same message."""
    sizes = ends - starts
    there = np.flatnonzero(sizes > 0)
    heads = np.full(len(starts), -1, dtype=np.int64)
    heads[there] = source[starts[there]]
    if len(heads) and heads[0] >= 0 and (heads == heads[0]).all() and heads[0] == _FIRST_BYTE:
        yield np.arange(len(starts))
        return
    for head in np.unique(heads).tolist():
        rows = np.flatnonzero(heads == head)
        # Zigzag or not, what follows is at most as many bytes as the first says, if all are short.
        width = head + 1
        if head <= _FIRST_BYTE:
            yield rows
            continue
        is_short = (sizes[rows] >= width) & (width <= _PATH_BYTES_MAX)
        short = rows[is_short]
        if len(short):
            content = source[starts[short][:, None] + np.arange(width)]
            is_plain = (content < 0x80).all(axis=1)
            yield from _by_content(short[is_plain], content[is_plain])
            rows = np.concatenate((rows[~is_short], short[~is_plain]))
        for row in rows.tolist():
            yield np.array([row])


def _by_content(rows: Int64s, content: Bytes) -> Iterator[Int64s]:
    _, codes = np.unique(content, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    for code in range(codes.max() + 1 if len(codes) else 0):
        yield rows[codes == code]


def _explain(code: int) -> tuple[Reason, str]:
    return Reason.UNDECODABLE, ProtobufFault(code).reason


class ProtobufRowsEncoder:
    """Encodes dicts, messages or Arrow batches as one message of a schema.

    Dicts are encoded one by one, by upb, if a value is not exactly what a field asks for.
    """

    def __init__(self, schema: ProtobufSchema, message_name: str | None) -> None:
        self._single = ProtobufEventEncoder(schema, message_name)
        self.indexes: Indexes | None = self._single.indexes
        self._message_type = MessageTypes(schema).at(self._single.indexes)

    @cached_property
    def _batches(self) -> ProtobufBatchEncoder:
        return ProtobufBatchEncoder(self._message_type)

    @cached_property
    def _dicts(self) -> ProtobufDictProgram | None:
        return compile_dicts(self._message_type.DESCRIPTOR)

    def encode(self, rows: Rows, prefix: bytes) -> tuple[Bytes, Int64s]:
        """Payloads after a prefix, and their offsets; InvalidValueError has the first bad row."""
        if isinstance(rows, pa.RecordBatch):
            buffer, offsets, faults = self._batches.encode(rows, prefix)
            if faults.any():
                row = int(np.flatnonzero(faults)[0])
                raise InvalidValueError(f"row {row}: {ProtobufFault(int(faults[row])).reason}")
            return self._readable(buffer, offsets, len(prefix))
        given: list[Any] = rows if type(rows) is list else list(rows)
        written = None if self._dicts is None else encode_dicts(self._dicts, given, prefix)
        if written is not None:
            return self._readable(written.buffer, written.offsets, len(prefix))
        if set(map(type, given)) <= {dict}:
            make = self._message_type
            with suppress(*UNFIT):  # the row and the reason are determined below
                return join_payloads([prefix + payload_of(make(**row)) for row in given])
        return join_payloads(
            [prefix + self._encoded(row, value) for row, value in enumerate(given)]
        )

    def _readable(self, buffer: Bytes, offsets: Int64s, prefix_bytes: int) -> tuple[Bytes, Int64s]:
        """What was encoded, unless a row of it would not be decoded again."""
        sizes = np.diff(offsets) - prefix_bytes
        if (sizes > EVENT_BYTES_MAX).any():
            row = int(np.flatnonzero(sizes > EVENT_BYTES_MAX)[0])
            raise InvalidValueError(f"row {row}: {ProtobufFault.TOO_LARGE.reason}")
        if nests_freely(self._message_type.DESCRIPTOR):
            for row, (start, end) in enumerate(pairwise(offsets.tolist())):
                payload = buffer[start + prefix_bytes : end].tobytes()
                if not is_decoded_again(self._message_type, payload):
                    raise InvalidValueError(f"row {row}: {ProtobufFault.NESTING.reason}")
        return buffer, offsets

    def _encoded(self, row: int, value: Any) -> bytes:
        try:
            payload, indexes = self._single.encode(value)
        except InvalidValueError as error:
            raise InvalidValueError(f"row {row}: {error}") from None
        if indexes != self.indexes:
            raise InvalidValueError(f"row {row}: another message of the schema than the others")
        return payload
