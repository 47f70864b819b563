"""The files of one cleaned segment while it is written, named `.cleaned`.

Such files are not part of the log: those of a killed worker are removed by the next one, or at the
next start. Index entries follow the log's rule: one after each interval of bytes.
"""

import os
from collections.abc import Sequence
from typing import BinaryIO, Final

from penstock.log.files import remove_files, sync_folder
from penstock.log.indexes import OFFSET_ENTRY, TIME_ENTRY
from penstock.log.transaction_index import ABORTED_ENTRY, AbortedEntry
from penstock.model import NO_TIMESTAMP, Millis, Offset
from penstock.upkeep.jobs import CleanedSegment

SUFFIX: Final = ".cleaned"
_TRANSACTION_INDEX_VERSION: Final = 0


def segment_path(folder: str, base_offset: Offset, kind: str) -> str:
    return f"{folder}/{base_offset:020d}.{kind}"


def remove_leftovers(folder: str) -> None:
    """Remove the files of a worker that was killed or failed."""
    with os.scandir(folder) as entries:
        remove_files([entry.path for entry in entries if entry.name.endswith(SUFFIX)])


class CleanedFiles:
    """A cleaned segment: batches are written immediately, indexes at the end."""

    def __init__(self, folder: str, base_offset: Offset, *, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.size_bytes: int = 0
        self.max_timestamp: Millis = NO_TIMESTAMP
        self.is_changed = False  # a batch was changed or removed
        self._folder = folder
        self._index_interval_bytes = index_interval_bytes
        self._unindexed_bytes = 0
        self._max_timestamp_offset = base_offset
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._timestamp_indexed = NO_TIMESTAMP
        self._transaction_index = bytearray()
        # "x": if another worker still writes here, one of the two fails.
        self._log: BinaryIO = open(self._path("log"), "xb", buffering=0)  # noqa: SIM115 - closed by finish or discard

    def note_batch(self, size_bytes: int, last_offset: Offset, max_timestamp: Millis) -> None:
        """Index the next batch of the file."""
        if self._unindexed_bytes > self._index_interval_bytes:
            relative = last_offset - self.base_offset
            self._offset_index += OFFSET_ENTRY.pack(relative, self.size_bytes)
            self._note_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes
        self.size_bytes += size_bytes
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset

    def note_aborted(self, aborted: AbortedEntry) -> None:
        self._transaction_index += ABORTED_ENTRY.pack(_TRANSACTION_INDEX_VERSION, *aborted)

    def write(self, chunks: Sequence[memoryview]) -> None:
        """Write the bytes of the batches that were noted, in order."""
        for chunk in chunks:
            _write_all(self._log, chunk)

    def finish(self, replaces: tuple[Offset, ...], *, modified_ns: int) -> CleanedSegment:
        """Write and sync all files, with the modification time of the newest segment replaced."""
        self._note_time()
        os.fsync(self._log.fileno())
        self._log.close()
        self._write_index("index", self._offset_index)
        self._write_index("timeindex", self._time_index)
        if self._transaction_index:
            self._write_index("txnindex", self._transaction_index)
        os.utime(self._path("log"), ns=(modified_ns, modified_ns))
        sync_folder(self._folder)
        return CleanedSegment(self.base_offset, replaces, self.size_bytes, self.max_timestamp)

    def discard(self) -> None:
        """Remove the files."""
        self._log.close()
        remove_files([self._path(kind) for kind in ("log", "index", "timeindex", "txnindex")])

    def _note_time(self) -> None:
        if self.max_timestamp > self._timestamp_indexed:
            relative = self._max_timestamp_offset - self.base_offset
            self._time_index += TIME_ENTRY.pack(self.max_timestamp, relative)
            self._timestamp_indexed = self.max_timestamp

    def _write_index(self, kind: str, entries: bytearray) -> None:
        with open(self._path(kind), "xb", buffering=0) as file:
            _write_all(file, memoryview(entries))
            os.fsync(file.fileno())

    def _path(self, kind: str) -> str:
        return segment_path(self._folder, self.base_offset, kind) + SUFFIX


def _write_all(file: BinaryIO, chunk: memoryview) -> None:
    while chunk:
        chunk = chunk[file.write(chunk) :]
