"""Disks that lose what was not synced. Real files in a folder, with the system calls observed.

Bytes last after fsync of their file, names after fsync of their folder. A power cut takes away any
subset of the unsynced pages and the last unsynced changes of names; a file may keep its new size
with zeros in it. A killed process takes nothing: the page cache outlives it. After a failed fsync
the pages it was for are lost at the next power cut, although the next fsync succeeds.

`Disks.install` puts wrappers around `os` functions; calls outside its folder are passed through.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.log.files import OpenFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import pytest

PAGE_BYTES: Final = 4096
WRAPPED: Final = (
    "open", "close", "pwrite", "write", "sendfile", "ftruncate", "truncate", "fsync",
    "sync", "rename", "unlink", "mkdir",
)  # fmt: skip
_WRITES: Final = os.O_WRONLY | os.O_RDWR


class _File:
    """What a file had when it was last synced, as far as it changed since."""

    def __init__(self, path: str, size_bytes: int) -> None:
        self.path = path  # the latest name that was seen
        self.synced_bytes = size_bytes
        self.pages: dict[int, bytes] = {}  # content before the first unsynced change
        self.lost: dict[int, bytes] = {}  # of a failed fsync: no later one brings them back


class _NameChange:
    """A change of names in a folder, and how to take it back."""

    def __init__(self, undo: Callable[[], None], saved: str | None = None) -> None:
        self.undo = undo
        self.saved = saved  # another name of a file that lost its own


class Disk:
    """The disk of one broker."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = str(root)
        self.free_bytes: int | None = None  # None: enough
        self.fsync_failure_share = 0.0
        self.bad_folder: str | None = None  # writes of its files fail
        self._rng = rng
        self._files: dict[int, _File] = {}  # by inode
        self._folders: dict[str, list[_NameChange]] = {}
        self._saved_count = 0
        self._saved_folder = f"{self.root}.saved"
        self.descriptors: dict[int, int] = {}  # open ones, with their inode
        root.mkdir(parents=True, exist_ok=True)
        Path(self._saved_folder).mkdir(exist_ok=True)

    # Faults.

    def lose_power(self) -> None:
        """Keep what was synced; of the rest, whatever chance leaves."""
        for file in self._files.values():
            self._lose_pages(file)
        self._files.clear()
        for changes in self._folders.values():
            kept = self._rng.randint(0, len(changes))
            for change in reversed(changes[kept:]):
                change.undo()
        self._folders.clear()

    def close_descriptors(self) -> None:
        """The process that had them open was killed."""
        for descriptor in tuple(self.descriptors):
            _REAL.close(descriptor)
        self.descriptors.clear()

    def _lose_pages(self, file: _File) -> None:
        pages = {**file.pages, **file.lost}
        if not pages or not os.path.exists(file.path):
            return
        share = self._rng.choice((0.0, 1.0, self._rng.random()))  # of unsynced pages that survive
        descriptor = _REAL.open(file.path, os.O_RDWR)
        try:
            size_bytes = os.fstat(descriptor).st_size
            lost = [
                page for page in sorted(pages) if page in file.lost or self._rng.random() >= share
            ]
            keeps_size = self._rng.random() < 0.3
            last = max((page for page in pages if page not in lost), default=-1)
            end = max(file.synced_bytes, min(size_bytes, (last + 1) * PAGE_BYTES))
            if keeps_size:
                end = max(end, size_bytes)
            for page in lost:
                old = pages[page].ljust(PAGE_BYTES, b"\0")
                _REAL.pwrite(descriptor, old, page * PAGE_BYTES)
            _REAL.ftruncate(descriptor, end)
        finally:
            _REAL.close(descriptor)

    # What the wrappers report.

    def opened(self, descriptor: int, path: str, is_new: bool) -> None:
        """A file was opened for writing, or a folder for syncing."""
        inode = os.fstat(descriptor).st_ino
        self.descriptors[descriptor] = inode
        if is_new:
            self._changed_names(path, _NameChange(lambda: _unlink_if_present(path)))

    def will_write(self, descriptor: int, position: int, size_bytes: int) -> None:
        """Remember the pages as they were; OSError when the disk is full or bad."""
        if self.bad_folder is not None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if os.path.basename(os.path.dirname(path)) == self.bad_folder:
                raise OSError(errno.EIO, "the disk failed")
        if self.free_bytes is not None:
            end = os.fstat(descriptor).st_size
            more = max(0, position + size_bytes - end)
            if more > self.free_bytes:
                raise OSError(errno.ENOSPC, "no space left on device")
            self.free_bytes -= more
        file = self._file(descriptor)
        first, last = position // PAGE_BYTES, (position + size_bytes - 1) // PAGE_BYTES
        for page in range(first, last + 1):
            if page not in file.pages:
                file.pages[page] = os.pread(descriptor, PAGE_BYTES, page * PAGE_BYTES)

    def will_cut(self, descriptor: int, size_bytes: int) -> None:
        """Remember what a truncation takes away."""
        end = os.fstat(descriptor).st_size
        if size_bytes < end:
            self.will_write(descriptor, size_bytes, end - size_bytes)

    def will_sync(self, descriptor: int) -> None:
        """The file or folder lasts from now on, unless the sync fails."""
        inode = self.descriptors.get(descriptor)
        if self._rng.random() < self.fsync_failure_share:
            if inode in self._files:
                file = self._files[inode]
                file.lost = {**file.pages, **file.lost}
                file.pages = {}
            raise OSError(errno.EIO, "the disk failed")
        if inode in self._files:
            file = self._files[inode]
            file.pages.clear()
            file.synced_bytes = os.fstat(descriptor).st_size
            if not file.lost:
                del self._files[inode]

    def synced_folder(self, path: str) -> None:
        """The names in a folder last from now on."""
        for change in self._folders.pop(path, ()):
            if change.saved is not None:
                status = os.stat(change.saved)
                _REAL.unlink(change.saved)
                if status.st_nlink == 1:  # the inode is used again
                    self.removed(status.st_ino)

    def synced_all(self) -> None:
        """As `os.sync`."""
        self._files = {inode: file for inode, file in self._files.items() if file.lost}
        for path in tuple(self._folders):
            self.synced_folder(path)

    def will_unlink(self, path: str) -> None:
        """Keep the file under another name, so that the change can be taken back."""
        saved = self._save(path)
        self._changed_names(path, _NameChange(lambda: _restore(saved, path), saved))

    def removed(self, inode: int) -> None:
        """A file is gone for good."""
        self._files.pop(inode, None)

    def will_rename(self, source: str, target: str) -> None:
        """As `will_unlink`, for the file that the target's name belongs to now."""
        saved = self._save(target) if os.path.isfile(target) else None

        def undo() -> None:
            if os.path.exists(target):
                _REAL.rename(target, source)
            if saved is not None:
                _restore(saved, target)

        self._changed_names(target, _NameChange(undo, saved))
        inode = os.stat(source).st_ino
        if inode in self._files:
            self._files[inode].path = target

    def made_folder(self, path: str) -> None:
        """A folder is new."""
        self._changed_names(path, _NameChange(lambda: _remove_folder(path)))

    def _changed_names(self, path: str, change: _NameChange) -> None:
        self._folders.setdefault(os.path.dirname(path), []).append(change)

    def _save(self, path: str) -> str:
        self._saved_count += 1
        saved = f"{self._saved_folder}/{self._saved_count}"
        os.link(path, saved)
        inode = os.stat(path).st_ino
        if inode in self._files:
            self._files[inode].path = saved
        return saved

    def _file(self, descriptor: int) -> _File:
        inode = self.descriptors[descriptor]
        file = self._files.get(inode)
        if file is None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            file = self._files[inode] = _File(path, os.fstat(descriptor).st_size)
        return file


class _Real:
    """The functions of `os` as they are without wrappers."""

    def __init__(self) -> None:
        self.open, self.close = os.open, os.close
        self.pwrite, self.write, self.sendfile = os.pwrite, os.write, os.sendfile
        self.ftruncate, self.truncate = os.ftruncate, os.truncate
        self.fsync, self.sync = os.fsync, os.sync
        self.rename, self.unlink, self.mkdir, self.rmdir = os.rename, os.unlink, os.mkdir, os.rmdir


_REAL: Final = _Real()


def _unlink_if_present(path: str) -> None:
    if os.path.exists(path):
        _REAL.unlink(path)


def _restore(saved: str, path: str) -> None:
    """Give a file its name back, unless the folder was lost with all in it."""
    if os.path.isdir(os.path.dirname(path)):
        _REAL.rename(saved, path)


def _remove_folder(path: str) -> None:
    """A new folder whose name was lost: what is in it is lost too."""
    if not os.path.isdir(path):
        return
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            _REAL.unlink(f"{folder}/{name}")
        for name in folders:
            _REAL.rmdir(f"{folder}/{name}")
    _REAL.rmdir(path)


class Disks:
    """The disks of all brokers, each below its own folder."""

    def __init__(self) -> None:
        self._disks: dict[str, Disk] = {}
        self._by_descriptor: dict[int, Disk] = {}

    def add(self, disk: Disk) -> None:
        """Observe calls on this disk's folder."""
        self._disks[disk.root + "/"] = disk

    def _of_path(self, path: object) -> Disk | None:
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.fspath(path)
        for root, disk in self._disks.items():
            if isinstance(text, str) and f"{text}/".startswith(root):
                return disk
        return None

    def _of_descriptor(self, descriptor: int) -> Disk | None:
        disk = self._by_descriptor.get(descriptor)
        return disk if disk is not None and descriptor in disk.descriptors else None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Wrap the functions of `os` until the patch is undone."""
        for name in WRAPPED:
            patch.setattr(os, name, getattr(self, f"_{name}"))
        patch.setattr(os, "replace", self._rename)
        patch.setattr(OpenFiles, "write", staticmethod(self._pwrite))

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk = self._of_path(path) if dir_fd is None else None
        is_new = disk is not None and bool(flags & os.O_CREAT) and not os.path.exists(path)
        real = flags
        if disk is not None:  # old content is read before it is overwritten
            real = flags & ~os.O_TRUNC
            real = (real & ~os.O_WRONLY) | os.O_RDWR if flags & os.O_WRONLY else real
        descriptor = _REAL.open(path, real, mode, dir_fd=dir_fd)
        if disk is not None:
            text = os.fspath(path)
            disk.opened(descriptor, text, is_new)
            self._by_descriptor[descriptor] = disk
            if flags & os.O_TRUNC and flags & _WRITES:
                self._ftruncate(descriptor, 0)
        return descriptor

    def _close(self, descriptor: int) -> None:
        disk = self._of_descriptor(descriptor)
        if disk is not None:
            disk.descriptors.pop(descriptor, None)
            self._by_descriptor.pop(descriptor, None)
        _REAL.close(descriptor)

    def _pwrite(self, descriptor: int, data: Any, position: int) -> int:
        disk = self._of_descriptor(descriptor)
        if disk is not None and len(data):
            disk.will_write(descriptor, position, len(data))
        return _REAL.pwrite(descriptor, data, position)

    def _write(self, descriptor: int, data: Any) -> int:
        disk = self._of_descriptor(descriptor)
        if disk is not None and len(data):
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            disk.will_write(descriptor, position, len(data))
        return _REAL.write(descriptor, data)

    def _sendfile(self, target: int, source: int, position: int, count: int) -> int:
        disk = self._of_descriptor(target)
        if disk is not None and count:
            disk.will_write(target, os.lseek(target, 0, os.SEEK_CUR), count)
        return _REAL.sendfile(target, source, position, count)

    def _ftruncate(self, descriptor: int, size_bytes: int) -> None:
        disk = self._of_descriptor(descriptor)
        if disk is not None:
            disk.will_cut(descriptor, size_bytes)
        _REAL.ftruncate(descriptor, size_bytes)

    def _truncate(self, path: Any, size_bytes: int) -> None:
        if self._of_path(path) is None:
            _REAL.truncate(path, size_bytes)
            return
        descriptor = self._open(path, os.O_RDWR)
        try:
            self._ftruncate(descriptor, size_bytes)
        finally:
            self._close(descriptor)

    def _fsync(self, descriptor: int) -> None:
        disk = self._of_descriptor(descriptor)
        if disk is None:
            _REAL.fsync(descriptor)
            return
        disk.will_sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            disk.synced_folder(path)

    def _sync(self) -> None:
        for disk in self._disks.values():
            disk.synced_all()

    def _rename(self, source: Any, target: Any, **options: Any) -> None:
        disk = None if options else self._of_path(source)
        if disk is not None:
            disk.will_rename(os.fspath(source), os.fspath(target))
        _REAL.rename(source, target, **options)

    def _unlink(self, path: Any, **options: Any) -> None:
        disk = None if options else self._of_path(path)
        if disk is not None and os.path.isfile(path):
            disk.will_unlink(os.fspath(path))
            _REAL.unlink(path)
            return
        inode = os.stat(path, follow_symlinks=False, **options).st_ino
        _REAL.unlink(path, **options)
        for each in self._disks.values():  # a whole folder is removed; the inode is used again
            each.removed(inode)

    def _mkdir(self, path: Any, mode: int = 0o777, **options: Any) -> None:
        _REAL.mkdir(path, mode, **options)
        disk = None if options else self._of_path(path)
        if disk is not None:
            disk.made_folder(os.fspath(path))
