"""JSON text by msgspec, many times as fast as `json`, of values that `json` can write as well.

msgspec also writes what `json` refuses: dates and decimals as strings, sets as lists, NaN as null.
So it gets plain values only, or what it wrote is read again and counts if it says what was given. A
value of which it does not is not written here (None): that is for `json` to do or to refuse.
"""

from typing import Any, Final

import msgspec
import numpy as np

from penstock.columns.compiled import Int64s
from penstock.columns.plain_values import are_plain

ENCODER: Final = msgspec.json.Encoder()
DECODER: Final = msgspec.json.Decoder()
UNSAYABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def text_of(value: Any) -> bytes | None:
    """A value's text."""
    try:
        text = ENCODER.encode(value)
        return text if DECODER.decode(text) == value else None
    except UNSAYABLE:
        return None


def lines_of(values: list[Any]) -> bytes | None:
    """The texts of values, each with a line's end behind it, which none of them contains."""
    try:
        return ENCODER.encode_lines(values) if are_plain(values) else None
    except UNSAYABLE:
        return None


def framed(lines: bytes, prefix: bytes) -> tuple[bytes, Int64s]:
    """Lines as payloads behind a prefix, end to end, and how large each of them is."""
    ends = np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n"))
    sizes = np.diff(ends, prepend=-1) - 1 + len(prefix)
    return prefix + lines[:-1].replace(b"\n", prefix), sizes
