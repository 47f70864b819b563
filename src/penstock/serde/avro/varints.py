"""The smallest parts of an Avro payload: numbers, lengths and counts. None of them is trusted."""

from typing import Final

from penstock.serde.avro.limits import ITEMS_MAX, NESTING_MAX

_VARINT_BYTES_MAX: Final = 10
_BITS: Final = 64


class UnreadableError(Exception):
    """Why a payload is invalid, and where; `code` is a name of `AvroFault`."""

    def __init__(self, code: str, detail: str, position: int) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.position = position


class Budget:
    """What one payload may still take."""

    __slots__ = ("items", "levels")

    def __init__(self) -> None:
        self.items: int = ITEMS_MAX
        self.levels: int = NESTING_MAX

    def enter(self, position: int) -> None:
        """One level down; the caller adds it again."""
        self.levels -= 1
        if self.levels < 0:
            raise UnreadableError(
                "NESTING", f"values are nested more than {NESTING_MAX} deep", position
            )


def read_varint(payload: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of up to 64 bits, and the position after it; IndexError at the end."""
    byte = payload[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for index in range(1, _VARINT_BYTES_MAX):
        byte = payload[at + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if raw >> _BITS:
                break
            return (raw >> 1) ^ -(raw & 1), at + index + 1
    raise UnreadableError("VARINT", "a number of more than 64 bits", at)


def read_size(payload: bytes, at: int) -> tuple[int, int]:
    """Where sized bytes start and end."""
    size, start = read_varint(payload, at)
    if size < 0:
        raise UnreadableError("LENGTH", f"a length of {size}", at)
    end = start + size
    if end > len(payload):
        raise UnreadableError("TRUNCATED", f"a length of {size}, beyond the end", at)
    return start, end


def read_count(payload: bytes, at: int, item_bytes_min: int, budget: Budget) -> tuple[int, int]:
    """The items of the next block, and where they start."""
    count, after = read_varint(payload, at)
    if count < 0:  # a block that says how large it is
        count = -count
        _, after = read_varint(payload, after)
    budget.items -= count
    if budget.items < 0:
        raise UnreadableError("ITEMS", f"more than {ITEMS_MAX} items", at)
    if item_bytes_min and count > (len(payload) - after) // item_bytes_min:
        raise UnreadableError("TRUNCATED", f"{count} items, beyond the end", at)
    return count, after


def varint(number: int) -> bytes:
    """A zigzag number of up to 64 bits."""
    return _raw_varint((number << 1) ^ (number >> 63))


def _raw_varint(raw: int) -> bytes:
    """Without a loop: nothing else is called as often while an event is written."""
    if raw < 1 << 7:
        return raw.to_bytes(1, "little")
    if raw < 1 << 14:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    if raw < 1 << 21:
        return bytes((raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, raw >> 14))
    second, third = raw >> 7 & 0x7F | 0x80, raw >> 14 & 0x7F | 0x80
    if raw < 1 << 28:
        return bytes((raw & 0x7F | 0x80, second, third, raw >> 21))
    first_four = bytes((raw & 0x7F | 0x80, second, third, raw >> 21 & 0x7F | 0x80))
    return first_four + _raw_varint(raw >> 28)
