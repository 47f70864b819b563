"""What a closed segment must still hold: the `.end` file beside its log.

Written when a segment is closed by a roll or replaced by its compacted form: the size of its log,
and the base offset of the segment that follows. A reader that reaches the end of a closed segment
compares, so that lost batches and lost segments are told from the gaps that compaction makes. A
segment without such a file was closed by an older version, and nothing is known of its end. Ours:
Apache Kafka has no such file and ignores it.
"""

from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.log.files import replace_file
from penstock.model import Offset

SUFFIX: Final = ".end"
_VERSION: Final = 0
_DIGITS: Final = 20
_LENGTH: Final = 2 + _DIGITS + 1 + _DIGITS + 1


class SegmentEnd(NamedTuple):
    """Of a closed segment."""

    size_bytes: int
    next_base_offset: Offset


def write_end(path: str, end: SegmentEnd) -> None:
    """One line for the version, one for the two numbers, always of the same length."""
    text = f"{_VERSION}\n{end.size_bytes:0{_DIGITS}d} {end.next_base_offset:0{_DIGITS}d}\n"
    replace_file(path, text.encode())


def read_end(path: str) -> SegmentEnd | None:
    """None when there is no such file, or a power cut tore it."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read(_LENGTH + 1) or b""
    except FileNotFoundError:
        return None
    version, _, numbers = content.partition(b"\n")
    if len(content) != _LENGTH or version != b"%d" % _VERSION or not numbers.endswith(b"\n"):
        return None
    try:
        size_bytes, next_base_offset = map(int, numbers.split())
    except ValueError:
        return None
    return SegmentEnd(size_bytes, Offset(next_base_offset))


def check_end(path: str, end: SegmentEnd, size_bytes: int, next_base_offset: Offset) -> None:
    """Malformed when a closed segment, or the one after it, is not what it was."""
    if size_bytes < end.size_bytes:
        reason = f"{path} was closed with {end.size_bytes} bytes and has {size_bytes}"
        raise Malformed(reason, size_bytes)
    if next_base_offset > end.next_base_offset:
        missing = f"{end.next_base_offset:0{_DIGITS}d}.log"
        raise Malformed(f"{missing}, which follows {path}, is missing", size_bytes)
