"""A kill, or a disk error, at every single system call of a partition's life."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.log import LogDirectory, OpenFiles, PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.log.truncation import Truncation
from penstock.model import (
    LeaderEpoch,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicPartition,
)
from penstock.protocol.batch import iterate_headers
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch, replicate
from tests.support.settings import default_log_settings, default_settings

CALLS = (
    *("open", "pwrite", "write", "rename", "unlink", "ftruncate", "truncate", "fsync"),
    *("mkdir", "sendfile"),
)
NAME = TopicPartition("orders", 0)
SMALL = default_log_settings(
    segment_bytes=900, index_interval_bytes=200, file_delete_delay_ms=Millis(0)
)
ATTEMPTS = 3
STEPS_MAX = 1000

Batch = Callable[..., bytearray]
Offsets = Callable[[PartitionLog], list[int]]


class Killed(BaseException):
    """The process ends here."""


class Faults:
    """Wraps the system calls, and fails one of them."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int, fault: BaseException) -> None:
        self.is_over = False
        self._left = at
        self._fault = fault
        patched.setattr(os, "fsync", lambda _: None)  # this is not about power cuts
        for name in CALLS:
            patched.setattr(os, name, self._guarded(getattr(os, name)))
        patched.setattr(OpenFiles, "write", staticmethod(os.pwrite))

    def _guarded(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._left == 0:
                self._left, self.is_over = -1, True
                raise self._fault
            self._left -= 1
            return real(*args, **kwargs)

        return call


class Life:
    """A partition is created, written, trimmed, deleted, created again and written."""

    def __init__(self, folder: LogDirectory, batch: Batch) -> None:
        self.acknowledged: list[int] = []
        self._folder = folder
        self._batch = batch

    def run(self) -> None:
        for topic_id in (TopicId(UUID(int=5)), TopicId(UUID(int=6))):
            self.acknowledged.clear()
            self._write(self._open(topic_id))
            if topic_id.int == 5:
                self.acknowledged.clear()
                self._try(
                    lambda: self._folder.delete_partition(NAME, token="0" * 32, now=Millis(0))
                )
        self._folder.close()

    def _write(self, log: PartitionLog) -> None:
        for sequence in range(12):
            self._append(
                log,
                self._batch(producer=1, epoch=0, sequence=sequence, transactional=True),
            )
            if sequence % 4 == 3:
                self._append(log, abort(), origin="marker")
            log.set_high_watermark(log.end_offset)
            if sequence == 7:
                self._trim(log)
        self._try(log.flush)

    def _append(self, log: PartitionLog, content: bytearray, **origin: Any) -> None:
        end_offset = log.end_offset
        for _ in range(ATTEMPTS):
            appended = self._try(lambda: append_batch(log, content, **origin))
            if appended is not None:
                self.acknowledged.append(appended.base_offset)
                return
            assert log.end_offset == end_offset, "an append that raised has changed nothing"

    def _trim(self, log: PartitionLog) -> None:
        first, second = log.segments[:2]
        self.acknowledged = [at for at in self.acknowledged if at >= second.base_offset]
        keeps = default_settings(
            RetentionSettings, retention_ms=None, retention_bytes=log.size_bytes - first.size_bytes
        )
        self._try(lambda: log.delete_expired(keeps, Millis(0)))
        self._try(lambda: log.sweep(Millis(1)))
        self._try(lambda: self._folder.plan_checkpoint().run())

    def _open(self, topic_id: TopicId) -> PartitionLog:
        for _ in range(ATTEMPTS):
            opened = self._try(
                lambda: self._folder.open_partition(NAME, SMALL, topic_id=topic_id, now=Millis(0))
            )
            if isinstance(opened, PartitionLog):
                return opened
        raise AssertionError("one failure is not permanent")

    def _try(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except OSError:
            return None


def abort() -> bytearray:
    return build_marker(
        commit=False,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(1),
    )


class FollowerLife(Life):
    """A partition is written, led in a new epoch, truncated, replicated, reset and replicated."""

    def run(self) -> None:
        log = self._open(TopicId(UUID(int=5)))
        self._try(lambda: log.start_epoch(LeaderEpoch(0)))
        self._write(log)
        self._try(self._checkpoint)
        self._try(lambda: log.start_epoch(LeaderEpoch(1)))
        for offset in (10, 5):
            self._cut(partial(log.plan_truncation, Offset(offset)))
            self.acknowledged = [at for at in self.acknowledged if at < offset]
            self._replicate(log, 4)
        self._cut(partial(log.plan_reset, Offset(7)))
        self.acknowledged.clear()
        self._replicate(log, 3)
        self._try(self._checkpoint)
        self._replicate(log, 3)
        self._folder.close()

    def _checkpoint(self) -> None:
        self._folder.plan_checkpoint().run()

    def _cut(self, plan: Callable[[], Truncation | None]) -> None:
        for _ in range(ATTEMPTS):
            truncation = plan()
            if truncation is None:
                return
            # From here on these batches may be missing.
            end_offset = 0 if truncation.cut is None else truncation.end_offset
            self.acknowledged = [at for at in self.acknowledged if at < end_offset]
            if self._try(partial(self._finish, truncation)):
                return

    def _finish(self, truncation: Truncation) -> bool:
        truncation.run()
        return self._folder.partitions[NAME].finish_truncation(truncation, Millis(0))

    def _replicate(self, log: PartitionLog, count: int) -> None:
        for _ in range(count):
            epoch = 2 + log.end_offset // 3
            sent = build_batch(
                [(b"k", bytes(200))], base_offset=log.end_offset, leader_epoch=LeaderEpoch(epoch)
            )
            for _ in range(ATTEMPTS):
                before = log.end_offset
                self._try(partial(replicate, log, sent))
                if log.end_offset > before:
                    self.acknowledged.append(before)
                    break


def check_epochs(log: PartitionLog) -> None:
    """The epochs are those of the batches."""
    offset = log.start_offset
    while offset < log.end_offset:
        for _, header in iterate_headers(log.read(offset, max_bytes=5_000).view):
            assert log.epochs.epoch_at(max(offset, Offset(header.base_offset))) == (
                header.leader_epoch
            )
            offset = header.end_offset


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("life_of", [Life, FollowerLife])
def test_acknowledged_batches_survive_whichever_system_call_was_the_last_or_failed(
    tmp_path: Path, batch: Batch, offsets: Offsets, is_killed: bool, life_of: type[Life]
) -> None:
    for step in range(STEPS_MAX):
        folder = LogDirectory.open(tmp_path / str(step), OpenFiles(4))
        life = life_of(folder, batch)
        fault = Killed() if is_killed else OSError(errno.ENOSPC, "no space")
        with pytest.MonkeyPatch.context() as patched:
            faults = Faults(patched, step, fault)
            try:
                life.run()
            except (Killed, OSError):  # the stop itself may fail
                assert faults.is_over
        folder.release()
        folder.files.close_all()
        again = LogDirectory.open(tmp_path / str(step), OpenFiles(4))
        log = again.open_partition(NAME, SMALL, now=Millis(0))
        assert set(life.acknowledged) <= set(offsets(log)), f"after step {step}"
        check_epochs(log)
        again.close()
        if not faults.is_over:
            return
    raise AssertionError("the life has no end")
