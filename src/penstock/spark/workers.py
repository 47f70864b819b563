"""What a Python worker of Spark does once, so that its later work is cheap.

Spark collects garbage after every task of a worker that it uses again. With compiled kernels loaded
each collection looks at two hundred thousand objects that never go: a tenth of a second, which is
longer than many a task.

Rows come and batches go in pieces of megabytes. The C library hands such pieces back to the kernel
when they are freed and asks for them again for the next: then every page is new, which costs more
than to fill it. Imports no pyspark.

What Spark's JVM sends to a Python worker, acknowledged as soon as it is here.

Spark sends a task's work, in a packet of its own what to do it with, and in another that there is
no more. Over TCP its kernel holds a small packet back until ours has acknowledged the one before,
and ours takes 40 ms over it in the hope of something to send along: longer than many a task. To ask
for quick acknowledgements also sends one that is due. Where there is nothing to ask (Unix domain
sockets, another system than Linux) nothing is done. Never reads or writes; imports no pyspark.
"""

import ctypes
import gc
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final, TypeVar

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


_DESCRIPTORS: Final = "/proc/self/fd"
_QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux has it
T = TypeVar("T")


def acknowledged(arriving: Iterable[T]) -> Iterator[T]:
    """The same, in the same order; whoever sent one may send the next at once."""
    connections = connected_by_tcp()
    for one in arriving:
        for descriptor in connections:
            _acknowledge(descriptor)
        yield one


class WorkArrives:
    """Pickled with a task's work, it has that acknowledged where the work is unpickled.

    No line of ours runs in a worker before that, and Spark holds the task's input back until then.
    """

    def __reduce__(self) -> "tuple[Callable[[], WorkArrives], tuple[()]]":
        return _arrived, ()


def _arrived() -> WorkArrives:
    connected_by_tcp()
    return WorkArrives()


def connected_by_tcp() -> list[int]:
    """This process's TCP connections: Spark's is one of them, and none minds being quick."""
    if _QUICK is None:
        return []
    return [number for number in _descriptors() if _acknowledge(number)]


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:  # a container without /proc
        return []


def _acknowledge(descriptor: int) -> bool:
    """Whether that could be asked for: not of a file, nor of one that is closed by now."""
    assert _QUICK is not None, "asked for only where there is such a thing"
    with suppress(OSError):
        one = socket.socket(fileno=descriptor)
        try:
            one.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
        finally:
            one.detach()  # it is not ours to close
        return True
    return False
