"""What a zstd or lz4 stream can open to at most, read from its frame and block headers alone.

Never opens a block. The limit is never below the true size of a sound stream, and close above it
for one that an encoder wrote in full blocks; a stream whose headers run past its end raises
Malformed. Only the first HEADERS_MAX frame and block headers are read: a stream of more, which no
encoder writes for a batch, is UNKNOWN_SIZE.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from penstock.errors import Malformed

HEADERS_MAX: Final = 4096  # of frames and blocks; 512 MB in full blocks of zstd
UNKNOWN_SIZE: Final = 2**63 - 1

_U32: Final = Struct("<I")

# Both formats share sixteen magics for frames that hold no content: magic, length, that many bytes.
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_HAS_CHECKSUM: Final = 0x04
_ZSTD_SINGLE_SEGMENT: Final = 0x20  # no window byte; the content size is always there
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_REPEATED: Final = 1  # one byte, `size` times
_ZSTD_COMPRESSED: Final = 2

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_HAS_CONTENT_SIZE: Final = 0x08
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_STORED: Final = 1 << 31  # a block that is not compressed
_LZ4_BLOCK_BYTES_MAX: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_EXPANSION_MAX: Final = 255  # one byte of input adds at most this much


class _Walked(NamedTuple):
    limit: int  # of what the frame opens to
    end: int  # position after the frame
    headers: int  # read so far, in all frames


def _size_limit(
    view: memoryview, name: str, magic: int, walk: Callable[[memoryview, int, int], _Walked]
) -> int:
    limit = position = headers = 0
    while position < len(view):
        headers += 1
        if headers > HEADERS_MAX:
            return UNKNOWN_SIZE
        found = _read_u32(view, position)
        if found & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + _read_u32(view, position + 4)
            continue
        if found != magic:
            raise Malformed(f"{found:#x} is no {name} frame", position)
        frame = walk(view, position + 4, headers)
        limit, position, headers = limit + frame.limit, frame.end, frame.headers
    return limit


def zstd_size_limit(view: memoryview) -> int:
    """Of all frames of the stream together; UNKNOWN_SIZE when there are too many to read."""
    return _size_limit(view, "zstd", _ZSTD_MAGIC, _walk_zstd_frame)


def _walk_zstd_frame(view: memoryview, position: int, headers: int) -> _Walked:
    descriptor = _read_byte(view, position)
    single = descriptor & _ZSTD_SINGLE_SEGMENT
    size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    position += 1 + (0 if single else 1) + _ZSTD_DICTIONARY_BYTES[descriptor & 3] + size_bytes
    limit = 0
    last = False
    while not last and headers <= HEADERS_MAX:
        headers += 1
        header = _read_byte(view, position + 2) << 16 | view[position + 1] << 8 | view[position]
        last, kind, size = header & 1 == 1, header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == _ZSTD_REPEATED else size)
        limit += _ZSTD_BLOCK_BYTES_MAX if kind == _ZSTD_COMPRESSED else size
    return _Walked(limit, position + (4 if descriptor & _ZSTD_HAS_CHECKSUM else 0), headers)


def lz4_size_limit(view: memoryview) -> int:
    """Of all frames of the stream together; UNKNOWN_SIZE when there are too many to read."""
    return _size_limit(view, "lz4", _LZ4_MAGIC, _walk_lz4_frame)


def _walk_lz4_frame(view: memoryview, position: int, headers: int) -> _Walked:
    flags = _read_byte(view, position)
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX.get(_read_byte(view, position + 1) >> 4 & 7)
    if block_bytes_max is None:
        raise Malformed("an lz4 frame names no block size", position)
    position += 2 + (8 if flags & _LZ4_HAS_CONTENT_SIZE else 0)
    position += (4 if flags & _LZ4_HAS_DICTIONARY else 0) + 1  # and the header's own checksum
    trailer_bytes = 4 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
    limit = 0
    while (header := _read_u32(view, position)) and headers <= HEADERS_MAX:
        headers += 1
        size = header & ~_LZ4_STORED
        opened = size if header & _LZ4_STORED else size * _LZ4_EXPANSION_MAX
        limit += min(opened, block_bytes_max)
        position += 4 + size + trailer_bytes
    return _Walked(limit, position + 4 + (4 if flags & _LZ4_HAS_CHECKSUM else 0), headers)


def _read_byte(view: memoryview, position: int) -> int:
    if position >= len(view):
        raise Malformed("a compressed frame is cut short", position)
    return view[position]


def _read_u32(view: memoryview, position: int) -> int:
    if len(view) - position < 4:
        raise Malformed("a compressed frame is cut short", position)
    value: int = _U32.unpack_from(view, position)[0]
    return value
