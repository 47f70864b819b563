"""Compiles all kernels that an install can use, so that no first use waits for it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Final, NamedTuple

from penstock.columns.compiled import KERNELS
from penstock.extras import is_installed

# The modules with kernels, by the extra that is needed to call them; none: the base install.
MODULES: Final[Mapping[str | None, Sequence[str]]] = {
    None: ("compaction_kernels", "record_kernels_read"),
    "arrow": (
        "json_values",
        "partitioner",
        "record_kernels_write",
        "avro.dict_kernels",
        "avro.read_kernels",
        "avro.write_kernels",
        "protobuf.dict_kernels",
        "protobuf.read_kernels",
        "protobuf.write_kernels",
    ),
}


class Warmed(NamedTuple):
    """One kernel that is ready."""

    name: str
    seconds: float
    is_compiled: bool  # or it was loaded from the cache
    is_cached: bool  # False: there is no folder to store it in, and each process compiles again


def warm() -> Iterator[Warmed]:
    """Load or compile each kernel."""
    for extra, names in MODULES.items():
        if extra is None or is_installed(extra):
            for name in names:
                import_module(f"penstock.columns.{name}")
    for kernel in KERNELS:
        start_s = time.perf_counter()
        is_compiled = kernel.prepare(reports=False)
        yield Warmed(kernel.name, time.perf_counter() - start_s, is_compiled, kernel.is_cached)
