"""Syncing a partition's files, off the event loop.

A killed process loses nothing, because written bytes are in the page cache; a power cut loses what
was not synced.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.log.producer_snapshots import snapshot_path
from penstock.log.segment import Segment
from penstock.model import Offset


class SyncError(OSError):
    """A sync failed, so written bytes may be lost, and no later sync would report it.

    The system reports a page that it could not write once, and then considers it written.
    """

    def refusal(self) -> OSError:
        """The error for writes from now on."""
        reason = f"{self.strerror}; nothing more is written here until the broker is restarted"
        return OSError(self.errno, reason, self.filename)


class FlushWork(NamedTuple):
    """Files to sync, by name, so that it may run in any thread at any time."""

    end_offset: Offset  # everything before it is on disk when the work is done
    paths: tuple[str, ...]
    folders: tuple[str, ...]  # the partition's; before the first flush also the one that it is in

    def run(self) -> None:
        """SyncError when a sync failed; another OSError when a file could not be opened."""
        for path in (*self.paths, *self.folders):
            _sync(path)


def _sync(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # not created yet, or deleted meanwhile
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(error.errno, f"could not be synced: {error.strerror}", path) from error
    finally:
        os.close(descriptor)


def work_for(
    segments: Sequence[Segment],
    folders: tuple[str, ...],
    epochs_path: str,
    end_offset: Offset,
) -> FlushWork:
    """The work for these segments, the last of which is the active one."""
    paths = [segment.log.path for segment in segments]
    # A start relies on the indexes of closed segments, and rebuilds those of the active one.
    for segment, following in pairwise(segments):
        paths += [*segment.paths()[:-1], snapshot_path(folders[0], following.base_offset)]
    return FlushWork(end_offset, (*paths, epochs_path), folders)
