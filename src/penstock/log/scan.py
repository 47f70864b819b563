"""Reading a log file batch by batch, and reporting bytes that cannot be read.

Reads a window at a time, and of batches only their headers unless whole ones are requested. Stops
before a batch that is incomplete; bytes that cannot be a header raise Malformed. Corrupt bytes
affect only those who read them: not the broker, other partitions, or the rest of the log.
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


class ScannedBatch(NamedTuple):
    """A batch, its position in the file, and its position in a view of the file."""

    position: int
    header: BatchHeader
    view: memoryview
    at: int


def scan_headers(
    file: LogFile, position: int = 0, end: int | None = None
) -> Iterator[ScannedBatch]:
    """Every batch from `position`; only its header is certainly in the view."""
    end = file.size_bytes if end is None else end
    while end - position >= HEADER_BYTES:
        view = file.read(position, min(end, position + _HEADERS_WINDOW_BYTES))
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = read_header(view, at)
            if position + at + header.size_bytes > end:
                return
            yield ScannedBatch(position + at, header, view, at)
            at += header.size_bytes
        position += at


def scan_batches(
    file: LogFile, position: int = 0, end: int | None = None
) -> Iterator[ScannedBatch]:
    """Every batch from `position`, completely in the view."""
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
            yield ScannedBatch(position + at, header, view, at)
            at += header.size_bytes
        if at == 0:
            window_bytes = header.size_bytes  # one batch is larger than the window
        position += at


logger: Final = logging.getLogger(__name__)

DAMAGE: Final = (OSError, Malformed, StructError)  # StructError: the file is shorter than it was
Damage: TypeAlias = OSError | Malformed | StructError


class DamagedLogError(OSError):
    """A log lacks batches that were on disk; it is not opened until it was repaired."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(errno.EIO, reason, path)


def unreadable(where: str, damage: Damage) -> Refused:
    """The refusal for a read in the file or folder `where`."""
    _log_unreadable(where, str(damage))
    if isinstance(damage, OSError):
        return Refused(ErrorCode.kafka_storage_error, f"{where} could not be read: {damage}")
    return Refused(ErrorCode.corrupt_message, f"{where} is damaged: {damage}")


@lru_cache(maxsize=1000)  # one line, however often a damaged log is opened
def warn_of_damage(where: str, damage: str) -> None:
    """The file `where` is not as it was written."""
    logger.warning("%s: %s", where, damage)


@lru_cache(maxsize=1000)  # one line, however often readers retry
def _log_unreadable(where: str, damage: str) -> None:
    logger.error(
        "%s cannot be read: %s. Fetches of these offsets fail; other offsets are served. "
        "Stop the broker and restore the folder from a copy, or reset consumers to a later offset",
        where,
        damage,
    )
