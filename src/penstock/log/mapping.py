"""Read-only views of a file's pages, straight from the page cache.

Never holds a descriptor: Python's own `mmap` duplicates the one it is given, so that a slow reader
would cost a descriptor for as long as it reads. A view lives as long as anything refers to it; then
its pages are unmapped. The file may be renamed, unlinked or closed meanwhile, but must not be cut
below the end of a live view: touching a page that is gone kills the whole broker.
"""

import ctypes
import os
from mmap import PAGESIZE, PROT_READ
from pickle import PickleBuffer
from typing import Any, Final, Protocol

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
