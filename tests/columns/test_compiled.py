"""Kernels are compiled once: for one signature, for all processes, and again after a change."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from penstock.columns import compiled
from penstock.columns.compiled import (
    Bytes,
    ConstBytes,
    Int64s,
    Kernel,
    copy_bytes,
    inlined,
    kernel,
    read_only,
)

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
    stats = kernel.dispatcher.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """numba's cache, in a folder of the test's own."""
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def triple(numbers: Int64s) -> int:
    total = 0
    for index in range(numbers.shape[0]):
        total += 3 * numbers[index]
    return total


def is_compiled_by_a_new_process() -> bool:
    """Call `triple` as a process does that has not met it; whether it had to be compiled."""
    made = Kernel(triple, nogil=True)
    is_compiled = made.prepare()
    assert made(np.arange(4)) == 18
    return is_compiled


@pytest.mark.usefixtures("cache_folder")
def test_what_was_compiled_once_is_loaded() -> None:
    assert is_compiled_by_a_new_process()
    assert not is_compiled_by_a_new_process()


@pytest.mark.parametrize(
    ("name", "state"), [("__version__", "9.9"), ("_package_digest", lambda: b"changed")]
)
def test_another_version_or_a_change_in_the_package_compiles_again(
    name: str, state: Any, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_compiled_by_a_new_process()
    for file in cache_folder.rglob("*.nbi"):
        file.write_bytes(b"a damaged index of the version before")
    monkeypatch.setattr(compiled, name, state)
    assert is_compiled_by_a_new_process()
    assert not is_compiled_by_a_new_process()
    (index,) = cache_folder.rglob("*.nbi")
    assert index.read_bytes() != b"a damaged index of the version before", "the old one is removed"


def test_a_call_with_other_types_is_an_error_and_no_compilation() -> None:
    made = kernel(triple)
    assert made(np.arange(2)) == 3
    for wrong in (np.zeros(2, dtype=np.float64), np.zeros((2, 2), dtype=np.int64)):
        with pytest.raises(TypeError):
            made(wrong)  # type: ignore[arg-type]  # that is what is tested
    assert len(made.dispatcher.overloads) == 1


def test_threads_that_call_a_kernel_first_wait_for_one_compilation() -> None:
    made = kernel(triple)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(made, [np.arange(3)] * 8)) == [9] * 8
    assert len(made.dispatcher.overloads) == 1


def test_a_kernel_declares_the_type_of_each_argument() -> None:
    def vague(numbers: Any) -> int:
        return len(numbers)

    with pytest.raises(AssertionError, match="declares the type"):
        kernel(vague)


def test_a_function_of_kernels_is_compiled_once_for_all_constants() -> None:
    @inlined
    def plus(number: int, more: int) -> int:
        return number + more

    def sums(numbers: Int64s) -> int:
        return plus(1, 2) + plus(numbers[0], 3) + plus(4, numbers[1])

    assert kernel(sums)(np.arange(2)) == 11
    assert len(plus.overloads) == 1  # type: ignore[attr-defined]  # it is numba's dispatcher


def test_a_long_compilation_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def after_the_report(compile_for: Any, types: Any) -> None:
        end_s = time.monotonic() + 60
        while not caplog.records and time.monotonic() < end_s:
            time.sleep(0.01)
        compile_for(types)

    monkeypatch.setattr(compiled, "REPORT_S", 0.0)
    monkeypatch.setattr(compiled, "_was_reported", threading.Event())
    for _ in range(2):
        made = Kernel(triple, nogil=True)
        compile_it = made.dispatcher.compile
        made.dispatcher.compile = partial(after_the_report, compile_it)
        made.prepare()
    (report,) = caplog.records
    assert "`penstock warm` does it ahead" in report.getMessage()


@pytest.mark.parametrize(
    "damaged", [lambda old: old[: len(old) // 2], lambda old: b"", lambda old: old[:-9] + b"cno\n."]
)
def test_a_damaged_cache_is_replaced(damaged: Callable[[bytes], bytes], cache_folder: Path) -> None:
    assert is_compiled_by_a_new_process()
    files = [file for file in cache_folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".nbi", ".nbc"}
    for file in files:
        file.write_bytes(damaged(file.read_bytes()))
    assert is_compiled_by_a_new_process()
    assert not is_compiled_by_a_new_process()


def test_a_full_disk_does_not_stop_a_kernel(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert is_compiled_by_a_new_process()
    assert not [file for file in cache_folder.rglob("*") if file.is_file()]


def test_without_any_folder_to_cache_in_a_kernel_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
    monkeypatch.setattr(numba.core.config, "CACHE_LOCATOR_CLASSES", "", raising=False)
    made = kernel(triple)
    assert not made.is_cached
    assert made(np.arange(4)) == 18


def test_bytes_are_copied_to_where_they_should_be() -> None:
    def middle(target: Bytes, source: ConstBytes) -> None:
        copy_bytes(target, 1, source, 2, 3)

    target = np.zeros(6, dtype=np.uint8)
    kernel(middle)(target, read_only(b"abcdefg"))
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
