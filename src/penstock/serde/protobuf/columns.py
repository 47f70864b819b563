"""Framed Protobuf values to the columns of a reader's message.

Which message of its schema a value is, its frame says by message indexes. Columns are those of one
message, so values of others are wrong rows: by default of the message that most values name. Old
Python clients wrote indexes as plain varints: where the zigzag reading leads to no message of the
schema, the plain one is tried.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from penstock.serde.batch_frames import FrameGroup, WrongRow
from penstock.serde.column_codec import Part, all_wrong, decoded_parts, joined
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, Reason
from penstock.serde.event_codec import Misfit
from penstock.serde.frame import BadFrame, read_indexes
from penstock.serde.protobuf.batch import ProtobufBatchDecoder, ProtobufBatchEncoder
from penstock.serde.protobuf.compile_dicts import compile_dicts
from penstock.serde.protobuf.event import (
    EVENT_BYTES_MAX,
    UNFIT,
    MessageTypes,
    ProtobufEventEncoder,
    is_read_again,
    payload_of,
)
from penstock.serde.protobuf.payload_check import nests_freely
from penstock.serde.protobuf.types import TimeUnit

FIRST_MESSAGE: Final = (0,)
_FIRST_BYTE: Final = 0  # how that path is written
_PATH_BYTES_MAX: Final = 16  # of indexes told apart at once; longer ones are read one by one
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


class _Path(NamedTuple):
    """Where indexes lead: the message's name, and how many bytes they took."""

    name: str
    size_bytes: int


class ProtobufColumns:
    """Reads values of one message, whichever schema wrote them."""

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
        self.empty = self._decoder.decode(b"", _NO_ROWS, _NO_ROWS)[0]

    def read(
        self, writer: ParsedSchema, group: FrameGroup, source: Bytes, wrongs: list[WrongRow]
    ) -> Iterator[Part]:
        """The rows of one writer's schema."""
        if not isinstance(writer, ProtobufSchema):
            told = f"written as {writer.type}, to be read as PROTOBUF"
            wrongs += all_wrong(group, Reason.UNRESOLVABLE, told)
            return
        for some, path in _paths(writer, group, source, self._forms, wrongs):
            if path.name != self._name:
                told = (
                    f"written as {path.name}, to be read as {self._name}: one message is read, "
                    "the one that Contract(message=...) names"
                )
                wrongs += all_wrong(some, Reason.UNRESOLVABLE, told)
                continue
            yield from decoded_parts(
                self._decoder, source, some, _told, ProtobufFault.TOO_LARGE, wrongs
            )


def _paths(
    writer: ProtobufSchema,
    group: FrameGroup,
    source: Bytes,
    forms: tuple[bool, ...],
    wrongs: list[WrongRow],
) -> Iterator[tuple[FrameGroup, _Path]]:
    """The group by message, payloads without their indexes."""
    if group.header is not None:
        try:
            yield group, _path(writer, group.header, forms, is_whole=True)
        except BadFrame as wrong:
            wrongs += all_wrong(group, wrong.kind, str(wrong))
        return
    for places in _alike(source, group.starts, group.ends):
        start, end = int(group.starts[places[0]]), int(group.ends[places[0]])
        some = group._replace(
            rows=group.rows[places], starts=group.starts[places], ends=group.ends[places]
        )
        try:
            path = _path(writer, source[start:end].tobytes(), forms)
        except BadFrame as wrong:
            wrongs += all_wrong(some, wrong.kind, str(wrong))
            continue
        yield some._replace(starts=some.starts + path.size_bytes), path


def _path(
    writer: ProtobufSchema, source: bytes, forms: tuple[bool, ...], *, is_whole: bool = False
) -> _Path:
    failure: BadFrame | None = None
    for plain in forms:
        try:
            indexes, end = read_indexes(source, plain=plain)
            if is_whole and end != len(source):
                raise BadFrame(Reason.TRAILING_BYTES, "the header goes on after the indexes", end)
            return _Path(writer.message_at(indexes), end)
        except BadFrame as wrong:
            failure = failure or wrong
        except InvalidSchemaError as wrong:
            failure = failure or BadFrame(Reason.BAD_INDEXES, str(wrong), 0)
    assert failure is not None
    raise failure


def most_named(
    reader: ProtobufSchema,
    written: Sequence[tuple[FrameGroup, ParsedSchema]],
    source: Bytes,
    *,
    plain_indexes: bool = False,
) -> str | None:
    """The message of the reader's schema that most events name; of equals, the last written."""
    counts: dict[str, tuple[int, int]] = {}  # how many, and the last row
    for group, writer in written:
        if isinstance(writer, ProtobufSchema):
            for some, path in _paths(writer, group, source, _forms(plain_indexes), []):
                count, last = counts.get(path.name, (0, -1))
                counts[path.name] = (count + len(some.rows), max(last, int(some.rows.max())))
    known = [name for name in counts if reader.has_message(name)]
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
        places = np.flatnonzero(heads == head)
        # Zigzag or not, what follows is at most as many bytes as the first says, if all are short.
        width = head + 1
        if head <= _FIRST_BYTE:
            yield places
            continue
        is_short = (sizes[places] >= width) & (width <= _PATH_BYTES_MAX)
        short = places[is_short]
        if len(short):
            content = source[starts[short][:, None] + np.arange(width)]
            is_plain = (content < 0x80).all(axis=1)
            yield from _by_content(short[is_plain], content[is_plain])
            places = np.concatenate((places[~is_short], short[~is_plain]))
        for place in places.tolist():
            yield np.array([place])


def _by_content(places: Int64s, content: Bytes) -> Iterator[Int64s]:
    _, codes = np.unique(content, axis=0, return_inverse=True)
    codes = codes.reshape(-1)
    for code in range(codes.max() + 1 if len(codes) else 0):
        yield places[codes == code]


def _told(code: int) -> tuple[Reason, str]:
    return Reason.UNDECODABLE, ProtobufFault(code).reason


class ProtobufRows:
    """Writes dicts, messages or Arrow batches as one message of a schema.

    Dicts go one by one, by upb, where there is a value that is not exactly what a field asks for.
    """

    def __init__(self, schema: ProtobufSchema, message_name: str | None) -> None:
        self._one = ProtobufEventEncoder(schema, message_name)
        self.indexes: Sequence[int] | None = self._one.indexes
        self._message_type = MessageTypes(schema).at(self._one.indexes)

    @cached_property
    def _batches(self) -> ProtobufBatchEncoder:
        return ProtobufBatchEncoder(self._message_type)

    @cached_property
    def _dicts(self) -> ProtobufDictProgram | None:
        return compile_dicts(self._message_type.DESCRIPTOR)

    def write(
        self, rows: "Sequence[Mapping[str, Any]] | pa.RecordBatch", prefix: bytes
    ) -> tuple[Bytes, Int64s]:
        """Payloads behind a prefix, and their offsets; Misfit names the first row that is none."""
        if isinstance(rows, pa.RecordBatch):
            buffer, offsets, faults = self._batches.encode(rows, prefix)
            if faults.any():
                row = int(np.flatnonzero(faults)[0])
                raise Misfit(f"row {row}: {ProtobufFault(int(faults[row])).reason}")
            return self._readable(buffer, offsets, len(prefix))
        taken: list[Any] = rows if type(rows) is list else list(rows)
        written = None if self._dicts is None else encode_dicts(self._dicts, taken, prefix)
        if written is not None:
            return self._readable(written.buffer, written.offsets, len(prefix))
        if set(map(type, taken)) <= {dict}:
            make = self._message_type
            with suppress(*UNFIT):  # which row it was, and why, is found below
                return joined([prefix + payload_of(make(**row)) for row in taken])
        return joined([prefix + self._written(row, value) for row, value in enumerate(taken)])

    def _readable(self, buffer: Bytes, offsets: Int64s, prefix_bytes: int) -> tuple[Bytes, Int64s]:
        """What was written, unless a row of it is beyond what is read again."""
        sizes = np.diff(offsets) - prefix_bytes
        if (sizes > EVENT_BYTES_MAX).any():
            row = int(np.flatnonzero(sizes > EVENT_BYTES_MAX)[0])
            raise Misfit(f"row {row}: {ProtobufFault.TOO_LARGE.reason}")
        if nests_freely(self._message_type.DESCRIPTOR):
            for row, (start, end) in enumerate(pairwise(offsets.tolist())):
                payload = buffer[start + prefix_bytes : end].tobytes()
                if not is_read_again(self._message_type, payload):
                    raise Misfit(f"row {row}: {ProtobufFault.NESTING.reason}")
        return buffer, offsets

    def _written(self, row: int, value: Any) -> bytes:
        try:
            payload, indexes = self._one.encode(value)
        except Misfit as wrong:
            raise Misfit(f"row {row}: {wrong}") from None
        if indexes != self.indexes:
            raise Misfit(f"row {row}: another message of the schema than the others")
        return payload
