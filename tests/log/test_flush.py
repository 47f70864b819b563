"""After a failed sync nothing is written; a sync of deleted files is not a failure."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import LogDirectory, OpenFiles, PartitionLog
from penstock.log.checkpoints import RECOVERY_POINTS
from penstock.log.flush import SYNCED_MARKER, SyncError, disk_failure
from penstock.model import LeaderEpoch, Millis, Offset, TopicPartition
from tests.support.appending import append_batch

OpenLog = Callable[..., PartitionLog]
Fill = Callable[..., None]
Batch = Callable[..., bytearray]


def refuse(descriptor: int) -> None:
    raise OSError(errno.EIO, "bad sector")


def fail_to_sync(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the flusher does it."""
    work = log.pending_flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse)
        with pytest.raises(SyncError, match="bad sector") as failed:
            work.run()
    log.stop_writing(failed.value)


def test_nothing_is_written_after_a_failed_sync(
    open_log: OpenLog, fill: Fill, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    log.flush()
    fill(log, 1)
    fail_to_sync(log, monkeypatch)
    with pytest.raises(OSError, match="until the broker is restarted"):
        append_batch(log, batch(), leader_epoch=LeaderEpoch(0), now=Millis(0))
    assert log.end_offset == 3
    assert len(log.read(Offset(0), max_bytes=10_000).view) == log.size_bytes, "reads go on"


def test_a_later_sync_does_not_undo_a_failed_one(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    log.flush()
    fill(log, 60)  # closed segments are to be synced
    fail_to_sync(log, monkeypatch)
    assert not log.flush_due(Millis(10_000))
    assert log.flush() == log.recovery_point == 2


def test_a_stop_after_a_failed_sync_is_not_clean(
    tmp_path: Path, fill: Fill, batch: Batch, monkeypatch: pytest.MonkeyPatch, open_log: OpenLog
) -> None:
    folder = LogDirectory.open(tmp_path, OpenFiles(8))
    settings = open_log().settings
    name = TopicPartition("orders", 0)
    log = folder.open_partition(name, settings, now=Millis(0))
    fill(log, 3)
    fail_to_sync(log, monkeypatch)
    folder.close()
    assert "orders 0 3" not in (tmp_path / RECOVERY_POINTS).read_text()
    again = LogDirectory.open(tmp_path, OpenFiles(8))
    assert not again.was_clean
    log = again.open_partition(name, settings, now=Millis(0))
    append_batch(log, batch(), leader_epoch=LeaderEpoch(0), now=Millis(0))
    assert log.end_offset == 4
    again.close()


def test_a_partition_that_was_deleted_has_nothing_to_sync(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 3)
    work = log.pending_flush()
    log.abandon()
    log.folder.rename(log.folder.with_name("deleted"))
    work.run()


def test_a_lack_of_descriptors_is_not_a_failed_sync(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse_to_open(path: str, flags: int, mode: int = 0) -> int:
        raise OSError(errno.EMFILE, "too many")

    log = open_log()
    fill(log, 3)
    work = log.pending_flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse_to_open)
        with pytest.raises(OSError, match="too many") as failed:
            work.run()
    assert not isinstance(failed.value, SyncError)
    work.run()


# The marker of a log whose acknowledged records are all on disk.


def is_marked(log: PartitionLog) -> bool:
    return log.has_synced_marker


def test_a_log_is_marked_as_synced_by_the_next_flush(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    assert not is_marked(log)
    assert not log.flush_due(Millis(0))
    log.marks_synced = True
    assert log.flush_due(Millis(0)), "also without a record: nothing was acknowledged so far"
    work = log.pending_flush()
    assert not is_marked(log), "not before it is on disk"
    work.run()
    log.flushed(work.end_offset)
    assert is_marked(log)
    assert not log.flush_due(Millis(0))
    fill(log, 2)
    log.flush()
    assert (log.folder / SYNCED_MARKER).exists()


def test_the_marker_is_there_at_the_next_start_until_it_is_removed(
    open_log: OpenLog, fill: Fill
) -> None:
    log = open_log()
    log.marks_synced = True
    fill(log, 2)
    log.flush()
    log.abandon()
    again = open_log(clean=False)
    assert again.was_synced
    again.marks_synced = False
    work = again.pending_flush()
    work.run()
    again.flushed(work.end_offset)
    assert not is_marked(again)
    assert not (again.folder / SYNCED_MARKER).exists()
    again.abandon()
    assert not open_log(clean=False).was_synced


def test_a_flush_that_ends_late_does_not_mark_another_log_of_that_name(
    open_log: OpenLog, fill: Fill
) -> None:
    log = open_log()
    fill(log, 2)
    log.marks_synced = True
    work = log.pending_flush()
    log.abandon()
    log.folder.rename(log.folder.with_name("deleted"))
    again = open_log()
    work.run()
    assert not (again.folder / SYNCED_MARKER).exists()


def test_a_failed_flush_marks_nothing(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 2)
    log.marks_synced = True
    fail_to_sync(log, monkeypatch)
    assert not is_marked(log)
    assert not (log.folder / SYNCED_MARKER).exists()


@pytest.mark.parametrize(
    ("code", "is_failure"), [(errno.EIO, True), (errno.EROFS, True), (errno.ENOSPC, False)]
)
def test_a_full_disk_is_not_a_failed_one(code: int, is_failure: bool) -> None:
    assert (disk_failure(OSError(code, "no")) is not None) is is_failure
