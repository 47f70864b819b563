"""The cache on disk: compiled once for all processes, anew when the room changes, no hindrance."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from penstock.columns.compiled import RoomCache, copy_bytes, inlined, kernel, read_only

OPEN_AND_BUILD = """
from penstock.columns import arrow_records, build_batches, open_batches, partitioner
from penstock.columns import record_kernels_read as read, record_kernels_write as write
from penstock.model import Millis
from penstock.protocol.records import Record, build_batch

batch = build_batch([Record(key=b"k", value=b"v", headers=(("h", b"1"),))])
arrow = arrow_records.records_to_arrow(open_batches.open_batches(batch))
build_batches.build_batches(
    arrow, partition_count=2, now=Millis(0), unkeyed=partitioner.Unkeyed.sticky(0)
)
kernels = (
    read.index_records, read.gather_bytes, read.index_headers,
    write.measure_batch, write.write_records, write.group_rows,
)
for kernel in kernels:
    print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """numba's cache, in a folder of the test's own."""
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def triple(numbers: np.ndarray[Any, Any]) -> int:
    total = 0
    for index in range(numbers.shape[0]):
        total += 3 * numbers[index]
    return total


def misses_of_a_new_process() -> int:
    """Compile `triple` as a process does that has not met it; how often the cache had nothing."""
    compiled: Any = kernel(triple)
    assert compiled(np.arange(4)) == 18
    return sum(compiled.stats.cache_misses.values())


@pytest.mark.usefixtures("cache_folder")
def test_what_was_compiled_once_is_loaded() -> None:
    assert misses_of_a_new_process() == 1
    assert misses_of_a_new_process() == 0


@pytest.mark.usefixtures("cache_folder")
def test_a_change_anywhere_in_the_room_compiles_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert misses_of_a_new_process() == 1
    monkeypatch.setattr(RoomCache, "_stamp", b"another state of the sources")
    assert misses_of_a_new_process() == 1
    assert misses_of_a_new_process() == 0


@pytest.mark.parametrize("rot", [lambda old: old[: len(old) // 2], lambda old: b""])
def test_a_rotten_cache_is_compiled_over(rot: Callable[[bytes], bytes], cache_folder: Path) -> None:
    assert misses_of_a_new_process() == 1
    files = [file for file in cache_folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".nbi", ".nbc"}
    for file in files:
        file.write_bytes(rot(file.read_bytes()))
    assert misses_of_a_new_process() == 1
    assert misses_of_a_new_process() == 0


def test_a_full_disk_does_not_stop_a_kernel(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert misses_of_a_new_process() == 1
    assert not [file for file in cache_folder.rglob("*") if file.is_file()]


def test_without_any_folder_to_cache_in_a_kernel_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    monkeypatch.setattr(numba.core.config, "CACHE_LOCATOR_CLASSES", "", raising=False)
    with pytest.raises(RuntimeError):
        RoomCache(triple)
    compiled: Any = kernel(triple)
    assert compiled(np.arange(4)) == 18


def test_bytes_are_copied_to_where_they_should_be() -> None:
    @inlined
    def middle(target: Any, source: Any) -> None:
        copy_bytes(target, 1, source, 2, 3)

    target = np.zeros(6, dtype=np.uint8)
    middle(target, read_only(b"abcdefg"))
    assert target.tobytes() == b"\0cde\0\0"


@pytest.mark.slow
def test_a_second_process_compiles_no_kernel(tmp_path: Path) -> None:
    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", OPEN_AND_BUILD],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.splitlines()

    assert run() == ["0 1"] * 6
    assert run() == ["1 0"] * 6
