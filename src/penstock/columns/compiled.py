"""How kernels are compiled: for one signature each, at the first call, cached on disk for later.

A kernel has the signature of its annotations (`Bytes`, `Int64Table`, NamedTuples of them) and is
compiled once; a call with other types is a TypeError, never a second compilation. Functions that
kernels call (`inlined`, `outlined`) are compiled into them, for their annotations too.

numba stores the cache beside the source, in the user's cache folder where the package is read-only,
or in NUMBA_CACHE_DIR. File names carry Penstock's version and a digest of this package: an upgrade
never reads what another version wrote. Where nothing can be written, each process compiles again.

A kernel allocates nothing: its arrays come in as arguments. So numba's reference counting is off
(`_nrt`), which otherwise takes four fifths of the time of a loop that calls small functions.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    get_origin,
    get_type_hints,
)

import numba
import numpy as np
from numba.core import caching, cgutils, sigutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from penstock.version import __version__

P = ParamSpec("P")
R = TypeVar("R")

_log: Final = logging.getLogger(__name__)


def _array(kind: Any, dimensions: int = 1, *, read_only: bool = False) -> Any:
    array: Any = types.Array  # untyped in numba
    return array(kind, dimensions, "C", readonly=read_only)


# The types of a kernel's arguments: contiguous arrays that the kernel writes to, or only reads.
Bytes: TypeAlias = Annotated[NDArray[np.uint8], _array(types.uint8)]
Int32s: TypeAlias = Annotated[NDArray[np.int32], _array(types.int32)]
Int64s: TypeAlias = Annotated[NDArray[np.int64], _array(types.int64)]
UInt64s: TypeAlias = Annotated[NDArray[np.uint64], _array(types.uint64)]
Floats: TypeAlias = Annotated[NDArray[np.float32], _array(types.float32)]
Doubles: TypeAlias = Annotated[NDArray[np.float64], _array(types.float64)]
Bools: TypeAlias = Annotated[NDArray[np.bool_], _array(types.boolean)]
Int64Table: TypeAlias = Annotated[NDArray[np.int64], _array(types.int64, 2)]
UInt64Table: TypeAlias = Annotated[NDArray[np.uint64], _array(types.uint64, 2)]
ConstBytes: TypeAlias = Annotated[NDArray[np.uint8], _array(types.uint8, read_only=True)]
ConstInt64s: TypeAlias = Annotated[NDArray[np.int64], _array(types.int64, read_only=True)]
ConstBools: TypeAlias = Annotated[NDArray[np.bool_], _array(types.boolean, read_only=True)]
Int64: TypeAlias = Annotated[Any, types.int64]  # numpy's or Python's: one type once compiled
UInt64: TypeAlias = Annotated[Any, types.uint64]


def table_type(row: np.dtype[Any]) -> Any:
    """numba's type of a contiguous array of such rows."""
    from_dtype: Any = numba.from_dtype  # untyped in numba
    return _array(from_dtype(row))


_SCALARS: Final = {int: types.int64, bool: types.boolean, float: types.float64}
REPORT_S: Final = 1.0  # a compilation that takes longer is reported
_njit: Any = numba.njit  # its stubs do not know _nrt
_FunctionCache: Any = caching.FunctionCache  # untyped in numba
_IndexFile: Any = caching.IndexDataCacheFile
_tuple_type: Any = types.BaseTuple.from_types


def _signature(function: Callable[..., object]) -> tuple[Any, ...] | None:
    """numba's types of the parameters, by their annotations; None if one leaves its type open."""
    hints = get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    declared = tuple(map(_numba_type, hints.values()))
    return None if None in declared else declared


def _numba_type(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        return hint.__metadata__[0]
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        fields = get_type_hints(hint, include_extras=True)
        return _tuple_type([_numba_type(fields[name]) for name in hint._fields], hint)
    return None


@cache
def _package_digest() -> bytes:
    digest = sha256()
    for source in _sources(resources.files(__package__)):
        digest.update(source.read_bytes())
    return digest.digest()


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry


class _KernelCache(_FunctionCache):  # type: ignore[misc]  # a base of type Any: numba has no types
    """numba's cache of one kernel, under a name that changes with Penstock and this package."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        digest = _package_digest()
        self.key = f"{__version__}-{digest.hex()[:16]}"
        self._cache_file = _IndexFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.{self.key}",
            source_stamp=digest,
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What an earlier process compiled; None when there is nothing or it cannot be read."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001 - a damaged pickle raises anything
            with suppress(OSError):
                self.flush()  # or each later process would fail on it again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store it for later processes, if the disk allows that."""
        with suppress(OSError):
            super().save_overload(sig, data)
            self._remove_other_versions()

    def _remove_other_versions(self) -> None:
        """The folder belongs to one source folder: what has another key is never read again."""
        for path in Path(self._cache_path).glob("*.nb[ic]"):
            if f".{self.key}." not in path.name:
                path.unlink(missing_ok=True)


class Kernel(Generic[P, R]):
    """A compiled loop that Python calls. It is loaded or compiled by the first call."""

    def __init__(self, function: Callable[P, R], *, nogil: bool) -> None:
        signature = _signature(function)
        assert signature is not None, f"{function.__qualname__} declares the type of each argument"
        self.name: str = f"{function.__module__}.{function.__name__}"
        self.dispatcher: Any = _njit(nogil=nogil, _nrt=False)(function)
        self.is_cached: bool = False  # False: there is no folder to cache in
        with suppress(RuntimeError):
            self.dispatcher._cache = _KernelCache(function)  # noqa: SLF001 - as njit(cache=True)
            self.is_cached = True
        self._signature = signature
        self._is_ready = False
        self._lock = threading.Lock()  # of the first calls, from several threads
        KERNELS.append(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._is_ready:
            self.prepare()
        result: R = self.dispatcher(*args, **kwargs)
        return result

    def prepare(self, *, reports: bool = True) -> bool:
        """Load or compile it, unless that was done; whether it was compiled by this call."""
        with self._lock:
            if self._is_ready:
                return False
            with _reported() if reports else nullcontext():
                self.dispatcher.compile(self._signature)
            self.dispatcher.disable_compile()
            self._is_ready = True
            return not self.dispatcher.stats.cache_hits


KERNELS: Final[list[Kernel[..., Any]]] = []  # of the modules imported so far
_was_reported: Final = threading.Event()


@contextmanager
def _reported() -> Iterator[None]:
    """Report a compilation that takes long: once per process."""
    timer = threading.Timer(REPORT_S, _report)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _report() -> None:
    if not _was_reported.is_set():
        _was_reported.set()
        _log.warning(
            "compiling kernels for their first use, which takes up to a minute; `penstock warm` "
            "does it ahead, into NUMBA_CACHE_DIR if that is set"
        )


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """A kernel that runs without the GIL."""
    return Kernel(function, nogil=True)


def object_kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """A kernel that reads Python's objects, and so holds the GIL."""
    return Kernel(function, nogil=False)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A small function that kernels call, compiled into each place that calls it."""
    return _callee(function, forceinline=True)


def outlined(function: Callable[P, R]) -> Callable[P, R]:
    """A function that kernels call rarely, compiled once however many places call it."""
    return _callee(function, forceinline=False)


def _callee(function: Callable[P, R], *, forceinline: bool) -> Callable[P, R]:
    """Without the wrappers that would make it callable from Python: they cost time to compile."""
    options = {"nogil": True, "_nrt": False, "forceinline": forceinline}
    compiled: Any = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)(function)
    declared = _signature(function)
    compile_for: Any = compiled.compile
    normalize: Any = sigutils.normalize_signature  # untyped in numba

    def compile_declared(given: Any) -> Any:
        """numba asks for each combination of constants that occurs; one compilation serves all."""
        arguments, _ = normalize(given)
        return compile_for(declared or tuple(map(types.unliteral, arguments)))

    compiled.compile = compile_declared
    typed: Callable[P, R] = compiled
    return typed


def read_only(buffer: bytes | bytearray | memoryview | Bytes) -> ConstBytes:
    """The bytes as an array that nothing is written through: `ConstBytes`."""
    view = np.frombuffer(buffer, dtype=np.uint8)
    view.flags.writeable = False
    return view


def _memcpy(_: Any, target: Any, _target_at: Any, source: Any, _source_at: Any, _size: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        of = context.make_array(signature.args[2])(context, builder, arguments[2])
        to_pointer = builder.gep(to.data, [arguments[1]])
        of_pointer = builder.gep(of.data, [arguments[3]])
        memcpy: Any = cgutils.raw_memcpy  # untyped in numba
        memcpy(builder, to_pointer, of_pointer, arguments[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), emit


# For kernels: copy_bytes(target, target_at, source, source_at, size). The caller checks the bounds.
copy_bytes: Any = intrinsic(_memcpy)
