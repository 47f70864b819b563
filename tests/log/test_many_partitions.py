"""Ten thousand partitions: few descriptors, little memory, few system calls each."""

import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings

OPENING_CALLS_MAX = 9
CLOSING_CALLS_MAX = 2

TEN_THOUSAND = """
import resource, sys, os
from pathlib import Path
from penstock.log import OpenFiles, PartitionLog
from penstock.protocol.batch import read_header
from penstock.protocol.records import build_batch
from tests.support.settings import default_log_settings

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
files, settings, root = OpenFiles(512), default_log_settings(), Path(sys.argv[1])
count = int(sys.argv[2])
logs = [
    PartitionLog.open(root / f"t-{n}", settings, files, now=0, clean=True) for n in range(count)
]
for _ in range(2):
    for log in logs:
        batch = build_batch([(b"k", b"v")], timestamp=5)
        log.append(batch, read_header(batch), leader_epoch=0, now=0)
views = [log.read(0, max_bytes=1 << 20).view for log in logs]
assert all(len(view) == log.size_bytes for view, log in zip(views, logs))
for log in logs:
    log.close(sync=False)
again = [
    PartitionLog.open(root / f"t-{n}", settings, files, now=0, clean=n % 2 == 0)
    for n in range(count)
]
assert all(log.end_offset == 2 for log in again)
assert len(os.listdir("/proc/self/fd")) < 600
print("ok")
"""


def open_with_few_descriptors(folder: Path, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TEN_THOUSAND, str(folder), str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def test_two_thousand_partitions_open_with_the_usual_limit_of_descriptors(tmp_path: Path) -> None:
    open_with_few_descriptors(tmp_path, 2_000)


@pytest.mark.slow
def test_ten_thousand_partitions_open_with_the_usual_limit_of_descriptors(tmp_path: Path) -> None:
    open_with_few_descriptors(tmp_path, 10_000)


def test_an_idle_partition_needs_less_than_ten_kilobytes(tmp_path: Path) -> None:
    files, settings = OpenFiles(16), default_log_settings()

    def opened(number: int) -> PartitionLog:
        folder = tmp_path / f"a-topic-with-an-ordinary-name-{number}"
        return PartitionLog.open(folder, settings, files, now=Millis(0), clean=True)

    first = opened(0)  # what is loaded once is not counted
    tracemalloc.start()
    logs = [opened(number) for number in range(1, 201)]
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes / len(logs) < 10_000
    assert first.end_offset == 0
    files.close_all()


def system_calls(work: Any) -> Counter[str]:
    """How often the work calls functions of `os` and `io`, which are mostly system calls."""
    calls: Counter[str] = Counter()

    def note(_frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and getattr(function, "__module__", "") in ("posix", "io", "_io"):
            calls[function.__name__] += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("batches", [0, 2])
def test_a_small_partition_is_opened_and_closed_with_few_system_calls(
    tmp_path: Path, batches: int
) -> None:
    files, settings = OpenFiles(16), default_log_settings()
    logs: list[PartitionLog] = []

    def open_one() -> None:
        opened = PartitionLog.open(tmp_path / "t-0", settings, files, now=Millis(0), clean=True)
        logs.append(opened)

    open_one()
    for _ in range(batches):
        append_batch(
            logs[0], build_batch([(b"k", b"v")]), leader_epoch=LeaderEpoch(0), now=Millis(0)
        )
    logs[0].close(sync=False)
    opening = system_calls(open_one)
    closing = system_calls(lambda: logs[1].close(sync=False))
    assert sum(opening.values()) <= OPENING_CALLS_MAX, opening
    assert sum(closing.values()) <= CLOSING_CALLS_MAX, closing
