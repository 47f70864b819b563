"""The field types of group records, read and written: classic and compact.

Strings, byte strings and arrays exist in two forms: *classic* with a fixed-width length (-1 is
null) and *compact* with an unsigned varint of length + 1 (0 is null). Compact structures end in
tagged fields. Unknown tags are skipped.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Final, TypeVar
from uuid import UUID

from penstock.errors import Malformed
from penstock.protocol.varint import read_unsigned_varint, unsigned_varint

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
NO_TAGS: Final = b"\x00"

T = TypeVar("T")


class FieldReader:
    """A cursor over one record's key or value."""

    __slots__ = ("_buffer", "position")

    def __init__(self, buffer: bytes, position: int = 0) -> None:
        self._buffer = buffer
        self.position: int = position

    def _fixed(self, layout: Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._buffer, self.position)
        except error:
            raise Malformed("a group record ends inside a number", self.position) from None
        self.position += layout.size
        return int(value)

    def int8(self) -> int:
        """A signed byte."""
        (raw,) = self._take(1)
        return raw - 256 if raw > 127 else raw

    def int16(self) -> int:
        """A signed 16-bit number."""
        return self._fixed(INT16)

    def int32(self) -> int:
        """A signed 32-bit number."""
        return self._fixed(INT32)

    def int64(self) -> int:
        """A signed 64-bit number."""
        return self._fixed(INT64)

    def uuid(self) -> UUID:
        """Sixteen bytes."""
        return UUID(bytes=self._take(16))

    def unsigned_varint(self) -> int:
        """A length or count of a compact structure."""
        value, self.position = read_unsigned_varint(self._buffer, self.position, len(self._buffer))
        return value

    def _take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._buffer):
            raise Malformed("a group record ends inside a field", self.position)
        taken = self._buffer[self.position : end]
        self.position = end
        return taken

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise Malformed("a string of a group record is not UTF-8", self.position) from None

    def nullable_string(self) -> str | None:
        """A classic string, or None."""
        size = self.int16()
        return None if size < 0 else self._text(size)

    def string(self) -> str:
        """A classic string; null reads as empty."""
        return self.nullable_string() or ""

    def bytes_(self) -> bytes:
        """A classic byte string; null reads as empty."""
        size = self.int32()
        return b"" if size < 0 else self._take(size)

    def array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """A classic array."""
        return tuple(read() for _ in range(self.int32()))

    def compact_nullable_string(self) -> str | None:
        """A compact string, or None."""
        size = self.unsigned_varint()
        return None if size == 0 else self._text(size - 1)

    def compact_string(self) -> str:
        """A compact string; null reads as empty."""
        return self.compact_nullable_string() or ""

    def compact_bytes(self) -> bytes:
        """A compact byte string; null reads as empty."""
        size = self.unsigned_varint()
        return b"" if size == 0 else self._take(size - 1)

    def compact_array(self, read: Callable[[], T]) -> tuple[T, ...]:
        """A compact array; null reads as empty."""
        return tuple(read() for _ in range(self.unsigned_varint() - 1))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields that end a compact structure, still packed."""
        count = self.unsigned_varint()
        return {self.unsigned_varint(): self._take(self.unsigned_varint()) for _ in range(count)}


def write_string(text: str | None) -> bytes:
    """A classic string."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def write_bytes(raw: bytes) -> bytes:
    """A classic byte string."""
    return INT32.pack(len(raw)) + raw


def write_compact_string(text: str | None) -> bytes:
    """A compact string."""
    return NO_TAGS if text is None else write_compact_bytes(text.encode())


def write_compact_bytes(raw: bytes) -> bytes:
    """A compact byte string."""
    return unsigned_varint(len(raw) + 1) + raw


def write_compact_array(items: list[bytes]) -> bytes:
    """A compact array of packed items."""
    return unsigned_varint(len(items) + 1) + b"".join(items)


def write_tags(tags: dict[int, bytes]) -> bytes:
    """Tagged fields in order of their tag, as Kafka writes them."""
    packed = [unsigned_varint(len(tags))]
    for tag in sorted(tags):
        value = tags[tag]
        packed += (unsigned_varint(tag), unsigned_varint(len(value)), value)
    return b"".join(packed)
