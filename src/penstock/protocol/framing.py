"""Frames on a connection: four bytes of size, then that many bytes.

Finds frames in place and keeps no bytes: whoever receives owns the buffer. A size that no sound
peer would send raises Malformed before a byte of it is waited for.
"""

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.primitives import Buffer

_SIZE: Final = Struct(">i")
SIZE_BYTES: Final = _SIZE.size
read_size: Final = _SIZE.unpack_from  # bare, for loops that check it on their own
REQUEST_BYTES_MIN: Final = 8  # key, version, correlation id
RESPONSE_BYTES_MIN: Final = 4  # correlation id


class Frame(NamedTuple):
    """Where a frame lies in a buffer, without its size field."""

    start: int
    end: int


def next_frame(
    buffer: Buffer, start: int, end: int, *, bytes_min: int = REQUEST_BYTES_MIN, bytes_max: int
) -> Frame | None:
    """The frame whose size field is at `start`, if all of it has come before `end`."""
    following = frame_end(buffer, start, end, bytes_min=bytes_min, bytes_max=bytes_max)
    if following is None or following > end:
        return None
    return Frame(start + SIZE_BYTES, following)


def frame_end(
    buffer: Buffer, start: int, end: int, *, bytes_min: int = REQUEST_BYTES_MIN, bytes_max: int
) -> int | None:
    """Where the frame at `start` will end, once its size field has come: how much room it needs."""
    if end - start < SIZE_BYTES:
        return None
    (size,) = _SIZE.unpack_from(buffer, start)
    if not bytes_min <= size <= bytes_max:
        raise Malformed(f"a frame of {size} bytes, not {bytes_min} to {bytes_max}", start)
    return start + SIZE_BYTES + int(size)
