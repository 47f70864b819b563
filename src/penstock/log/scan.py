"""Walking a log file batch by batch, a window at a time.

Reads headers only, unless whole batches are asked for. Stops before a batch that is not all there;
bytes that cannot be a header raise Malformed. Never holds more than a window in view.

What a reader is told where the disk failed, or shows bytes that nobody wrote.

Rot costs the readers of that place, and nobody else: not the broker, not its neighbours, and not
whoever reads before it or after it.
"""

import errno
import logging
from collections.abc import Iterator
from functools import lru_cache
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.files import LogFile
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, read_header

_HEADERS_WINDOW_BYTES: Final = 64 << 10
_BATCHES_WINDOW_BYTES: Final = 4 << 20


class Scanned(NamedTuple):
    """A batch met on the way: its place in the file, and in the view that shows it."""

    position: int
    header: BatchHeader
    view: memoryview
    at: int


def scan_headers(file: LogFile, position: int = 0, end: int | None = None) -> Iterator[Scanned]:
    """Every batch from `position`; only its header is sure to be in the view."""
    end = file.size_bytes if end is None else end
    while end - position >= HEADER_BYTES:
        view = file.read(position, min(end, position + _HEADERS_WINDOW_BYTES))
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = read_header(view, at)
            if position + at + header.size_bytes > end:
                return
            yield Scanned(position + at, header, view, at)
            at += header.size_bytes
        position += at


def scan_batches(file: LogFile, position: int = 0, end: int | None = None) -> Iterator[Scanned]:
    """Every batch from `position`, all of it in the view."""
    end = file.size_bytes if end is None else end
    window_bytes = _BATCHES_WINDOW_BYTES
    while end - position >= HEADER_BYTES:
        view = file.read(position, min(end, position + window_bytes))
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = read_header(view, at)
            if position + at + header.size_bytes > end:
                return
            if at + header.size_bytes > len(view):
                break
            yield Scanned(position + at, header, view, at)
            at += header.size_bytes
        if at == 0:
            window_bytes = header.size_bytes  # one batch is larger than the window
        position += at


logger = logging.getLogger(__name__)

DAMAGE: Final = (OSError, Malformed, StructError)  # struct's: the file is shorter than it was
Damage: TypeAlias = OSError | Malformed | StructError


class DamagedLog(OSError):
    """A log lacks what was on disk; it is not opened until a person has mended it."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EIO, reason, path)


def unreadable(where: str, damage: Damage) -> Refused:
    """The refusal for a read in the file or folder `where`."""
    _tell(where, str(damage))
    if isinstance(damage, OSError):
        return Refused(ErrorCode.kafka_storage_error, f"{where} could not be read: {damage}")
    return Refused(ErrorCode.corrupt_message, f"{where} is damaged: {damage}")


@lru_cache(maxsize=1000)  # a damaged log is opened again and again: one line for all attempts
def warn_of_damage(where: str, damage: str) -> None:
    """Something in the file `where` is not as it was written."""
    logger.warning("%s: %s", where, damage)


@lru_cache(maxsize=1000)  # readers try again and again: one line for all of them
def _tell(where: str, damage: str) -> None:
    logger.error(
        "%s cannot be read: %s. Fetches of these offsets fail and the rest is served. "
        "Stop the broker and restore the folder from a copy, or move consumers past this place",
        where,
        damage,
    )
