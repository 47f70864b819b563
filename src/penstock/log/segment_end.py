"""What a closed segment must contain: the `.end` file beside its log.

Written when a segment is closed by a roll or replaced by its compacted form: the size of its log,
and the base offset of the next segment. A reader that reaches the end of a closed segment compares,
so that lost batches and lost segments are not mistaken for the gaps that compaction leaves. Apache
Kafka has no such file and ignores it.

The file names the log by its inode. It does not apply to a log of other origin: a restored copy, or
one that an older version compacted without writing this file.
"""

import os
from typing import Final, NamedTuple

from penstock.errors import Malformed
from penstock.log.files import replace_file
from penstock.model import Offset

SUFFIX: Final = ".end"
_VERSION: Final = 0
_DIGITS: Final = 20
_NUMBERS: Final = 3
_LENGTH: Final = 2 + _NUMBERS * (_DIGITS + 1)


class SegmentEnd(NamedTuple):
    """The size and successor of a closed segment."""

    size_bytes: int
    next_base_offset: Offset
    inode: int


def write_end(path: str, log_path: str, next_base_offset: Offset) -> SegmentEnd:
    """One line for the version, one for the numbers, always of the same length."""
    status = os.stat(log_path)
    end = SegmentEnd(status.st_size, next_base_offset, status.st_ino)
    numbers = " ".join(f"{number:0{_DIGITS}d}" for number in end)
    replace_file(path, f"{_VERSION}\n{numbers}\n".encode())
    return end


def read_end(path: str, log_path: str) -> SegmentEnd | None:
    """None when the file does not exist, is damaged, or is of another log file."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read(_LENGTH + 1) or b""
    except FileNotFoundError:
        return None
    version, _, numbers = content.partition(b"\n")
    if len(content) != _LENGTH or version != b"%d" % _VERSION or not numbers.endswith(b"\n"):
        return None
    try:
        size_bytes, next_base_offset, inode = map(int, numbers.split())
    except ValueError:
        return None
    if os.stat(log_path).st_ino != inode:
        return None
    return SegmentEnd(size_bytes, Offset(next_base_offset), inode)


def check_end(path: str, end: SegmentEnd, size_bytes: int, next_base_offset: Offset) -> None:
    """Malformed when a closed segment is shorter than it was, or the next one is missing."""
    if size_bytes < end.size_bytes:
        reason = f"{path} was closed with {end.size_bytes} bytes and has {size_bytes}"
        raise Malformed(reason, size_bytes)
    if next_base_offset > end.next_base_offset:
        missing = f"{end.next_base_offset:0{_DIGITS}d}.log"
        raise Malformed(f"{missing}, which follows {path}, is missing", size_bytes)
