"""A kill, or a disk that refuses, at every single system call of a partition's life."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.log import LogFolder, OpenFiles, PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.model import Millis, ProducerEpoch, ProducerId, TopicId, TopicPartition
from penstock.protocol.control_records import build_marker
from tests.support.appending import append_batch
from tests.support.settings import default_log_settings, default_settings

CALLS = ("open", "pwrite", "write", "rename", "unlink", "ftruncate", "fsync", "mkdir")
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
    """Stands before the system calls, and ends or refuses the one whose turn it is."""

    def __init__(self, patched: pytest.MonkeyPatch, at: int, fault: BaseException) -> None:
        self.is_over = False
        self._left = at
        self._fault = fault
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
    """A partition is made, written, trimmed, deleted, made again and written."""

    def __init__(self, folder: LogFolder, batch: Batch) -> None:
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
        self._try(self._folder.checkpoint)

    def _open(self, topic_id: TopicId) -> PartitionLog:
        for _ in range(ATTEMPTS):
            opened = self._try(
                lambda: self._folder.open_partition(NAME, SMALL, topic_id=topic_id, now=Millis(0))
            )
            if isinstance(opened, PartitionLog):
                return opened
        raise AssertionError("one failure is not for ever")

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


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_acknowledged_is_there_whichever_system_call_was_the_last_or_failed(
    tmp_path: Path, batch: Batch, offsets: Offsets, is_killed: bool
) -> None:
    for step in range(STEPS_MAX):
        folder = LogFolder.open(tmp_path / str(step), OpenFiles(4))
        life = Life(folder, batch)
        fault = Killed() if is_killed else OSError(errno.ENOSPC, "no room")
        with pytest.MonkeyPatch.context() as patched:
            faults = Faults(patched, step, fault)
            try:
                life.run()
            except (Killed, OSError):  # the stop itself may fail
                assert faults.is_over
        folder.release()
        folder.files.close_all()
        again = LogFolder.open(tmp_path / str(step), OpenFiles(4))
        log = again.open_partition(NAME, SMALL, now=Millis(0))
        assert set(life.acknowledged) <= set(offsets(log)), f"after step {step}"
        again.close()
        if not faults.is_over:
            return
    raise AssertionError("the life has no end")
