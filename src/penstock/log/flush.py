"""Making a partition's files last through a power cut, away from the event loop.

A process that dies loses nothing: the page cache keeps what was written. This is for the machine.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.log.files import sync_folder
from penstock.log.segment import Segment
from penstock.log.snapshots import snapshot_path
from penstock.model import Offset


class FlushWork(NamedTuple):
    """Files to sync. Holds names, not descriptors, so that it may run in any thread at any time."""

    end_offset: Offset  # everything before it is on disk once the work is done
    folder: str
    paths: tuple[str, ...]

    def run(self) -> None:
        for path in self.paths:
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # never made, or deleted meanwhile: nothing to keep
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self.folder)


def work_for(
    segments: Sequence[Segment], folder: str, epochs_path: str, end_offset: Offset
) -> FlushWork:
    """All of these segments, the last of which is the active one."""
    paths = [segment.log.path for segment in segments]
    # A start trusts the indexes of closed segments; those of the active one are made anew.
    for segment, following in pairwise(segments):
        paths += [*segment.paths()[:-1], snapshot_path(folder, following.base_offset)]
    return FlushWork(end_offset, folder, (*paths, epochs_path))
