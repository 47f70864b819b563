"""Syncing a partition's files, off the event loop, and errors of the disk.

A killed process loses nothing, because written bytes are in the page cache; a power cut loses what
was not synced. A log whose acknowledged records are all synced has a marker file, `synced`: created
when everything is on disk, removed before anything else is acknowledged.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.log.files import create_file
from penstock.log.producer_snapshots import snapshot_path
from penstock.log.segment import Segment
from penstock.model import Offset

SYNCED_MARKER: Final = "synced"
# Errors that do not end by themselves: the disk is bad, gone, or was made read-only
_FAILURES: Final = frozenset(
    (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.EUCLEAN, errno.ESTALE)
)


_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


class DiskError(OSError):
    """A disk failed in the middle of a log: nothing more is written there until a restart."""

    def refusal(self) -> OSError:
        """The error for writes from now on."""
        reason = f"{self.strerror}; nothing more is written here until the broker is restarted"
        return OSError(self.errno, reason, self.filename)


class SyncError(DiskError):
    """A sync failed, so written bytes may be lost, and no later sync would report it.

    The system reports a page that it could not write once, and then considers it written.
    """


def disk_failure(error: OSError) -> DiskError | None:
    """The failure of the disk that an error of a write means; None: it may work again later."""
    if isinstance(error, DiskError):
        return error
    if error.errno not in _FAILURES:
        return None
    return DiskError(error.errno, f"could not be written: {error.strerror}", error.filename)


def is_full(error: OSError) -> bool:
    """Whether a write failed because there is no space, or no more is allowed."""
    return error.errno in _FULL


class MarkerChange(NamedTuple):
    """Makes or removes the marker of a log."""

    is_made: bool
    folder_inode: int  # another folder of that name is of another log, whose marker it would be

    def run(self, folder: str) -> None:
        """Nothing is changed if the folder was moved away meanwhile."""
        marker = f"{folder}/{SYNCED_MARKER}"
        if not self._is_there(folder):
            return
        if self.is_made:
            create_file(marker)
        if not self.is_made or not self._is_there(folder):
            with suppress(FileNotFoundError):
                os.unlink(marker)

    def _is_there(self, folder: str) -> bool:
        try:
            return os.stat(folder).st_ino == self.folder_inode
        except FileNotFoundError:
            return False


class FlushWork(NamedTuple):
    """Files to sync, by name, so that it may run in any thread at any time."""

    end_offset: Offset  # everything before it is on disk when the work is done
    paths: tuple[str, ...]
    folders: tuple[str, ...]  # the partition's; before the first flush also the one that it is in
    marker: MarkerChange | None = None

    def run(self) -> None:
        """SyncError when a sync failed; another OSError when a file could not be opened."""
        for path in self.paths:
            _sync(path)
        if self.marker is not None:
            for folder in self.folders:  # first: the marker covers the names in them too
                _sync(folder)
            self.marker.run(self.folders[0])
        for folder in self.folders:
            _sync(folder)


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
    marker: MarkerChange | None = None,
) -> FlushWork:
    """The work for these segments, the last of which is the active one."""
    paths = [segment.log.path for segment in segments]
    # A start relies on the indexes of closed segments, and rebuilds those of the active one.
    for segment, following in pairwise(segments):
        paths += [*segment.paths()[:-1], snapshot_path(folders[0], following.base_offset)]
    return FlushWork(end_offset, (*paths, epochs_path), folders, marker)
