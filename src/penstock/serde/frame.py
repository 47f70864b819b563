"""How an event says which schema wrote it: Confluent's wire frames, prefix and header form.

    prefix    00 | id, 4 bytes big-endian | [message indexes] | payload
    header    record header `__value_schema_id` or `__key_schema_id`:
              01 | GUID, 16 bytes | [message indexes]     and the value is the payload alone

Message indexes are Protobuf's: how many, then each, as zigzag varints; the path to the message in
its file. [0], the usual one, is the single byte 00. Old Python clients wrote plain varints, which
can be distinguished only with the schema.

Reads bytes and never calls a registry. Bytes are not trusted: what is not a frame raises
BadFrameError with the reason and the position.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple, NewType, TypeAlias
from uuid import UUID

from penstock.errors import Malformed
from penstock.serde.errors import Reason

SchemaId = NewType("SchemaId", int)
SchemaKey: TypeAlias = SchemaId | UUID  # what a frame carries; both always name the same schema
Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
PREFIX_BYTES: Final = 5
GUID_BYTES: Final = 17
INDEXES_MAX: Final = 100  # messages nest no deeper than a Protobuf compiler goes
INDEX_MAX: Final = 1 << 20
_PREFIX = Struct(
    ">"
    "B"  # magic, 0
    "I"  # schema id
)
_VARINT_BYTES_MAX: Final = 4
_FIRST_MESSAGE: Final = (0,)
assert _PREFIX.size == PREFIX_BYTES


class Side(StrEnum):
    """The key or the value of a record."""

    KEY = "key"
    VALUE = "value"

    @property
    def header_name(self) -> str:
        """The record header that names the schema of the key or value in the header form."""
        return f"__{self}_schema_id"


class BadFrameError(Malformed):
    """Bytes that are not a frame; `kind` is the reason as a label."""

    def __init__(self, kind: Reason, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.kind = kind


class Frame(NamedTuple):
    """A key or value with the schema that wrote it."""

    schema: SchemaKey
    source: bytes  # where the schema was named: the content itself, or a record header
    position: int  # in source, after the id or GUID
    content: bytes  # the key or value as it is in the record

    @property
    def in_header(self) -> bool:
        """Whether this is the header form."""
        return self.source is not self.content

    def payload(self) -> bytes:
        """The payload, in languages without message indexes."""
        if not self.in_header:
            return self.content[self.position :]
        require_header_end(self.source, self.position, "GUID")
        return self.content

    def message(self, *, plain: bool = False) -> tuple[tuple[int, ...], bytes]:
        """Protobuf: the path to the message's type, and the message."""
        indexes, end = read_indexes(self.source, self.position, plain=plain)
        if not self.in_header:
            return indexes, self.content[end:]
        require_header_end(self.source, end, "indexes")
        return indexes, self.content


def require_header_end(header: bytes, position: int, last: str) -> None:
    """BadFrameError if the header form has bytes after its last part."""
    if position != len(header):
        detail = f"the header continues after the {last}"
        raise BadFrameError(Reason.TRAILING_BYTES, detail, position)


def read_frame(content: bytes, headers: Headers | None = None, side: Side = Side.VALUE) -> Frame:
    """The frame of a record's key or value: by its header if it has one, by its prefix if not."""
    if headers:
        name = side.header_name
        for header_name, value in headers:
            if header_name == name and value is not None:
                schema, position = _read_key(value)
                return Frame(schema, value, position, content)
    schema, position = _read_key(content)
    return Frame(schema, content, position, content)


def _read_key(source: bytes) -> tuple[SchemaKey, int]:
    size_bytes = len(source)
    if size_bytes == 0:
        raise BadFrameError(Reason.NOT_FRAMED, "there are no bytes, not even a magic byte", 0)
    magic = source[0]
    if magic == ID_MAGIC:
        if size_bytes < PREFIX_BYTES:
            raise BadFrameError(Reason.TRUNCATED_FRAME, "ends inside the schema id", size_bytes)
        return SchemaId(_PREFIX.unpack_from(source)[1]), PREFIX_BYTES
    if magic == GUID_MAGIC:
        if size_bytes < GUID_BYTES:
            raise BadFrameError(Reason.TRUNCATED_FRAME, "ends inside the schema GUID", size_bytes)
        return UUID(bytes=source[1:GUID_BYTES]), GUID_BYTES
    raise BadFrameError(Reason.NOT_FRAMED, f"starts with byte {magic:#04x}, not 00 or 01", 0)


def read_indexes(
    source: bytes, position: int = 0, *, plain: bool = False
) -> tuple[tuple[int, ...], int]:
    """Message indexes and the position after them; `plain` is the old form without zigzag."""
    count, position = _read_varint(source, position, plain=plain)
    if count == 0:
        return _FIRST_MESSAGE, position
    if not 0 < count <= INDEXES_MAX:
        raise BadFrameError(Reason.BAD_INDEXES, f"{count} message indexes", position)
    indexes = []
    for _ in range(count):
        index, position = _read_varint(source, position, plain=plain)
        if not 0 <= index <= INDEX_MAX:
            raise BadFrameError(Reason.BAD_INDEXES, f"a message index of {index}", position)
        indexes.append(index)
    return tuple(indexes), position


def _read_varint(source: bytes, position: int, *, plain: bool) -> tuple[int, int]:
    number = 0
    for index in range(_VARINT_BYTES_MAX):
        at = position + index
        if at >= len(source):
            raise BadFrameError(Reason.TRUNCATED_FRAME, "ends inside the message indexes", at)
        byte = source[at]
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (number if plain else (number >> 1) ^ -(number & 1)), at + 1
    raise BadFrameError(Reason.BAD_INDEXES, "a message index of too many bytes", position)


def write_indexes(indexes: Sequence[int], *, plain: bool = False) -> bytes:
    """Message indexes as they are written; [0] is one byte."""
    if tuple(indexes) == _FIRST_MESSAGE:
        return b"\x00"
    return b"".join(_varints((len(indexes), *indexes), plain=plain))


def _varints(numbers: Iterable[int], *, plain: bool) -> Iterable[bytes]:
    for number in numbers:
        left = number if plain else number << 1
        while left > 0x7F:
            yield bytes((left & 0x7F | 0x80,))
            left >>= 7
        yield bytes((left,))


def write_prefix(schema_id: SchemaId, indexes: Sequence[int] | None = None) -> bytes:
    """The bytes before a payload in the prefix form."""
    prefix = _PREFIX.pack(ID_MAGIC, schema_id)
    return prefix if indexes is None else prefix + write_indexes(indexes)


def write_header(guid: UUID, indexes: Sequence[int] | None = None) -> bytes:
    """The value of the record header in the header form."""
    header = bytes((GUID_MAGIC,)) + guid.bytes
    return header if indexes is None else header + write_indexes(indexes)
