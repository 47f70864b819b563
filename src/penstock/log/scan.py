"""Walking a log file batch by batch, a window at a time.

Reads headers only, unless whole batches are asked for. Stops before a batch that is not all there;
bytes that cannot be a header raise Malformed. Never holds more than a window in view.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

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
