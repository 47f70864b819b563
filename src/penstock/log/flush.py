"""Making a partition's files last through a power cut, away from the event loop.

A process that dies loses nothing: the page cache keeps what was written. This is for the machine.
"""

import os
from typing import NamedTuple

from penstock.log.files import sync_folder
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
