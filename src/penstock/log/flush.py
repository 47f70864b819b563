"""Making a partition's files last through a power cut, away from the event loop.

A process that dies loses nothing: the page cache keeps what was written. This is for the machine.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.log.producer_snapshots import snapshot_path
from penstock.log.segment import Segment
from penstock.model import Offset


class NotSynced(OSError):
    """A sync failed, so what was written may be lost, and no later sync would say so.

    The system reports a page it could not write once, and then takes it for written.
    """

    def refusal(self) -> OSError:
        """For whoever would write more."""
        told = f"{self.strerror}; nothing more is written here until the broker starts again"
        return OSError(self.errno, told, self.filename)


class FlushWork(NamedTuple):
    """Files to sync. Holds names, not descriptors, so that it may run in any thread at any time."""

    end_offset: Offset  # everything before it is on disk once the work is done
    folder: str
    paths: tuple[str, ...]

    def run(self) -> None:
        """NotSynced when the disk failed; another OSError when a file could not be opened."""
        for path in (*self.paths, self.folder):
            _sync(path)


def _sync(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # never made, or deleted meanwhile: nothing to keep
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise NotSynced(error.errno, f"could not be synced: {error.strerror}", path) from error
    finally:
        os.close(descriptor)


def work_for(
    segments: Sequence[Segment], folder: str, epochs_path: str, end_offset: Offset
) -> FlushWork:
    """All of these segments, the last of which is the active one."""
    paths = [segment.log.path for segment in segments]
    # A start trusts the indexes of closed segments; those of the active one are made anew.
    for segment, following in pairwise(segments):
        paths += [*segment.paths()[:-1], snapshot_path(folder, following.base_offset)]
    return FlushWork(end_offset, folder, (*paths, epochs_path))
