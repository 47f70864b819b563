"""Fields of messages in the protocol's two encodings, and structures that several APIs share.

Non-flexible versions put fixed-width lengths in front of strings and arrays; flexible ones use
varints of the length plus one, and end each structure in tagged fields. Readers take a frame and a
position and return the value and the next position; lengths and counts are checked against the
bytes of the frame before anything is made of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import Malformed
from penstock.protocol.api import is_flexible_version
from penstock.protocol.framing import skip_tagged_fields
from penstock.protocol.varint import read_unsigned_varint, unsigned_varint

TopicKey: TypeAlias = str | bytes  # a name, or the 16 bytes of an id

TOPIC_ID_BYTES: Final = 16
NO_TOPIC_ID: Final = bytes(TOPIC_ID_BYTES)

_LENGTH_16: Final = Struct(">h")
_LENGTH_32: Final = Struct(">i")
_INTS: Final = tuple(Struct(f">{count}i") for count in range(33))


class NodeEndpoint(NamedTuple):
    """The address of a broker, for clients that must connect to another one."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class LeaderAndEpoch(NamedTuple):
    """The leader of a partition, as far as the responding broker knows."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Encoding:
    """What differs between non-flexible and flexible versions, in both directions."""

    is_flexible: bool
    # Writing.
    string: Callable[[str | None], bytes]
    count: Callable[[int], bytes]  # of an array
    null_array: bytes
    size: Callable[[int], bytes]  # of bytes or records
    no_tags: bytes  # ends a structure that has no tagged fields to send
    # Reading.
    read_nullable_string: Callable[[memoryview, int], tuple[str | None, int]]
    read_count: Callable[[memoryview, int], tuple[int, int]]
    read_nullable_count: Callable[[memoryview, int], tuple[int, int]]  # unchecked; -1: null
    read_nullable_bytes: Callable[[memoryview, int], tuple[memoryview | None, int]]
    skip_tags: Callable[[memoryview, int, int], int]

    def ints(self, values: Sequence[int]) -> bytes:
        """An array of int32."""
        count = len(values)
        layout = _INTS[count] if count < len(_INTS) else Struct(f">{count}i")
        return self.count(count) + layout.pack(*values)

    def read_string(self, frame: memoryview, position: int) -> tuple[str, int]:
        """A string that must not be null."""
        text, following = self.read_nullable_string(frame, position)
        if text is None:
            raise Malformed("a string is null", position)
        return text, following

    def read_topic(self, frame: memoryview, position: int, by_id: bool) -> tuple[TopicKey, int]:
        """A topic's name or id, whichever the version has."""
        return read_topic_id(frame, position) if by_id else self.read_string(frame, position)

    def topic(self, key: TopicKey) -> bytes:
        """A topic's name or id."""
        return key if isinstance(key, bytes) else self.string(key)


@cache
def encoding_of(api_key: int, version: int) -> Encoding:
    """The encoding that messages of this API and version have."""
    return FLEXIBLE if is_flexible_version(api_key, version) else NON_FLEXIBLE


def read_topic_id(frame: memoryview, position: int) -> tuple[bytes, int]:
    """The 16 bytes of an id."""
    following = position + TOPIC_ID_BYTES
    if following > len(frame):
        raise Malformed("a topic id is truncated", position)
    return bytes(frame[position:following]), following


# Tagged fields.


def tagged(*fields: tuple[int, bytes]) -> bytes:
    """The tagged fields at the end of a flexible structure, in rising order of their tags."""
    if not fields:
        return b"\0"
    parts = [unsigned_varint(len(fields))]
    for tag, content in fields:
        parts += (unsigned_varint(tag), unsigned_varint(len(content)), content)
    return b"".join(parts)


_NODE: Final = Struct(">i")
_LEADER: Final = Struct(
    ">"
    "i"  # leader_id
    "i"  # leader_epoch
    "x"  # no tagged fields
)


def leader_field(tag: int, leader: LeaderAndEpoch) -> tuple[int, bytes]:
    """`current_leader` as a tagged field."""
    return tag, _LEADER.pack(leader.leader_id, leader.leader_epoch)


def nodes_field(tag: int, nodes: Sequence[NodeEndpoint]) -> tuple[int, bytes]:
    """`node_endpoints` as a tagged field."""
    parts = [unsigned_varint(len(nodes) + 1)]
    for node in nodes:
        parts += (_NODE.pack(node.node_id), _compact_string(node.host), _NODE.pack(node.port))
        parts += (_compact_string(node.rack), b"\0")
    return tag, b"".join(parts)


# Flexible versions.


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def _compact_length(count: int) -> bytes:
    return unsigned_varint(count + 1)


def _read_compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_unsigned_varint(frame, position, len(frame))
    return (None, position) if size == 0 else _read_text(frame, position, size - 1)


def _read_compact_count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(frame, position, len(frame))
    return _checked_count(count - 1, frame, position), position


def _read_nullable_compact_count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = read_unsigned_varint(frame, position, len(frame))
    return count - 1, position


def _read_compact_bytes(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = read_unsigned_varint(frame, position, len(frame))
    return (None, position) if size == 0 else _read_view(frame, position, size - 1)


# Non-flexible versions.


def _fixed_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return _LENGTH_16.pack(len(encoded)) + encoded


def _read_fixed_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    size, position = _read_length(_LENGTH_16, frame, position)
    return (None, position) if size == -1 else _read_text(frame, position, size)


def _read_fixed_count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = _read_length(_LENGTH_32, frame, position)
    return _checked_count(count, frame, position), position


def _read_nullable_fixed_count(frame: memoryview, position: int) -> tuple[int, int]:
    count, position = _read_length(_LENGTH_32, frame, position)
    if count < -1:
        raise Malformed(f"an array of {count} entries", position)
    return count, position


def _read_fixed_bytes(frame: memoryview, position: int) -> tuple[memoryview | None, int]:
    size, position = _read_length(_LENGTH_32, frame, position)
    return (None, position) if size == -1 else _read_view(frame, position, size)


def _no_tags_to_skip(_frame: memoryview, position: int, _end: int) -> int:
    return position


# Both.


def _read_length(layout: Struct, frame: memoryview, position: int) -> tuple[int, int]:
    try:
        (length,) = layout.unpack_from(frame, position)
    except StructError as error:
        raise Malformed("a length is truncated", position) from error
    return length, position + layout.size


def _read_view(frame: memoryview, position: int, size: int) -> tuple[memoryview, int]:
    following = position + size
    if size < 0 or following > len(frame):
        raise Malformed(f"a field of {size} bytes runs past the frame", position)
    return frame[position:following], following


def _read_text(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    encoded, following = _read_view(frame, position, size)
    try:
        return str(encoded, "utf-8"), following
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8", position) from error


def _checked_count(count: int, frame: memoryview, position: int) -> int:
    """No entry of an array takes less than a byte."""
    if not 0 <= count <= len(frame) - position:
        raise Malformed(f"{count} entries in {len(frame) - position} bytes", position)
    return count


NON_FLEXIBLE: Final = Encoding(
    is_flexible=False,
    string=_fixed_string,
    count=_LENGTH_32.pack,
    null_array=_LENGTH_32.pack(-1),
    size=_LENGTH_32.pack,
    no_tags=b"",
    read_nullable_string=_read_fixed_string,
    read_count=_read_fixed_count,
    read_nullable_count=_read_nullable_fixed_count,
    read_nullable_bytes=_read_fixed_bytes,
    skip_tags=_no_tags_to_skip,
)
FLEXIBLE: Final = Encoding(
    is_flexible=True,
    string=_compact_string,
    count=_compact_length,
    null_array=b"\0",
    size=_compact_length,
    no_tags=b"\0",
    read_nullable_string=_read_compact_string,
    read_count=_read_compact_count,
    read_nullable_count=_read_nullable_compact_count,
    read_nullable_bytes=_read_compact_bytes,
    skip_tags=skip_tagged_fields,
)
