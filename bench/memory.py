"""Memory that the machine really has, before anything is measured in it.

A virtual machine may give free memory back to its host. The next page then costs a fault in the
host, about three CPU seconds per gigabyte, which the guest sees as time of whoever wrote: several
times what either server costs. So nearly all free memory is filled with pages of the page cache
that nobody needs: a load takes its own from there, at no cost. They are mapped, because a guest
that saves memory drops pages that no process maps; and marked cold, so that they go first.
"""

import os
import tempfile
from contextlib import ExitStack
from mmap import MAP_POPULATE, MAP_SHARED, PAGESIZE, PROT_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Self

KEPT_FREE_BYTES = 200 << 20  # a little more than the kernel keeps free by itself
WORTH_FILLING_BYTES = 64 << 20
FILLINGS_MAX = 20  # the first ones free some of what they fill
MADV_COLD = 20  # of <sys/mman.h>


class SettledMemory:
    """Fills the page cache whenever asked, and lets go of it at the end."""

    def __init__(self) -> None:
        self._fillings = ExitStack()

    def __enter__(self) -> Self:
        self.settle()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._fillings.close()

    def settle(self) -> None:
        """Before a round: what others gave back since the last is filled again."""
        os.sync()  # what earlier loads wrote is not written out in the time of the next
        before = free_bytes()
        for _ in range(FILLINGS_MAX):
            size = before - KEPT_FREE_BYTES
            if size < WORTH_FILLING_BYTES:
                return
            self._fillings.enter_context(_pages(size // PAGESIZE * PAGESIZE))
            after = free_bytes()
            if after >= before:
                return  # a container may have no more
            before = after


def _pages(size: int) -> mmap:
    """The holes of a file, read: each is a clean page, taken back without being written."""
    with tempfile.TemporaryFile(prefix="penstock-memory-") as file:
        file.truncate(size)
        pages = mmap(file.fileno(), size, MAP_SHARED | MAP_POPULATE, PROT_READ)
    pages.madvise(MADV_COLD)
    return pages


def free_bytes() -> int:
    """Memory that nothing uses, not even the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise LookupError("/proc/meminfo names no MemFree")
