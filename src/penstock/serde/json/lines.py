"""Many values as lines of JSON, and lines as payloads.

What msgspec writes of a plain value is what `json_text` has for it; values that are not plain are
not written here (None).
"""

from typing import Any

import numpy as np

from penstock.columns.compiled import Int64s
from penstock.columns.json_values import are_plain
from penstock.serde.json.event import ENCODER, UNENCODABLE


def lines_of(values: list[Any]) -> bytes | None:
    """The texts of values, each with a line's end behind it, which none of them contains."""
    try:
        return ENCODER.encode_lines(values) if are_plain(values) else None
    except UNENCODABLE:
        return None


def framed(lines: bytes, prefix: bytes) -> tuple[bytes, Int64s]:
    """Lines as payloads behind a prefix, end to end, and how large each of them is."""
    ends = np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n"))
    sizes = np.diff(ends, prepend=-1) - 1 + len(prefix)
    return prefix + lines[:-1].replace(b"\n", prefix), sizes
