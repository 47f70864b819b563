"""Where a search stopped, as text for a URL: positions, ends and counts. Pure.

A cursor continues the search that it came from: with another filter its counts would not be true,
so it names the filter by a digest.
"""

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.console.search.merged_scan import Direction, ScanRange
from penstock.model import Offset

CHARACTERS_MAX: Final = 100_000
_DIGEST_CHARACTERS: Final = 12
_OFFSET_MAX: Final = (1 << 63) - 1


class CursorError(Exception):
    """A text that is not the cursor of this search."""


class SearchCursor(NamedTuple):
    """What a search has done, and what is left."""

    direction: Direction
    ranges: Sequence[ScanRange]
    scanned: int
    matched: int
    total: int


class _CursorDocument(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    direction: Direction
    filter_digest: str
    scanned: int
    matched: int
    total: int
    ranges: list[tuple[int, int, int]]


def write_cursor(cursor: SearchCursor, filter_text: str) -> str:
    """The cursor as text."""
    document = _CursorDocument(
        cursor.direction,
        _digest(filter_text),
        cursor.scanned,
        cursor.matched,
        cursor.total,
        [(row.partition, row.position, row.stop) for row in cursor.ranges if row.left],
    )
    return urlsafe_b64encode(msgspec.json.encode(document)).rstrip(b"=").decode()


def read_cursor(text: str, filter_text: str) -> SearchCursor:
    """The cursor of a text; CursorError if it is none, or of another filter."""
    if len(text) > CHARACTERS_MAX:
        raise CursorError("the cursor is too long")
    try:
        content = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        document = msgspec.json.decode(content, type=_CursorDocument)
    except (ValueError, binascii.Error):
        raise CursorError("the cursor is not one that a search returned") from None
    if document.filter_digest != _digest(filter_text):
        raise CursorError("the cursor is of a search with another filter: start a new search")
    ranges = [ScanRange(row[0], Offset(row[1]), Offset(row[2])) for row in document.ranges]
    sign = 1 if document.direction is Direction.FORWARD else -1
    for row in ranges:
        is_range = all(0 <= each <= _OFFSET_MAX for each in row[1:])
        if not is_range or (row.stop - row.position) * sign < 0 or row.partition < 0:
            raise CursorError("the cursor is not one that a search returned")
    counts = document.scanned, document.matched, document.total
    if len({row.partition for row in ranges}) < len(ranges) or min(counts) < 0:
        raise CursorError("the cursor is not one that a search returned")
    return SearchCursor(document.direction, ranges, *counts)


def _digest(filter_text: str) -> str:
    return hashlib.sha256(filter_text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
