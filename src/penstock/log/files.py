"""The files of all partitions, behind one bounded set of descriptors.

A `LogFile` is a name and a size; its descriptor is opened when needed and closed when others need
the place. Never shows a byte past `size_bytes`: what a failed write left there is cut off before
anyone could have read it. A file is never cut under a live view.

Read-only views of a file's pages, straight from the page cache.

Never holds a descriptor: Python's own `mmap` duplicates the one it is given, so that a slow reader
would cost a descriptor for as long as it reads. A view lives as long as anything refers to it; then
its pages are unmapped. The file may be renamed, unlinked or closed meanwhile, but must not be cut
below the end of a live view: touching a page that is gone kills the whole broker.
"""

import ctypes
import errno
import os
from collections import OrderedDict
from collections.abc import Iterable
from mmap import PAGESIZE, PROT_READ
from pickle import PickleBuffer
from typing import Any, Final, Protocol

from penstock.protocol.varint import Buffer

_MAP_SHARED: Final = 1
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_SMALLEST_BITS: Final = 16  # sizes are rounded up to powers of two: few types, made once

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_munmap = _libc.munmap
_munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Mapped(Protocol):
    """A file that knows how many live views it has."""

    live_views: int


def _pages_type(size_bytes: int) -> Any:
    """An array type whose instances lie over mapped pages and unmap them when they die."""

    # The defaults keep these alive while the interpreter shuts down.
    def unmap(self: Any, _munmap: Any = _munmap, _address: Any = ctypes.addressof) -> None:
        _munmap(_address(self), size_bytes)
        self.file.live_views -= 1

    return type("Pages", (ctypes.c_ubyte * size_bytes,), {"__del__": unmap})


_PAGES: Final[dict[int, Any]] = {}


def map_view(file: Mapped, descriptor: int, *, position: int, end: int) -> memoryview:
    """The bytes from `position` to `end`, which the file must already hold."""
    first_page = position & -PAGESIZE
    bits = max(_SMALLEST_BITS, (end - first_page - 1).bit_length())
    size_bytes = 1 << bits  # may reach past the end of the file: nobody looks there
    address = _mmap(None, size_bytes, PROT_READ, _MAP_SHARED, descriptor, first_page)
    if address == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    pages_type = _PAGES.get(bits)
    if pages_type is None:
        pages_type = _PAGES[bits] = _pages_type(size_bytes)
    pages = pages_type.from_address(address)
    pages.file = file
    file.live_views += 1
    return PickleBuffer(pages).raw()[position - first_page : end - first_page].toreadonly()


COPY_BYTES_MAX: Final = 128 << 10  # up to here a copy is cheaper than mapping and unmapping


class LogFile:
    """One file that grows at its end. Bytes below `size_bytes` do not change."""

    __slots__ = ("__weakref__", "descriptor", "files", "live_views", "path", "size_bytes")

    def __init__(self, path: str, files: "OpenFiles", size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.descriptor = -1  # set and taken back by OpenFiles
        self.live_views = 0
        self.files = files

    def append(self, chunk: Buffer) -> int:
        """Write at the end, whole or not at all; returns where it lies."""
        position, descriptor, files = self.size_bytes, self.descriptor, self.files
        if descriptor >= 0:
            files.touch(self)
        else:
            descriptor = files.descriptor(self)
        try:
            written = files.write(descriptor, chunk, position)
        except OSError:
            self._cut_back(descriptor)
            raise
        if written != len(chunk):
            self._cut_back(descriptor)
            raise OSError(errno.ENOSPC, f"{written} of {len(chunk)} bytes were written", self.path)
        self.size_bytes = position + written
        return position

    def _cut_back(self, descriptor: int) -> None:
        # No view reaches past size_bytes, so this cut is safe. Should it fail as well, the rest is
        # overwritten by the next append or cut by recovery.
        try:
            os.ftruncate(descriptor, self.size_bytes)
        except OSError:
            return

    def read(self, position: int, end: int) -> memoryview:
        """The bytes from `position` to `end`: a copy when small, the page cache itself when not."""
        assert end <= self.size_bytes
        descriptor = self.files.descriptor(self)
        if end - position <= COPY_BYTES_MAX:
            return memoryview(os.pread(descriptor, end - position, position))
        return map_view(self, descriptor, position=position, end=end)

    def cut(self, size_bytes: int) -> None:
        """Keep only the first bytes. Live views keep what they show."""
        if size_bytes >= self.size_bytes:
            return
        if self.live_views:
            self.install_prefix(copy_prefix(self.path, size_bytes), size_bytes)
            return
        os.ftruncate(self.files.descriptor(self), size_bytes)
        self.size_bytes = size_bytes

    def install_prefix(self, prefix: str, size_bytes: int) -> None:
        """Replace the file by a copy of its first bytes. Live views show the old file."""
        os.rename(prefix, self.path)
        self.files.close(self)  # the descriptor is still the old file's
        self.size_bytes = size_bytes

    def rename(self, path: str) -> None:
        os.rename(self.path, path)
        self.path = path

    def sync(self) -> None:
        os.fsync(self.files.descriptor(self))

    def close(self) -> None:
        self.files.close(self)


class OpenFiles:
    """At most `open_max` descriptors; the one unused for longest makes room."""

    write = staticmethod(os.pwrite)  # the one way bytes reach a log file: tests put faults here

    def __init__(self, open_max: int, *, index_bytes_max: int = 16 << 20) -> None:
        assert open_max >= 2, "an append and a read may need one each"
        self.open_max = open_max
        self.indexes = InMemory(index_bytes_max)
        self._open: OrderedDict[LogFile, None] = OrderedDict()
        self.touch = self._open.move_to_end  # of an open file: it is in use

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, file: LogFile) -> int:
        """Valid until the next call: whoever needs it longer opens the path itself."""
        if file.descriptor >= 0:
            self.touch(file)
            return file.descriptor
        if len(self._open) >= self.open_max:
            self.close(next(iter(self._open)))
        # A file without bytes may not have been made yet: thousands of partitions start empty.
        create = os.O_CREAT if file.size_bytes == 0 else 0
        file.descriptor = self._open_path(file.path, os.O_RDWR | os.O_CLOEXEC | create)
        self._open[file] = None
        return file.descriptor

    def _open_path(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                raise
        self.close(next(iter(self._open)))  # connections took the rest: one of ours makes room
        return os.open(path, flags, 0o644)

    def close(self, file: LogFile) -> None:
        if file.descriptor >= 0:
            del self._open[file]
            os.close(file.descriptor)
            file.descriptor = -1

    def close_all(self) -> None:
        for file in list(self._open):
            self.close(file)


def copy_prefix(path: str, size_bytes: int) -> str:
    """Copy the first bytes to a file beside it, synced; its path. May run in any thread."""
    prefix = path + ".cut"
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(prefix, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            position = 0
            while position < size_bytes:
                copied = os.sendfile(target, source, position, size_bytes - position)
                if copied == 0:
                    raise OSError(errno.EIO, f"the file ends before byte {size_bytes}", path)
                position += copied
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    return prefix


def create_file(path: str, content: bytes = b"") -> None:
    """A new file, or an old one emptied, with this content."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if content and os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "the file was not written whole", path)
    finally:
        os.close(descriptor)


def replace_file(path: str, content: bytes, *, sync: bool = False) -> None:
    """The file holds the old content or the new one, whatever happens in between."""
    beside = path + ".tmp"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "the file was not written whole", path)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)


def remove_files(paths: Iterable[str]) -> None:
    """Unlink what is there; what is not there is as it should be."""
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue


def sync_folder(path: str) -> None:
    """Make the names in a folder last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Droppable(Protocol):
    """Something read from disk for speed; it can be read again."""

    def drop(self) -> None: ...


class InMemory:
    """What was loaded from index files, within a budget; the one unused for longest is dropped."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._sizes: OrderedDict[Droppable, int] = OrderedDict()

    def touch(self, kept: Droppable) -> None:
        self._sizes.move_to_end(kept)

    def keep(self, kept: Droppable, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.pop(kept, 0)
        self._sizes[kept] = size_bytes
        while self.size_bytes > self.bytes_max and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.forget(oldest)
            oldest.drop()

    def forget(self, kept: Droppable) -> None:
        self.size_bytes -= self._sizes.pop(kept, 0)
