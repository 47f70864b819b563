"""How this room compiles: at the first call, mostly without the GIL, and cached on disk for later.

numba keeps the cache beside the source, in the user's cache folder where the package is read-only,
or in NUMBA_CACHE_DIR. With no place to write at all a kernel still works; each process compiles it.
By itself numba drops an entry when the kernel's own file changes, and never learns that a function
the kernel calls has changed in another file. Here an entry is valid while no file of the room has.

A kernel allocates nothing: its arrays come in as arguments. So numba's reference counting is off
(`_nrt`), which otherwise takes four fifths of the time of a loop that calls small functions.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pickle import UnpicklingError
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import numba
import numpy as np
from numba.core import caching, cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def _room_stamp() -> bytes:
    stamp = sha256()
    for source in _sources(resources.files(__package__)):
        stamp.update(source.read_bytes())
    return stamp.digest()


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry


_UNREADABLE: Final = (OSError, EOFError, UnpicklingError)
_njit: Any = numba.njit  # its stubs do not know _nrt
_FunctionCache: Any = caching.FunctionCache  # untyped in numba
_IndexFile: Any = caching.IndexDataCacheFile


class RoomCache(_FunctionCache):  # type: ignore[misc]  # a base of type Any: numba has no types
    """numba's cache of one kernel. Valid while no file of the room changes; no reason to fail."""

    _stamp: Final = _room_stamp()

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _IndexFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._stamp,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What an earlier process compiled; None when there is nothing or it cannot be read."""
        try:
            return super().load_overload(sig, target_context)
        except _UNREADABLE:
            with suppress(OSError):
                self.flush()  # or each later process would stumble over it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it for the next process, if the disk lets us."""
        with suppress(*_UNREADABLE):
            super().save_overload(sig, data)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A small function of kernels, compiled into each place that calls it."""
    compiled: Callable[P, R] = _njit(nogil=True, _nrt=False, forceinline=True)(function)
    return compiled


def outlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part of kernels that is rarely needed, compiled once however many places call it."""
    compiled: Callable[P, R] = _njit(nogil=True, _nrt=False)(function)
    return compiled


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call, or load what an earlier process compiled."""
    return _cached(function, nogil=True)


def object_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a kernel that walks Python's objects, and so keeps the GIL."""
    return _cached(function, nogil=False)


def _cached(function: Callable[P, R], *, nogil: bool) -> Callable[P, R]:
    compiled: Any = _njit(nogil=nogil, _nrt=False)(function)
    with suppress(RuntimeError):  # numba found no folder to cache in
        compiled._cache = RoomCache(function)  # noqa: SLF001 - as njit(cache=True) sets it
    typed: Callable[P, R] = compiled
    return typed


def read_only(buffer: bytes | bytearray | memoryview | Bytes) -> Bytes:
    """The bytes as an array nobody writes through: one type for numba, so one compilation."""
    view = np.frombuffer(buffer, dtype=np.uint8)
    view.flags.writeable = False
    return view


def _memcpy(_: Any, target: Any, target_at: Any, source: Any, source_at: Any, size: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        of = context.make_array(signature.args[2])(context, builder, arguments[2])
        to_place = builder.gep(to.data, [arguments[1]])
        of_place = builder.gep(of.data, [arguments[3]])
        memcpy: Any = cgutils.raw_memcpy  # untyped in numba
        memcpy(builder, to_place, of_place, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), emit


# For kernels: copy_bytes(target, target_at, source, source_at, size); checks nothing, they have
copy_bytes: Any = intrinsic(_memcpy)
