"""The four compression codecs of record batches, each decompressed into one buffer of limited size.

`decompressed_size_limit` computes from headers alone how large the output can be; `decompress`
allocates that much and never more than `max_bytes`, whatever the input declares. Invalid input
raises Malformed. Snappy has two forms: Java's xerial stream of blocks, and one raw block.

Time is limited like memory: the number of blocks and frames that Python iterates over is limited,
and the codecs run in linear time without the interpreter lock.

The size limit of a zstd or lz4 stream comes from its frame and block headers: no block is
decompressed. The limit is never below the size of a valid stream, and close to it for one that an
encoder wrote in full blocks. Only the first HEADERS_MAX headers are read: a stream with more, which
no encoder writes for a batch, is UNKNOWN_SIZE.
"""

import mmap
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

import cramjam

from penstock.errors import Malformed
from penstock.protocol.varint import Buffer

HEADERS_MAX: Final = 4096  # of frames and blocks; 512 MB in full blocks of zstd
UNKNOWN_SIZE: Final = 2**63 - 1

_U32: Final = Struct("<I")

# Both formats share sixteen magics for frames without content: magic, length, that many bytes.
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE_MASK: Final = 0xFFFFFFF0

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_HAS_CHECKSUM: Final = 0x04
_ZSTD_SINGLE_SEGMENT: Final = 0x20  # no window byte; the content size is always present
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_ZSTD_REPEATED: Final = 1  # one byte, `size` times
_ZSTD_COMPRESSED: Final = 2

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HAS_DICTIONARY: Final = 0x01
_LZ4_HAS_CHECKSUM: Final = 0x04
_LZ4_HAS_CONTENT_SIZE: Final = 0x08
_LZ4_HAS_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_FAST: Final = 0  # what clients use without a level; cramjam's default is 7 times as slow
_LZ4_STORED: Final = 1 << 31  # a block that is not compressed
_LZ4_BLOCK_BYTES_MAX: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_EXPANSION_MAX: Final = 255  # one byte of input adds at most this much


class _FrameSize(NamedTuple):
    limit: int  # of the decompressed frame
    end: int  # position after the frame
    headers: int  # read so far, in all frames


def _size_limit(
    view: memoryview, name: str, magic: int, measure: Callable[[memoryview, int, int], _FrameSize]
) -> int:
    limit = position = headers = 0
    while position < len(view):
        headers += 1
        if headers > HEADERS_MAX:
            return UNKNOWN_SIZE
        frame_magic = _read_u32(view, position)
        if frame_magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
            position += 8 + _read_u32(view, position + 4)
            continue
        if frame_magic != magic:
            raise Malformed(f"{frame_magic:#x} does not start a {name} frame", position)
        frame = measure(view, position + 4, headers)
        limit, position, headers = limit + frame.limit, frame.end, frame.headers
    return limit


def zstd_size_limit(view: memoryview) -> int:
    """Of all frames of the stream together; UNKNOWN_SIZE when there are too many to read."""
    return _size_limit(view, "zstd", _ZSTD_MAGIC, _measure_zstd_frame)


def _measure_zstd_frame(view: memoryview, position: int, headers: int) -> _FrameSize:
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
    return _FrameSize(limit, position + (4 if descriptor & _ZSTD_HAS_CHECKSUM else 0), headers)


def lz4_size_limit(view: memoryview) -> int:
    """Of all frames of the stream together; UNKNOWN_SIZE when there are too many to read."""
    return _size_limit(view, "lz4", _LZ4_MAGIC, _measure_lz4_frame)


def _measure_lz4_frame(view: memoryview, position: int, headers: int) -> _FrameSize:
    flags = _read_byte(view, position)
    block_bytes_max = _LZ4_BLOCK_BYTES_MAX.get(_read_byte(view, position + 1) >> 4 & 7)
    if block_bytes_max is None:
        raise Malformed("an lz4 frame has an invalid block size", position)
    position += 2 + (8 if flags & _LZ4_HAS_CONTENT_SIZE else 0)
    position += (4 if flags & _LZ4_HAS_DICTIONARY else 0) + 1  # and the checksum of the header
    trailer_bytes = 4 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 0
    limit = 0
    while (header := _read_u32(view, position)) and headers <= HEADERS_MAX:
        headers += 1
        size = header & ~_LZ4_STORED
        block_limit = size if header & _LZ4_STORED else size * _LZ4_EXPANSION_MAX
        limit += min(block_limit, block_bytes_max)
        position += 4 + size + trailer_bytes
    return _FrameSize(limit, position + 4 + (4 if flags & _LZ4_HAS_CHECKSUM else 0), headers)


def _read_byte(view: memoryview, position: int) -> int:
    if position >= len(view):
        raise Malformed("a compressed frame is truncated", position)
    return view[position]


def _read_u32(view: memoryview, position: int) -> int:
    if len(view) - position < 4:
        raise Malformed("a compressed frame is truncated", position)
    value: int = _U32.unpack_from(view, position)[0]
    return value


_XERIAL_HEADER: Final = Struct(
    ">"
    "8s"  # magic
    "i"  # version     1 as Java writes it
    "i"  # compatible  with readers from this version on
)
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_START: Final = _XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # of input per block, as Java cuts it
_BLOCK_LENGTH: Final = Struct(">I")
assert len(_XERIAL_START) == 16

_XERIAL_PIECES_MIN: Final = 1024  # blocks and headers that any stream may have
_XERIAL_PIECE_BYTES_MIN: Final = (
    1024  # the average of further ones; 32 kB compress to 1.5 kB at best
)

_GZIP_EXPANSION_MAX: Final = 1032  # one byte of deflate expands to at most this many

_MAPPED_BYTES_MIN: Final = 1 << 20


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, raw: Buffer, level: int | None = None) -> Buffer:
    """The bytes that the Java client would write; without a level, with the codec's default."""
    match Codec(codec):
        case Codec.NONE:
            return raw
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(raw, level))
        case Codec.SNAPPY:
            return _compress_xerial(raw)
        case Codec.LZ4:
            # Java's reader refuses blocks that refer to earlier blocks.
            packer = cramjam.lz4.Compressor(
                _LZ4_FAST if level is None else level, content_checksum=False, block_linked=False
            )
            packer.compress(bytes(raw))  # it accepts no other buffer
            return memoryview(packer.finish())
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(raw, level))


def decompress(codec: int, packed: Buffer, *, max_bytes: int) -> Buffer:
    """The original bytes; Malformed if they are corrupt or larger than `max_bytes`."""
    size = decompressed_size_limit(codec, packed, max_bytes=max_bytes)
    if codec == Codec.NONE:
        return packed
    view = memoryview(packed)
    if codec == Codec.GZIP and (stated := _size_in_gzip_trailer(view)) < size:
        with suppress(cramjam.DecompressionError):  # only a hint: there may be several members
            return _decompress_into(codec, view, _allocate(stated))
    try:
        return _decompress_into(codec, view, _allocate(size))
    except cramjam.DecompressionError as error:
        raise Malformed(
            f"{Codec(codec).name.lower()} does not decompress within {max_bytes} bytes: {error}", 0
        ) from error


def _decompress_into(codec: int, view: memoryview, output: memoryview) -> memoryview:
    if codec != Codec.SNAPPY:
        return output[: _DECOMPRESSORS[codec](view, output)]
    filled = 0
    for block in _snappy_blocks(view):
        filled += cramjam.snappy.decompress_raw_into(block, output[filled:])
    return output[:filled]


def decompressed_size_limit(codec: int, packed: Buffer, *, max_bytes: int) -> int:
    """The most bytes that `decompress` allocates for its output: at most `max_bytes`.

    Reads headers only. Malformed if they show that the output is larger or invalid.
    """
    view = memoryview(packed)
    match codec:
        case Codec.NONE:
            size = len(view)
        case Codec.SNAPPY:
            size = _snappy_size(view)
        case Codec.GZIP:
            return min(len(view) * _GZIP_EXPANSION_MAX, max_bytes)
        case Codec.LZ4:
            return min(lz4_size_limit(view), max_bytes)
        case Codec.ZSTD:
            return min(zstd_size_limit(view), max_bytes)
        case _:
            raise Malformed(f"codec {codec} is unknown", 0)
    if size > max_bytes:
        raise Malformed(f"{size} bytes of records exceed the limit of {max_bytes}", 0)
    return size


def _allocate(size: int) -> memoryview:
    """A buffer of zeros. Large ones are mapped: pages that are never written cost nothing, and all
    of them are returned to the system as soon as the buffer is released.
    """
    return memoryview(bytearray(size) if size < _MAPPED_BYTES_MIN else mmap.mmap(-1, size))


def _compress_xerial(raw: Buffer) -> bytes:
    parts = [_XERIAL_START]
    view = memoryview(raw)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _size_in_gzip_trailer(view: memoryview) -> int:
    return int.from_bytes(view[-4:], "little")


def _snappy_size(view: memoryview) -> int:
    try:
        return sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(view)))
    except cramjam.DecompressionError as error:
        raise Malformed(f"a snappy block has no valid size: {error}", 0) from error


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    return _xerial_blocks(view) if bytes(view[:8]) == _XERIAL_MAGIC else [view]


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks, in order. Concatenated streams each start with a header."""
    blocks: list[memoryview] = []
    pieces_left = _XERIAL_PIECES_MIN + len(view) // _XERIAL_PIECE_BYTES_MIN
    position = 0
    while position < len(view):
        pieces_left -= 1
        if pieces_left < 0:
            raise Malformed("a snappy stream has too many blocks", position)
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            position += _XERIAL_HEADER.size
            if position > len(view):
                raise Malformed("the header of a snappy stream is truncated", position)
            continue
        if len(view) - position < _BLOCK_LENGTH.size:
            raise Malformed("the length of a snappy block is truncated", position)
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length == 0 or length > len(view) - position:
            raise Malformed(f"a snappy block of {length} bytes runs past the stream", position)
        blocks.append(view[position : position + length])
        position += length
    return blocks


_DECOMPRESSORS: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
