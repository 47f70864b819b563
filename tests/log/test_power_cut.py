"""What a power cut leaves of a log directory: names last once their folder was synced."""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from penstock.log import LogDirectory, LogDirectoryIdentity, OpenFiles, PartitionLog
from penstock.log.log_dir_identity import load_identity
from penstock.model import Millis, NodeId, TopicPartition
from tests.support.cluster_simulation.disk import Disk, Disks
from tests.support.settings import default_log_settings

Fill = Callable[..., None]
OpenLog = Callable[..., PartitionLog]

ORDERS = TopicPartition("orders", 0)
OWNER = LogDirectoryIdentity("a-cluster", NodeId(1), UUID(int=7))
POWER_CUTS = 40  # each takes another part of what was not synced


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(tmp_path / "disk", random.Random(0))
    disks = Disks()
    disks.add(disk)
    with monkeypatch.context() as patch:
        disks.install(patch)
        yield disk


def opened(path: Path) -> LogDirectory:
    return LogDirectory.open(path, OpenFiles(8), identity=OWNER)


def partition(directory: LogDirectory) -> PartitionLog:
    return directory.open_partition(ORDERS, default_log_settings(), now=Millis(0))


def lose_power(disk: Disk, directory: LogDirectory) -> None:
    directory.files.close_all()
    directory.release()
    disk.lose_power()


def data_folders(disk: Disk) -> Iterator[Path]:
    """A data folder for each power cut, in a folder that does not exist either."""
    for number in range(POWER_CUTS):
        yield Path(disk.root) / f"var{number}" / "data"


def test_a_new_data_folder_and_its_owner_survive(disk: Disk) -> None:
    for path in data_folders(disk):
        lose_power(disk, opened(path))
        assert load_identity(path) == OWNER


def test_the_first_flush_makes_the_name_of_a_new_partition_durable(disk: Disk, fill: Fill) -> None:
    for path in data_folders(disk):
        directory = opened(path)
        log = partition(directory)
        fill(log, 10)
        log.flush()
        lose_power(disk, directory)
        again = opened(path)
        assert partition(again).end_offset == 10
        again.release()


def test_a_flush_that_was_planned_and_never_run_does_not_count_as_the_first(
    disk: Disk, fill: Fill
) -> None:
    for path in data_folders(disk):
        directory = opened(path)
        log = partition(directory)
        fill(log, 10)
        log.pending_flush()
        log.flush()
        lose_power(disk, directory)
        assert (path / "orders-0").exists()


def test_only_the_first_flush_syncs_the_folder_that_holds_the_partition(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", record)
    log = open_log()
    parent = str(log.folder.parent)
    for is_first in (True, False):
        fill(log, 3)
        synced.clear()
        log.flush()
        assert str(log.folder) in synced
        assert (parent in synced) is is_first


def test_a_log_that_is_marked_as_synced_has_everything_that_was_flushed(
    disk: Disk, fill: Fill
) -> None:
    for path in data_folders(disk):
        directory = opened(path)
        log = partition(directory)
        log.marks_synced = True
        fill(log, 10)
        log.flush()
        fill(log, 5)  # not acknowledged
        lose_power(disk, directory)
        again = opened(path)
        log = partition(again)
        assert log.was_synced
        assert log.end_offset >= 10
        again.release()


def test_a_log_is_not_marked_by_a_power_cut_during_its_first_flush(disk: Disk, fill: Fill) -> None:
    for path in data_folders(disk):
        directory = opened(path)
        log = partition(directory)
        log.marks_synced = True
        fill(log, 10)
        log.pending_flush()  # and never run
        lose_power(disk, directory)
        again = opened(path)
        assert not partition(again).was_synced
        again.release()
