"""The four compressions of a batch's records, each opened into a buffer of bounded size.

Never holds more output than `max_bytes`, whatever the input declares: a bomb is refused before it
goes off. Everything wrong with the input raises Malformed. Snappy comes in two dresses: Java's
xerial stream of blocks and one raw block.

How large the output may be is known before opening it: snappy says so; zstd and lz4 frames are
walked block by block (headers only) for an upper limit; gzip is opened by a stream with a stop.
"""

import zlib
from collections.abc import Callable
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

_GZIP_WINDOW_BITS: Final = 31  # 15 bits of window; 16 asks for gzip's own header and trailer


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
    """The bytes as they were, or Malformed when rotten or larger than `max_bytes`."""
    if codec == Codec.NONE:
        if len(packed) > max_bytes:
            raise Malformed(f"{len(packed)} bytes of records are over the {max_bytes} allowed", 0)
        return packed
    opener = _OPENERS.get(codec)
    if opener is None:
        raise Malformed(f"codec {codec} is unknown", 0)
    try:
        return opener(packed, max_bytes)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise Malformed(
            f"{Codec(codec).name.lower()} does not open within {max_bytes} bytes: {error}", 0
        ) from error


def _compress_xerial(raw: Buffer) -> bytes:
    parts = [_XERIAL_START]
    view = memoryview(raw)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _open_snappy(packed: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(packed)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _open_into(cramjam.snappy.decompress_raw_into, view, _raw_size(view, max_bytes))
    blocks = _xerial_blocks(view)
    size = sum(_raw_size(block, max_bytes) for block in blocks)
    if size > max_bytes:
        raise Malformed(f"snappy blocks of {size} bytes are over the {max_bytes} allowed", 0)
    opened = memoryview(bytearray(size))
    filled = 0
    for block in blocks:
        filled += cramjam.snappy.decompress_raw_into(block, opened[filled:])
    return opened[:filled]


def _xerial_blocks(view: memoryview) -> list[memoryview]:
    """The raw blocks, in order. A stream glued to another one starts with the header again."""
    blocks = []
    position = 0
    while position < len(view):
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


def _raw_size(block: memoryview, max_bytes: int) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > max_bytes:
        raise Malformed(f"a snappy block of {size} bytes is over the {max_bytes} allowed", 0)
    return size


def _open_gzip(packed: Buffer, max_bytes: int) -> Buffer:
    """One member after another: gzip allows it, though clients write one."""
    parts: list[bytes] = []
    room = max_bytes
    rest: Buffer = packed
    while rest or not parts:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        parts.append(member.decompress(rest, room + 1))
        room -= len(parts[-1])
        if room < 0:
            raise Malformed(f"gzip opens to more than the {max_bytes} bytes allowed", 0)
        if not member.eof:
            raise Malformed("gzip is cut short", len(packed))
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _open_zstd(packed: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(packed)
    return _open_into(cramjam.zstd.decompress_into, view, min(zstd_size_limit(view), max_bytes))


def _open_lz4(packed: Buffer, max_bytes: int) -> Buffer:
    view = memoryview(packed)
    return _open_into(cramjam.lz4.decompress_into, view, min(lz4_size_limit(view), max_bytes))


def _open_into(
    open_into: Callable[[memoryview, bytearray], int], view: memoryview, size: int
) -> memoryview:
    opened = bytearray(size)
    filled = open_into(view, opened)
    return memoryview(opened)[:filled]


_OPENERS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.GZIP: _open_gzip,
    Codec.SNAPPY: _open_snappy,
    Codec.LZ4: _open_lz4,
    Codec.ZSTD: _open_zstd,
}
