"""How this room compiles: lazily, without the GIL, and cached on disk for the next process.

numba keeps the cache beside the source, in the user's cache folder where the package is read-only,
or in NUMBA_CACHE_DIR. With no place to write at all a kernel still works; each process compiles it.

A cache entry is dropped when the *file of the kernel* changes and at no other change: so a kernel
calls compiled functions of its own file only, or an edit elsewhere would go unseen.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Bytes: TypeAlias = NDArray[np.uint8]
Int32s: TypeAlias = NDArray[np.int32]
Int64s: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call, or load what an earlier process compiled."""
    try:
        compiled: Callable[P, R] = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba found no folder for its cache
        compiled = numba.njit(nogil=True)(function)
    return compiled


def read_only(buffer: bytes | bytearray | memoryview | Bytes) -> Bytes:
    """The bytes as an array nobody writes through: one type for numba, so one compilation."""
    view = np.frombuffer(buffer, dtype=np.uint8)
    view.flags.writeable = False
    return view
