"""Fill free memory before a measurement, so that a virtual machine really has it.

A virtual machine may return free memory to its host. The next use of such a page then costs a fault
in the host, about three CPU seconds per gigabyte, which the guest counts as time of the writing
process: several times the cost of either server. So nearly all free memory is filled with unused
pages of the page cache, which a load can reuse without cost. They are mapped, because a guest that
saves memory drops pages that no process maps, and marked cold, so that they are reused first.
"""

import os
import tempfile
from contextlib import ExitStack
from mmap import MAP_POPULATE, MAP_SHARED, PAGESIZE, PROT_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Self

RESERVED_FREE_BYTES = 200 << 20  # a little more than the kernel keeps free
WORTH_FILLING_BYTES = 64 << 20
FILLINGS_MAX = 20  # the first attempts free some of what they fill
MADV_COLD = 20  # of <sys/mman.h>


class SettledMemory:
    """Fills the page cache before each round, and releases it at the end."""

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
        """Before a round: fill what was freed since the last one."""
        os.sync()  # so that writes of earlier loads do not reach the disk during the next one
        before = free_bytes()
        for _ in range(FILLINGS_MAX):
            size = before - RESERVED_FREE_BYTES
            if size < WORTH_FILLING_BYTES:
                return
            self._fillings.enter_context(_pages(size // PAGESIZE * PAGESIZE))
            after = free_bytes()
            if after >= before:
                return  # the limit of a container
            before = after


def _pages(size: int) -> mmap:
    """The holes of a file, read: each is a clean page, reused without being written."""
    with tempfile.TemporaryFile(prefix="penstock-memory-") as file:
        file.truncate(size)
        pages = mmap(file.fileno(), size, MAP_SHARED | MAP_POPULATE, PROT_READ)
    pages.madvise(MADV_COLD)
    return pages


def free_bytes() -> int:
    """Unused memory, without the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    raise LookupError("/proc/meminfo names no MemFree")
