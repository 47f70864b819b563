"""Fields of flexible messages, for requests that are read by hand.

Each takes a frame and a position and gives back the value and the next position. Lengths and counts
are checked against the bytes that are there, before anything is made of them.
"""

from typing import Final

from penstock.errors import Malformed
from penstock.protocol.primitives import read_unsigned_varint

TopicKey = str | bytes  # a name, or an id's 16 bytes

_TOPIC_ID_BYTES: Final = 16


def read_string(frame: memoryview, position: int) -> tuple[str, int]:
    """A text that must be there."""
    text, following = read_nullable_string(frame, position)
    if text is None:
        raise Malformed("a string is null", position)
    return text, following


def read_nullable_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    """A text or null."""
    size, position = read_unsigned_varint(frame, position, len(frame))
    if size == 0:
        return None, position
    following = position + size - 1
    if following > len(frame):
        raise Malformed(f"a string of {size - 1} bytes runs past the frame", position)
    try:
        return str(frame[position:following], "utf-8"), following
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8", position) from error


def read_count(frame: memoryview, position: int) -> tuple[int, int]:
    """Of the entries of an array that must be there. None of them takes less than a byte."""
    count, position = read_unsigned_varint(frame, position, len(frame))
    if not 0 <= count - 1 <= len(frame) - position:
        raise Malformed(f"{count - 1} entries in {len(frame) - position} bytes", position)
    return count - 1, position


def read_topic_id(frame: memoryview, position: int) -> tuple[bytes, int]:
    """The 16 bytes of an id."""
    following = position + _TOPIC_ID_BYTES
    if following > len(frame):
        raise Malformed("a topic id is cut short", position)
    return bytes(frame[position:following]), following


def read_topic_key(frame: memoryview, position: int, by_id: bool) -> tuple[TopicKey, int]:
    """A topic, in the way that the version names topics."""
    return read_topic_id(frame, position) if by_id else read_string(frame, position)
