"""Keys and values of a stored batch, read in one loop: for logs of our own that are replayed whole.

Offsets, timestamps and headers are stepped over. The batch is checked as a whole first; a record
that lies about its lengths is Malformed, as everywhere.
"""

from typing import TypeAlias

from penstock.errors import Malformed
from penstock.protocol import batch as v2
from penstock.protocol.codecs import Codec, decompress
from penstock.protocol.primitives import Buffer
from penstock.protocol.records import OPENED_BYTES_MAX

Pair: TypeAlias = tuple[bytes | None, bytes | None]


def read_pairs(
    buffer: Buffer, position: int = 0, *, max_bytes: int = OPENED_BYTES_MAX
) -> list[Pair]:
    """Key and value of every record of the batch at `position`, opened to at most `max_bytes`."""
    header = v2.check_stored_batch(buffer, position)
    packed = memoryview(buffer)[position + v2.HEADER_BYTES : position + header.size_bytes]
    if header.codec is Codec.NONE:
        return _read_pairs(bytes(packed), header.record_count)
    return _read_pairs(
        bytes(decompress(header.codec, packed, max_bytes=max_bytes)), header.record_count
    )


def _read_pairs(opened: bytes, count: int) -> list[Pair]:  # noqa: C901 - one loop without calls
    """Lengths of one byte, which most are, are read without a call."""
    pairs: list[Pair] = []
    position = 0
    try:
        for _ in range(count):
            size = opened[position]
            position += 1
            if size >= 0x80:
                size, position = _longer(opened, position, size)
            end = position + (size >> 1)
            position += 1  # attributes
            while opened[position] >= 0x80:  # timestamp
                position += 1
            position += 1
            while opened[position] >= 0x80:  # offset
                position += 1
            size = opened[position + 1]
            position += 2
            if size >= 0x80:
                size, position = _longer(opened, position, size)
            key = None
            if not size & 1:
                key = opened[position : position + (size >> 1)]
                position += size >> 1
            size = opened[position]
            position += 1
            if size >= 0x80:
                size, position = _longer(opened, position, size)
            value = None
            if not size & 1:
                value = opened[position : position + (size >> 1)]
                position += size >> 1
            if position >= end:  # the number of headers is still to come
                raise Malformed("a record is shorter than its fields", position)
            position = end
            pairs.append((key, value))
    except IndexError:
        raise Malformed("a record runs past the end of its batch", position) from None
    if position != len(opened):
        raise Malformed(f"the records end at {position} of {len(opened)} bytes", position)
    return pairs


def _longer(opened: bytes, position: int, low: int) -> tuple[int, int]:
    """The rest of a varint whose first byte was not its last, still zigzag."""
    value, shift = low & 0x7F, 7
    while True:
        group = opened[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("a length of a record does not end", position)
