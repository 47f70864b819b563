"""Removing the end of a log whose history diverges from its leader's, or all of it.

Planned on the event loop, prepared in any thread, finished on the loop. The thread copies what is
kept of a file that readers still see, and works out the producer table, with descriptors of its
own. Until it is finished the log is as it was, except that nothing is appended, and that neither
recovery point nor high watermark are above the new end. A file is never cut under a live view.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.log.files import OpenFiles, copy_prefix, remove_files
from penstock.log.indexes import OFFSET_ENTRY, TimeEntry
from penstock.log.producer_snapshots import snapshot_offsets, snapshot_path
from penstock.log.recovery import replay_producers
from penstock.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.log.producer_state import ProducerTable
    from penstock.model import Offset

_OPEN_FILES: Final = 2  # of a thread: one segment is read at a time


class Prepared(NamedTuple):
    """What the thread has worked out."""

    producers: ProducerTable
    snapshot_offset: Offset  # how far the producers are in snapshots
    largest: TimeEntry  # the largest timestamp that is left in the segment
    prefix: str | None  # a copy of what is kept of its file


class Cut:
    """The segment that becomes the active one, and how much of it is kept."""

    def __init__(self, segments: Sequence[Segment], position: int, end_offset: Offset) -> None:
        """`segments` are those that are kept; the last one is cut at `position`."""
        self.segment: Segment = segments[-1]
        self.position = position
        self.end_offset = end_offset
        self.prepared: Prepared | None = None
        self._sizes = {each.base_offset: each.size_bytes for each in segments}
        self._sizes[self.segment.base_offset] = position
        self._largest_before = self.segment.largest_before(end_offset)
        self._copies = self.segment.log.live_views > 0 and position < self.segment.size_bytes

    def prepare(self) -> None:
        """OSError when the disk fails, Malformed when it is corrupt."""
        files = OpenFiles(_OPEN_FILES)
        try:
            self.prepared = self._prepare(files)
        finally:
            files.close_all()

    def _prepare(self, files: OpenFiles) -> Prepared:
        folder = self.segment.folder
        segments = [_own_segment(folder, base, size, files) for base, size in self._sizes.items()]
        snapshots = [offset for offset in _snapshots(folder) if offset <= self.end_offset]
        producers, known_from = replay_producers(folder, segments, snapshots, self.end_offset)
        largest = segments[-1].largest_from(*self._largest_before)
        prefix = copy_prefix(self.segment.log.path, self.position) if self._copies else None
        return Prepared(producers, known_from, largest, prefix)


class Truncation:
    """One truncation of one log. Without a cut nothing is left, and the log starts again."""

    def __init__(self, log_end_offset: Offset, end_offset: Offset, cut: Cut | None) -> None:
        self.end_offset = end_offset  # where the log ends when it is finished
        self.cut = cut
        self.lower_checkpoints: Callable[[], None] | None = None
        self._log_end_offset = log_end_offset

    def run(self) -> None:
        """Prepare it: may take long, and may run in any thread.

        With checkpoints that are above its new end, the log would count as damaged after a kill.
        """
        if self.lower_checkpoints is not None:
            self.lower_checkpoints()
        if self.cut is not None:
            self.cut.prepare()

    def is_ready(self, segments: Sequence[Segment], log_end_offset: Offset) -> bool:
        """Whether the log is still the one that this was prepared for."""
        cut = self.cut
        if log_end_offset != self._log_end_offset or cut is None:
            return log_end_offset == self._log_end_offset
        assert cut.prepared is not None, "run() comes first"
        has_prefix = cut.prepared.prefix is not None or cut.segment.log.live_views == 0
        return has_prefix and any(segment is cut.segment for segment in segments)


def drop_snapshots(folder: str, *, after: Offset) -> None:
    """Remove snapshots of the producer table that describe what is removed."""
    later = [offset for offset in _snapshots(folder) if offset > after]
    remove_files(snapshot_path(folder, offset) for offset in later)


def _snapshots(folder: str) -> list[Offset]:
    return snapshot_offsets(os.listdir(folder))


def _own_segment(folder: str, base_offset: Offset, size_bytes: int, files: OpenFiles) -> Segment:
    """A segment for a thread to read: shares neither descriptors nor a loaded index."""
    index_bytes = 0
    with suppress(FileNotFoundError):
        index_bytes = os.path.getsize(f"{folder}/{base_offset:020d}.index")
    entries = index_bytes // OFFSET_ENTRY.size
    return Segment(folder, base_offset, files, size_bytes=size_bytes, offset_entries=entries)
