"""What a Python worker of Spark does once, so that its later work is cheap.

Spark collects garbage after every task of a worker that it uses again. With compiled kernels loaded
each collection looks at two hundred thousand objects that never go: a tenth of a second, which is
longer than many a task.

Rows come and batches go in pieces of megabytes. The C library hands such pieces back to the kernel
when they are freed and asks for them again for the next: then every page is new, which costs more
than to fill it. Imports no pyspark.
"""

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # as malloc.h has them
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 << 20  # the most that glibc takes for a threshold of mmap


@cache
def keep_memory() -> None:
    """To be called when a task begins: some memory that is freed stays with the worker."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc; elsewhere it is as it is
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _KEPT_BYTES)


@cache
def freeze_loaded(work: str) -> None:
    """To be called at the end of a task: once for each kind of work, what it has loaded stays."""
    gc.collect()
    gc.freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """For work that makes very many small things, none of them in circles: a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
