"""JSON text by msgspec, many times as fast as `json`, of values that `json` can write as well.

msgspec also writes what `json` refuses: dates and decimals as strings, sets as lists, NaN as null.
So what it wrote is read again, and counts only if it says what was given. A value of which it does
not is not written here (None): that is for `json` to do or to refuse.
"""

from typing import Any, Final

import msgspec
import numpy as np

from penstock.columns.compiled import Bytes, Int64s

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
        lines = ENCODER.encode_lines(values)
        return lines if DECODER.decode_lines(lines) == values else None
    except UNSAYABLE:
        return None


def framed(lines: bytes, prefix: bytes) -> tuple[Bytes, Int64s]:
    """Lines as payloads behind a prefix, end to end, and their offsets."""
    ends = np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    rows = np.arange(len(ends))
    offsets[1:] = ends - rows + (rows + 1) * len(prefix)
    payloads = prefix + lines[:-1].replace(b"\n", prefix) if lines else b""
    return np.frombuffer(payloads, dtype=np.uint8), offsets
