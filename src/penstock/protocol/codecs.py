"""The four compressions of a batch's records, each opened into one buffer of bounded size.

`opened_size_limit` tells from headers alone how large the output can be; `decompress` allocates
that much and never more than `max_bytes`, whatever the input declares. Everything wrong with the
input raises Malformed. Snappy comes in two forms: Java's xerial stream of blocks and one raw block.

Time is bounded like memory: what Python does per block or frame is limited in number, and the
codecs themselves run in linear time without the interpreter lock.
"""

import mmap
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from penstock.errors import Malformed
from penstock.protocol.frame_sizes import lz4_size_limit, zstd_size_limit
from penstock.protocol.primitives import Buffer

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

_XERIAL_PIECES_FREE: Final = 1024  # blocks and headers that any stream may have
_XERIAL_PIECE_BYTES_MIN: Final = 1024  # the average beyond those; 32 kB pack to 1.5 kB at best

_GZIP_EXPANSION_MAX: Final = 1032  # one byte of deflate gives at most this much

_MAPPED_BYTES_MIN: Final = 1 << 20


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, raw: Buffer, level: int | None = None) -> Buffer:
    """The bytes as the Java client would write them; no level means the codec's own."""
    match Codec(codec):
        case Codec.NONE:
            return raw
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(raw, level))
        case Codec.SNAPPY:
            return _compress_xerial(raw)
        case Codec.LZ4:
            # Java's reader refuses blocks that lean on the ones before.
            packer = cramjam.lz4.Compressor(level, content_checksum=False, block_linked=False)
            packer.compress(bytes(raw))  # it takes no other buffer
            return memoryview(packer.finish())
        case Codec.ZSTD:
            return memoryview(cramjam.zstd.compress(raw, level))


def decompress(codec: int, packed: Buffer, *, max_bytes: int) -> Buffer:
    """The bytes as they were, or Malformed when damaged or larger than `max_bytes`."""
    size = opened_size_limit(codec, packed, max_bytes=max_bytes)
    if codec == Codec.NONE:
        return packed
    view = memoryview(packed)
    if codec == Codec.GZIP and (said := _size_in_gzip_trailer(view)) < size:
        with suppress(cramjam.DecompressionError):  # it is a hint: there may be several members
            return _open_into(codec, view, _allocate(said))
    try:
        return _open_into(codec, view, _allocate(size))
    except cramjam.DecompressionError as error:
        raise Malformed(
            f"{Codec(codec).name.lower()} does not open within {max_bytes} bytes: {error}", 0
        ) from error


def _open_into(codec: int, view: memoryview, opened: memoryview) -> memoryview:
    if codec != Codec.SNAPPY:
        return opened[: _OPENERS[codec](view, opened)]
    filled = 0
    for block in _snappy_blocks(view):
        filled += cramjam.snappy.decompress_raw_into(block, opened[filled:])
    return opened[:filled]


def opened_size_limit(codec: int, packed: Buffer, *, max_bytes: int) -> int:
    """The most bytes that `decompress` allocates for its output: at most `max_bytes`.

    Reads headers only. Malformed where they show that the output is larger or cannot be opened.
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
        raise Malformed(f"{size} bytes of records are over the {max_bytes} allowed", 0)
    return size


def _allocate(size: int) -> memoryview:
    """A buffer of zeros. Large ones are mapped: pages never written cost nothing, and all of them
    go back to the system as soon as the buffer is released.
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
        raise Malformed(f"a snappy block does not say its size: {error}", 0) from error


def _snappy_blocks(view: memoryview) -> list[memoryview]:
    return _xerial_blocks(view) if bytes(view[:8]) == _XERIAL_MAGIC else [view]


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks, in order. A stream glued to another one starts with the header again."""
    blocks: list[memoryview] = []
    pieces_left = _XERIAL_PIECES_FREE + len(view) // _XERIAL_PIECE_BYTES_MIN
    position = 0
    while position < len(view):
        pieces_left -= 1
        if pieces_left < 0:
            raise Malformed("a snappy stream is cut into too many blocks", position)
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            position += _XERIAL_HEADER.size
            if position > len(view):
                raise Malformed("a snappy stream's header is cut short", position)
            continue
        if len(view) - position < _BLOCK_LENGTH.size:
            raise Malformed("a snappy block's length is cut short", position)
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length == 0 or length > len(view) - position:
            raise Malformed(f"a snappy block says {length} bytes", position)
        blocks.append(view[position : position + length])
        position += length
    return blocks


_OPENERS: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
