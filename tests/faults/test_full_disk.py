"""A disk that fills up under load, for real: a small file system in memory. Needs root to mount."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ErrorCode
from penstock.testing.embedded import EmbeddedBroker
from tests.support.small_disk import SmallDisk, cannot_mount
from tests.support.wire import Wire, batch

DISK_BYTES = 24 << 20
BALLAST_BYTES = 8 << 20
SECONDS_MAX = 20
RETRIED = (ErrorCode.not_controller, ErrorCode.kafka_storage_error)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with so little room that it fills within a second."""
    reason = cannot_mount()
    if reason is not None:
        pytest.skip(reason)
    disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    yield disk.path
    disk.unmount()


def create(wire: Wire, name: str) -> ErrorCode:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    return ErrorCode(wire.call(19, 7, topics=[topic], timeout=5000).topics[0].error_code)


def fill(wire: Wire, taken: list[int], *, number: int) -> ErrorCode:
    """Write until the disk refuses; `taken` gets the numbers that were acknowledged."""
    for each in range(number, number + 10_000):
        row = wire.produce("t", batch((b"%d" % each, os.urandom(100_000))))
        if row.error_code:
            return ErrorCode(row.error_code)
        assert row.base_offset == len(taken)
        taken.append(each)
    raise AssertionError("the disk never fills")


def read_keys(wire: Wire, count: int) -> int:
    """How many records of the log can be read, in order, from the start."""
    offset = 0
    while offset < count:
        row = wire.fetch("t", offset, partition_max_bytes=1)
        assert row.error_code == ErrorCode.none
        assert row.records
        offset += 1
    return offset


def test_a_full_disk_refuses_writes_serves_reads_and_is_used_again(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    folder = disk / "broker"
    folder.mkdir()
    taken: list[int] = []
    with EmbeddedBroker(folder) as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with Wire(port) as wire:
            assert create(wire, "t") == ErrorCode.none
            assert create(wire, "other") == ErrorCode.none
            assert fill(wire, taken, number=0) == ErrorCode.kafka_storage_error
            filled = len(taken)
            while wire.produce("other", batch((b"k", bytes(500)))).error_code == ErrorCode.none:
                continue  # the last bytes go to another topic
            assert create(wire, "late") in (ErrorCode.none, *RETRIED)
            assert read_keys(wire, filled) == filled
            ballast.unlink()
            _await_writable(wire, "late")
            assert fill(wire, taken, number=20_000) == ErrorCode.kafka_storage_error
            assert len(taken) > filled
        broker.kill()
        ballast.unlink(missing_ok=True)
        broker.start()
        with Wire(int(broker.bootstrap.rpartition(":")[2])) as wire:
            assert read_keys(wire, len(taken)) == len(taken)
            row = wire.fetch("t", len(taken))
            assert (row.error_code, row.high_watermark) == (ErrorCode.none, len(taken))


def _await_writable(wire: Wire, name: str) -> None:
    """Controller and partition come back by themselves once there is room."""
    give_up_at = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up_at:
        create(wire, name)
        if wire.produce(name, batch()).error_code == ErrorCode.none:
            return
        time.sleep(0.05)
    raise AssertionError(f"{name} takes nothing")
