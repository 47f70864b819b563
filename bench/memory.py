"""Memory that the machine really has, before anything is measured in it.

A virtual machine may give free memory back to its host. The next page then costs a fault in the
host, about three CPU seconds per gigabyte, which the guest sees as time of whoever wrote: several
times what either server costs. Pages of the page cache stay, so the cache is filled with pages that
nobody needs, and a load takes its memory from there; what must stay free is written to once.
"""

import os
import tempfile
from mmap import PAGESIZE, mmap
from pathlib import Path
from types import TracebackType
from typing import Self

KEPT_FREE_BYTES = 1 << 30  # the kernel keeps this much or more free by itself
LEFT_ALONE_BYTES = 1 << 28  # below, the kernel would begin to take back what was filled
CHUNK_BYTES = 1 << 22


class SettledMemory:
    """Fills the page cache whenever asked, and lets go of it at the end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-memory-")
        self._fillings = 0

    def __enter__(self) -> Self:
        self.settle()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def settle(self) -> None:
        """Read holes of a file: each becomes a clean page, which is taken back at no cost."""
        os.sync()  # what earlier loads wrote is not written out in the time of the next
        size = free_bytes() - KEPT_FREE_BYTES
        if size <= 0:
            return
        path = Path(self._folder.name) / str(self._fillings)
        self._fillings += 1
        with path.open("wb") as file:
            file.truncate(size)
        with path.open("rb", buffering=0) as file:
            while file.read(CHUNK_BYTES):
                continue
        _touch(free_bytes() - LEFT_ALONE_BYTES)


def _touch(size: int) -> None:
    """What is still free is the machine's own again: a load takes that first."""
    if size <= 0:
        return
    with mmap(-1, size) as pages:
        for at in range(0, size, PAGESIZE):
            pages[at] = 1


def free_bytes() -> int:
    """Memory that nothing uses, not even the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise LookupError("/proc/meminfo names no MemFree")
