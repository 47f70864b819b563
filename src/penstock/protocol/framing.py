"""Frames on a connection, and the header in front of every request and response.

A frame is four bytes of size, then that many bytes. Frames are located in place: the receiver owns
the buffer. A size outside the limits raises Malformed before any of its bytes are awaited.

A request header names the API, its version and the client; a response carries the request's
correlation id. Flexible versions end their headers in tagged fields, which are skipped: a broker
needs none of them. ApiVersions keeps the non-flexible response header in all versions, because a
client reads it before it knows what the broker supports.
"""

from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.protocol.api import Api, is_flexible_version
from penstock.protocol.varint import Buffer, read_unsigned_varint

_SIZE: Final = Struct(">i")
SIZE_BYTES: Final = _SIZE.size
read_size: Final = _SIZE.unpack_from  # unchecked, for loops that check it themselves
REQUEST_BYTES_MIN: Final = 8  # key, version, correlation id
RESPONSE_BYTES_MIN: Final = 4  # correlation id


class FrameSpan(NamedTuple):
    """The position of a frame in a buffer, without its size field."""

    start: int
    end: int


def next_frame(
    buffer: Buffer, start: int, end: int, *, bytes_min: int = REQUEST_BYTES_MIN, bytes_max: int
) -> FrameSpan | None:
    """The frame whose size field is at `start`, if all of it has arrived before `end`."""
    following = frame_end(buffer, start, end, bytes_min=bytes_min, bytes_max=bytes_max)
    if following is None or following > end:
        return None
    return FrameSpan(start + SIZE_BYTES, following)


def frame_end(
    buffer: Buffer, start: int, end: int, *, bytes_min: int = REQUEST_BYTES_MIN, bytes_max: int
) -> int | None:
    """Where the frame at `start` will end; None while its size field is incomplete."""
    if end - start < SIZE_BYTES:
        return None
    (size,) = _SIZE.unpack_from(buffer, start)
    if not bytes_min <= size <= bytes_max:
        raise Malformed(f"frame of {size} bytes; allowed are {bytes_min} to {bytes_max}", start)
    return start + SIZE_BYTES + int(size)


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
HEADER_TAIL_FROM: Final = 8  # after key, version and correlation id
_CORRELATION_BYTES: Final = 4
_NO_TAGS: Final = b"\x00"
_TAGS_MAX: Final = 64  # Kafka defines one; more are garbage


class RequestHeader(NamedTuple):
    """API, version and client of a request; its body begins at `body_position`."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """The header at the start of a frame; of an API or version without a schema too."""
    if len(frame) < _REQUEST.size:
        raise Malformed("the request header is truncated", len(frame))
    api_key, api_version, correlation_id, _ = _REQUEST.unpack_from(frame, 0)
    is_flexible = is_flexible_version(api_key, api_version)
    _, client_id, position = read_header_tail(memoryview(frame), is_flexible)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


class HeaderTail(NamedTuple):
    """The rest of a header, after the correlation id: the same in most requests of a client."""

    packed: bytes
    client_id: str | None
    body_position: int


# Differs from every frame: one byte can never equal a slice of no bytes.
NO_HEADER: Final = HeaderTail(b"?", None, HEADER_TAIL_FROM)


def read_header_tail(frame: memoryview, is_flexible: bool) -> HeaderTail:
    """The rest of a header whose key and version are known."""
    end = len(frame)
    if end < _REQUEST.size:
        raise Malformed("the request header is truncated", end)
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
        raise Malformed(f"client id of {id_bytes} bytes", position)
    if is_flexible:
        position = skip_tagged_fields(frame, position, end)
    return HeaderTail(bytes(frame[HEADER_TAIL_FROM:position]), client_id, position)


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """The position after the tagged fields that end a flexible structure."""
    if position < end and buffer[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(buffer, position, end)
    if count > _TAGS_MAX:
        raise Malformed(f"{count} tagged fields", position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position, end)
        size, position = read_unsigned_varint(buffer, position, end)
        if size > end - position:
            raise Malformed(f"a tagged field of {size} bytes runs past the frame", position)
        position += size
    return position


def write_request_header(
    *, api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """The header of a request; the body follows."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tags = _NO_TAGS if is_flexible_version(api_key, api_version) else b""
    return _REQUEST.pack(api_key, api_version, correlation_id, size) + name + tags


def response_start(correlation_id: int, body_bytes: int, has_tags: bool) -> bytes:
    """Size field and header of a response frame; a body of `body_bytes` follows."""
    if has_tags:
        return _FLEXIBLE_RESPONSE.pack(_CORRELATION_BYTES + 1 + body_bytes, correlation_id)
    return _RESPONSE.pack(_CORRELATION_BYTES + body_bytes, correlation_id)


def response_has_tags(api_key: int, api_version: int) -> bool:
    """Whether the response header of this version ends in tagged fields."""
    return api_key != Api.API_VERSIONS and is_flexible_version(api_key, api_version)
