"""The files of all partitions, with a bounded number of descriptors, and views of their pages.

A `LogFile` is a name and a size; its descriptor is opened when it is needed, and closed when the
limit is reached. No byte past `size_bytes` is ever read: what a failed write left there is cut off.

A view shows the pages of a file in the page cache, without a descriptor: Python's own `mmap`
duplicates the one it is given, so that each slow reader would occupy one. The pages are unmapped
when nothing refers to the view any more. The file may be renamed, unlinked or closed meanwhile, but
it is never cut under a live view: touching a page that does not exist kills the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections import OrderedDict
from mmap import PAGESIZE, PROT_READ
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

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
    """A file that counts its live views."""

    live_views: int


def _pages_type(size_bytes: int) -> Any:
    """An array type over mapped pages; an instance unmaps them when it is deleted."""

    # The default arguments stay alive while the interpreter shuts down.
    def unmap(self: Any, _munmap: Any = _munmap, _address: Any = ctypes.addressof) -> None:
        _munmap(_address(self), size_bytes)
        self.file.live_views -= 1

    return type("Pages", (ctypes.c_ubyte * size_bytes,), {"__del__": unmap})


_PAGES: Final[dict[int, Any]] = {}


def map_view(file: Mapped, descriptor: int, *, position: int, end: int) -> memoryview:
    """The bytes from `position` to `end`, which must exist in the file."""
    first_page = position & -PAGESIZE
    bits = max(_SMALLEST_BITS, (end - first_page - 1).bit_length())
    size_bytes = 1 << bits  # may extend past the file's end, which is never read
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


COPY_BYTES_MAX: Final = 128 << 10  # smaller reads are cheaper to copy than to map


class LogFile:
    """One file that grows at its end. Bytes below `size_bytes` do not change."""

    __slots__ = ("__weakref__", "descriptor", "files", "live_views", "path", "size_bytes")

    def __init__(self, path: str, files: OpenFiles, size_bytes: int) -> None:
        self.path: str = path
        self.size_bytes: int = size_bytes
        self.descriptor: int = -1  # set by OpenFiles
        self.live_views: int = 0
        self.files: OpenFiles = files

    def append(self, chunk: Buffer) -> int:
        """Write at the end, all or nothing; returns the position."""
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
        # No view extends past size_bytes, so this cut is safe. If it fails as well, the next append
        # overwrites the rest, or recovery cuts it off.
        try:
            os.ftruncate(descriptor, self.size_bytes)
        except OSError:
            return

    def read(self, position: int, end: int) -> memoryview:
        """The bytes from `position` to `end`: a copy if they are few, else mapped pages."""
        assert end <= self.size_bytes
        descriptor = self.files.descriptor(self)
        if end - position <= COPY_BYTES_MAX:
            return memoryview(os.pread(descriptor, end - position, position))
        return map_view(self, descriptor, position=position, end=end)

    def cut(self, size_bytes: int) -> None:
        """Keep only the first bytes. Live views stay valid."""
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
    """At most `open_max` descriptors; the least recently used one is closed first."""

    write: ClassVar[staticmethod[[int, Buffer, int], int]] = staticmethod(
        os.pwrite
    )  # writes all log files: tests inject faults here

    def __init__(self, open_max: int, *, index_bytes_max: int = 16 << 20) -> None:
        assert open_max >= 2, "an append and a read need one each"
        self.open_max = open_max
        self.indexes: IndexCache = IndexCache(index_bytes_max)
        self._open: OrderedDict[LogFile, None] = OrderedDict()
        self.touch: Callable[[LogFile], None] = self._open.move_to_end  # marks an open file as used

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, file: LogFile) -> int:
        """Valid until the next call only."""
        if file.descriptor >= 0:
            self.touch(file)
            return file.descriptor
        if len(self._open) >= self.open_max:
            self.close(next(iter(self._open)))
        # An empty file may not exist yet: thousands of partitions start empty.
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
        self.close(next(iter(self._open)))  # connections have taken the other descriptors
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
    """Create or overwrite a file with this content."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if content and os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "the file was not written completely", path)
    finally:
        os.close(descriptor)


def replace_file(path: str, content: bytes, *, sync: bool = False) -> None:
    """The file has the old content or the new one, also after a crash."""
    beside = path + ".tmp"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, "the file was not written completely", path)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(beside, path)


def remove_files(paths: Iterable[str]) -> None:
    """Unlink the files that exist."""
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents; their names are durable when it returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(str(folder.parent))


def sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class CachedIndex(Protocol):
    """Something loaded from disk that can be loaded again."""

    def drop(self) -> None: ...


class IndexCache:
    """Loaded index files, within a memory limit; the least recently used one is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes: int = 0
        self._sizes: OrderedDict[CachedIndex, int] = OrderedDict()

    def touch(self, index: CachedIndex) -> None:
        self._sizes.move_to_end(index)

    def add(self, index: CachedIndex, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.pop(index, 0)
        self._sizes[index] = size_bytes
        while self.size_bytes > self.bytes_max and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            oldest.drop()

    def remove(self, index: CachedIndex) -> None:
        self.size_bytes -= self._sizes.pop(index, 0)
