"""What makes repeated work in a Python worker of Spark cheap: memory, garbage, acknowledgements.

Garbage: Spark collects it after every task of a reused worker. With compiled kernels loaded, each
collection visits two hundred thousand objects that stay: a tenth of a second, longer than many
tasks take.

Memory: rows and batches come in pieces of megabytes. The C library returns such pieces to the
kernel when they are freed and requests them again for the next one, and then every page is new,
which costs more than filling it.

Acknowledgements: Spark's JVM sends a task's work, what to do with it, and the end of its input in
separate packets. Over TCP its kernel holds a small packet back until ours has acknowledged the one
before, and ours delays that by 40 ms in the hope of data to send along. Asking for quick
acknowledgements also sends the one that is due. Does nothing where there is nothing to ask for
(Unix domain sockets, systems other than Linux).

Never reads from or writes to Spark's connection. Imports no pyspark.
"""

import ctypes
import gc
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

_M_TRIM_THRESHOLD: Final = -1  # as in malloc.h
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 32 << 20  # the largest mmap threshold that glibc accepts
_DESCRIPTORS: Final = Path("/proc/self/fd")
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # on Linux
Item = TypeVar("Item")


@cache
def keep_memory() -> None:
    """Call when a task starts: the worker keeps some memory that is freed."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc
        library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _KEPT_BYTES)


@cache
def freeze_loaded(_work: str) -> None:
    """Call when a task ends: once per kind of work, exempt what is loaded from collections."""
    gc.collect()
    gc.freeze()


@contextmanager
def no_collection() -> Iterator[None]:
    """For code that makes very many small objects without cycles: saves a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def acknowledged(arriving: Iterable[Item]) -> Iterator[Item]:
    """The same items; each is acknowledged on arrival, so that the next is sent immediately."""
    connections = acknowledge_all()
    for item in arriving:
        for descriptor in connections:
            _acknowledge(descriptor)
        yield item


class AcknowledgeOnArrival:
    """Pickled with a task's work, it acknowledges that work where it is unpickled.

    None of our code runs in a worker before that, and Spark holds the task's input back until then.
    """

    def __reduce__(self) -> "tuple[Callable[[], AcknowledgeOnArrival], tuple[()]]":
        return _arrived, ()


def _arrived() -> AcknowledgeOnArrival:
    acknowledge_all()
    return AcknowledgeOnArrival()


def acknowledge_all() -> list[int]:
    """Acknowledge on all TCP connections of this process, Spark's among them; their descriptors."""
    if _QUICK_ACK is None:
        return []
    return [descriptor for descriptor in _descriptors() if _acknowledge(descriptor)]


def _descriptors() -> list[int]:
    try:
        return [int(path.name) for path in _DESCRIPTORS.iterdir()]
    except OSError:  # a container without /proc
        return []


def _acknowledge(descriptor: int) -> bool:
    """Whether it is a TCP connection that is open."""
    assert _QUICK_ACK is not None, "checked by the caller"
    with suppress(OSError):
        connection = socket.socket(fileno=descriptor)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        finally:
            connection.detach()  # it is not ours to close
        return True
    return False
