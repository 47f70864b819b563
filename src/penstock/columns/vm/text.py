"""Whether bytes are text, for kernels: no byte of a payload is trusted to be."""

from typing import Final

from penstock.columns.compiled import ConstBytes, inlined, outlined

UUID_CHARACTERS: Final = 36


@inlined
def is_text(source: ConstBytes, start: int, end: int) -> bool:
    """Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF."""
    index = start
    while index < end and source[index] < 0x80:
        index += 1
    while index < end:
        lead = source[index]
        index += 1
        if lead < 0x80:
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
        if index + more > end:
            return False
        second = source[index]
        low = 0xA0 if lead == 0xE0 else (0x90 if lead == 0xF0 else 0x80)
        high = 0x9F if lead == 0xED else (0x8F if lead == 0xF4 else 0xBF)
        if second < low or second > high:
            return False
        for later in range(index + 1, index + more):
            if source[later] & 0xC0 != 0x80:
                return False
        index += more
    return True


@outlined
def is_uuid(source: ConstBytes, start: int, size: int) -> bool:
    """Whether text is a UUID as it is usually written: 8-4-4-4-12 hexadecimal digits."""
    if size != UUID_CHARACTERS:
        return False
    for index in range(size):
        byte = source[start + index]
        if index == 8 or index == 13 or index == 18 or index == 23:
            if byte != 0x2D:
                return False
        elif not (0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66):
            return False
    return True
