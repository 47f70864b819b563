"""Kafka's variable-length numbers, and the types of buffers that all codecs share.

There are three: an unsigned varint (lengths and counts of flexible messages), a zigzag varint
(lengths inside a record) and a zigzag varlong (timestamps inside a record). Readers take a buffer,
a position and an end that they do not pass, and return the value and the next position; invalid
bytes raise Malformed.
"""

from typing import Final, TypeAlias

from penstock.errors import Malformed

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview

_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10


def read_unsigned_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A number of up to 32 bits, seven to a byte, lowest first. Most have one to three bytes."""
    if position < end and (low := buffer[position]) < 0x80:
        return low, position + 1
    if position + 1 < end and (middle := buffer[position + 1]) < 0x80:
        return low & 0x7F | middle << 7, position + 2
    if position + 2 < end and (high := buffer[position + 2]) < 0x80:
        return low & 0x7F | (middle & 0x7F) << 7 | high << 14, position + 3
    return _read_groups(buffer, position, end, _VARINT_BYTES_MAX, 32)


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A signed number of 32 bits, zigzag."""
    if position < end and (low := buffer[position]) < 0x80:
        return (low >> 1) ^ -(low & 1), position + 1
    zigzag, position = _read_groups(buffer, position, end, _VARINT_BYTES_MAX, 32)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """A signed number of 64 bits, zigzag."""
    zigzag, position = _read_groups(buffer, position, end, _VARLONG_BYTES_MAX, 64)
    return (zigzag >> 1) ^ -(zigzag & 1), position


def _read_groups(
    buffer: Buffer, position: int, end: int, bytes_max: int, bits: int
) -> tuple[int, int]:
    value = shift = 0
    for at in range(position, position + bytes_max):
        if at >= end:
            raise Malformed("a variable-length number runs past the end", position)
        group = buffer[at]
        value |= (group & 0x7F) << shift
        if group < 0x80:
            if value >> bits:
                raise Malformed(f"a variable-length number does not fit {bits} bits", position)
            return value, at + 1
        shift += 7
    raise Malformed(f"a variable-length number is longer than {bytes_max} bytes", position)


def unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def varint(value: int) -> bytes:
    """Zigzag, 32 bits."""
    return unsigned_varint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """Zigzag, 64 bits."""
    return unsigned_varint((value << 1) ^ (value >> 63))


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))
