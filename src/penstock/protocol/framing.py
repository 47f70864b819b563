"""Frames on a connection: four bytes of size, then that many bytes.

Finds frames in place and keeps no bytes: whoever receives owns the buffer. A size that no sound
peer would send raises Malformed before a byte of it is waited for.

What stands in front of every request and response.

A request says who asks for what in which version; a response carries the request's number back.
Flexible versions end their headers in tagged fields, of which a broker needs none: they are
skipped. ApiVersions alone keeps the old response header for ever, because a client reads it before
it knows what the broker speaks.
"""

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import ErrorCode, Malformed
from penstock.protocol.varint import Buffer, read_unsigned_varint

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


API_VERSIONS: Final = 18

_REQUEST: Final = Struct(
    ">"
    "h"  # api_key
    "h"  # api_version
    "i"  # correlation_id    echoed in the response
    "h"  # client_id length  -1: none; the text follows, then tagged fields if flexible
)
_RESPONSE: Final = Struct(
    ">"
    "i"  # size            of everything after this field
    "i"  # correlation_id  the request's
)
_FLEXIBLE_RESPONSE: Final = Struct(
    ">"
    "i"  # size
    "i"  # correlation_id
    "x"  # no tagged fields
)
_UNSUPPORTED: Final = Struct(
    ">"
    "h"  # error_code  35
    "i"  # entries     1
    "h"  # api_key     18
    "h"  # least version
    "h"  # last version
)
ASKER_FROM: Final = 8  # after key, version and correlation id
_CORRELATION_BYTES: Final = 4
_NO_TAGS: Final = b"\x00"
_TAGS_MAX: Final = 64  # one is defined; more than this is rubbish

# The first version of each API whose messages are flexible; an API that is absent has none.
FLEXIBLE_FROM: Final = {
    **{key: 0 for key in range(45, 93) if key != 47},
    0: 9,
    1: 12,
    2: 6,
    3: 9,
    8: 8,
    9: 6,
    10: 3,
    11: 6,
    12: 4,
    13: 4,
    14: 4,
    15: 5,
    16: 3,
    18: 3,
    19: 5,
    20: 4,
    21: 2,
    22: 2,
    23: 4,
    24: 3,
    25: 3,
    26: 3,
    27: 1,
    28: 3,
    29: 2,
    30: 2,
    31: 2,
    32: 4,
    33: 2,
    34: 2,
    35: 2,
    36: 2,
    37: 2,
    38: 2,
    39: 2,
    40: 2,
    41: 2,
    42: 2,
    43: 2,
    44: 1,
    48: 1,
    49: 1,
    53: 1,
    54: 1,
    56: 2,
    76: 1,
    77: 1,
    78: 1,
    79: 1,
}


class RequestHeader(NamedTuple):
    """Who asks for what; `body_position` is where the request itself begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def is_flexible_version(api_key: int, version: int) -> bool:
    return version >= FLEXIBLE_FROM.get(api_key, 1 << 15)


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header at the start of a frame; also of an API or a version that nobody serves."""
    if len(frame) < _REQUEST.size:
        raise Malformed("a request header is cut short", len(frame))
    api_key, api_version, correlation_id, _ = _REQUEST.unpack_from(frame, 0)
    is_flexible = is_flexible_version(api_key, api_version)
    _, client_id, position = read_asker(memoryview(frame), is_flexible)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


class Asker(NamedTuple):
    """The rest of a header, after the correlation id: the same in most requests of a client."""

    packed: bytes
    client_id: str | None
    body_position: int


NOBODY_YET: Final = Asker(b"?", None, ASKER_FROM)  # no frame has that in no bytes


def read_asker(frame: memoryview, is_flexible: bool) -> Asker:
    """The rest of a header whose key and version are known."""
    end = len(frame)
    if end < _REQUEST.size:
        raise Malformed("a request header is cut short", end)
    _, _, _, id_bytes = _REQUEST.unpack_from(frame, 0)
    position = _REQUEST.size
    client_id = None
    if id_bytes >= 0:
        id_end = position + id_bytes
        if id_end > end:
            raise Malformed("the client id runs past the frame", position)
        try:
            client_id = str(frame[position:id_end], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("the client id is not UTF-8", position) from error
        position = id_end
    elif id_bytes != -1:
        raise Malformed(f"a client id says {id_bytes} bytes", position)
    if is_flexible:
        position = skip_tagged_fields(frame, position, end)
    return Asker(bytes(frame[ASKER_FROM:position]), client_id, position)


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """Past the tagged fields that end a flexible structure."""
    if position < end and buffer[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(buffer, position, end)
    if count > _TAGS_MAX:
        raise Malformed(f"{count} tagged fields", position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position, end)
        size, position = read_unsigned_varint(buffer, position, end)
        if size > end - position:
            raise Malformed(f"a tagged field says {size} bytes", position)
        position += size
    return position


def write_request_header(
    *, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """What a client puts in front of a request body."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tags = _NO_TAGS if is_flexible_version(api_key, api_version) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id, size) + name + tags


def response_start(correlation_id: int, body_bytes: int, has_tags: bool) -> bytes:
    """A response frame's size and header, to be followed by a body of that many bytes."""
    if has_tags:
        return _FLEXIBLE_RESPONSE.pack(_CORRELATION_BYTES + 1 + body_bytes, correlation_id)
    return _RESPONSE.pack(_CORRELATION_BYTES + body_bytes, correlation_id)


def response_has_tags(api_key: int, api_version: int) -> bool:
    """Whether the response header of this version ends in tagged fields."""
    return api_key != API_VERSIONS and is_flexible_version(api_key, api_version)


def unsupported_api_versions(least_version: int, last_version: int) -> bytes:
    """The body for an ApiVersions request that is too new: version 0, and what to ask with."""
    return _UNSUPPORTED.pack(
        ErrorCode.unsupported_version, 1, API_VERSIONS, least_version, last_version
    )
