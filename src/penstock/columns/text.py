"""Whether bytes are text, for kernels: what no reader of ours may take on trust."""

from penstock.columns.compiled import Bytes, inlined


@inlined
def is_text(source: Bytes, start: int, end: int) -> bool:
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
