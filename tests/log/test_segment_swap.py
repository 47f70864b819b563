"""Compacted segments replace old ones; a kill at any step leaves a valid log."""

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.log import OpenFiles, PartitionLog, Replacement
from penstock.log.scan import scan_batches
from penstock.log.segment_swap import CLEANED, segment_paths
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.protocol.batch import iterate_headers
from tests.support.appending import append_batch
from tests.support.settings import default_settings

Fill = Callable[..., None]
Offsets = Callable[[PartitionLog], list[int]]


class Killed(BaseException):
    """The process ends here."""


def clean_every_second(log: PartitionLog, bases: list[Offset], into: Offset) -> list[int]:
    """Write what compaction would: the segments joined, without every second batch."""
    kept: list[int] = []
    content = b""
    for segment in log.segments:
        if segment.base_offset in bases:
            for scanned in scan_batches(segment.log):
                if scanned.header.base_offset % 2 == 0:
                    end = scanned.at + scanned.header.size_bytes
                    content += bytes(scanned.view[scanned.at : end])
                    kept.append(scanned.header.base_offset)
    _, index, time_index, _, file = segment_paths(str(log.folder), into)
    Path(file + CLEANED).write_bytes(content)
    Path(index + CLEANED).write_bytes(b"")
    Path(time_index + CLEANED).write_bytes(b"")
    return kept


@pytest.fixture
def compacted(open_log: Callable[..., PartitionLog], fill: Fill) -> tuple[PartitionLog, list[int]]:
    """A log whose first three segments were compacted into one, and the offsets that remain."""
    log = open_log()
    fill(log, 60)
    assert len(log.segments) >= 5
    bases = [segment.base_offset for segment in log.segments[:3]]
    kept = clean_every_second(log, bases, Offset(0))
    end = log.segments[3].base_offset
    return log, kept + list(range(end, log.end_offset))


def replacement(log: PartitionLog) -> Replacement:
    return Replacement(tuple(s.base_offset for s in log.segments[:3]), (Offset(0),))


def test_cleaned_segments_replace_those_they_were_made_from(
    compacted: tuple[PartitionLog, list[int]], offsets: Offsets
) -> None:
    log, left = compacted
    before = log.read(Offset(0), max_bytes=10_000).view
    old = [header.base_offset for _, header in iterate_headers(before)]
    log.swap([replacement(log)], Millis(0))
    assert offsets(log) == left
    assert [h.base_offset for _, h in iterate_headers(before)] == old, "a reader keeps its view"
    assert log.read(Offset(1), max_bytes=1).view, "a gap leads to the next batch"
    assert any(path.name.endswith(".deleted") for path in log.folder.iterdir())
    log.sweep(Millis(100))
    assert not any(path.name.endswith(".deleted") for path in log.folder.iterdir())


def test_the_log_can_be_appended_to_after_a_swap_and_a_start(
    compacted: tuple[PartitionLog, list[int]],
    open_log: Callable[..., PartitionLog],
    offsets: Offsets,
    fill: Fill,
) -> None:
    log, left = compacted
    log.swap([replacement(log)], Millis(0))
    end = log.end_offset
    fill(log, 5)
    log.close(sync=False)
    assert offsets(open_log()) == [*left, *range(end, end + 5)]


def test_a_kill_at_any_step_of_a_swap_leaves_the_old_or_the_new(
    compacted: tuple[PartitionLog, list[int]],
    files: OpenFiles,
    offsets: Offsets,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, left = compacted
    log.close(sync=False)
    whole = list(range(log.end_offset))
    outcomes = set()
    for step in range(100):
        folder = tmp_path / f"at-{step}"
        shutil.copytree(log.folder, folder)
        copy = PartitionLog.open(
            folder, log.settings, files, now=Millis(0), clean=True, start_offset=Offset(0)
        )
        # Opening the log removes unfinished files, so these are written after it.
        clean_every_second(copy, list(replacement(copy).replaced), Offset(0))
        finished = kill_at(step, partial(copy.swap, [replacement(copy)], Millis(0)), monkeypatch)
        copy.abandon()
        again = PartitionLog.open(
            folder, log.settings, files, now=Millis(0), clean=False, recovery_point=log.end_offset
        )
        remaining = offsets(again)
        assert remaining in (whole, left), f"after step {step}"
        assert not [p for p in folder.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")]
        append_batch(
            again,
            bytearray(log.read(Offset(0), max_bytes=1).view),
            leader_epoch=LeaderEpoch(1),
            now=Millis(0),
        )
        again.abandon()
        outcomes.add(len(remaining))
        if finished:
            break
    assert finished
    assert outcomes == {len(whole), len(left)}


def test_a_swap_that_failed_is_completed_whatever_was_started_after_it(
    compacted: tuple[PartitionLog, list[int]],
    open_log: Callable[..., PartitionLog],
    offsets: Offsets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, left = compacted
    _, index, _, _, file = segment_paths(str(log.folder), Offset(0))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.log.segment_list.install", refuse)
        with pytest.raises(OSError, match="no"):
            log.swap([replacement(log)], Millis(0))
    for path in (index, file):  # the next round of compaction, killed
        Path(path + CLEANED).write_bytes(b"half of it")
    log.abandon()
    assert offsets(open_log(clean=False, recovery_point=log.end_offset)) == left


def test_segments_whose_removal_failed_are_removed_the_next_time(
    open_log: Callable[..., PartitionLog],
    fill: Fill,
    offsets: Offsets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = open_log()
    fill(log, 60)
    start = log.segments[2].base_offset
    second, real = f"{log.segments[1].base_offset:020d}.log", os.rename

    def rename(source: str, target: str) -> None:
        if source.endswith(second):
            raise OSError(errno.EIO, "no")
        real(source, target)

    retention = default_settings(RetentionSettings, retention_ms=Millis(1))
    now = Millis(log.segments[1].max_timestamp + 2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="no"):
            log.delete_expired(retention, now)
    assert log.delete_expired(retention, now) == 2
    assert offsets(log) == list(range(start, 60))


def refuse(*_: object) -> None:
    raise OSError(errno.EIO, "no")


def kill_at(step: int, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run up to a number of renames; True when there were no more."""
    done = 0
    real = os.rename

    def rename(source: str, target: str) -> None:
        nonlocal done
        if done == step:
            raise Killed
        real(source, target)
        done += 1

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        try:
            work()
        except Killed:
            return False
    return True
