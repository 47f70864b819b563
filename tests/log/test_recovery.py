"""After a kill: the log ends with its last whole batch, and the rest is made from the log."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch
from tests.support.appending import append_batch

OpenLog = Callable[..., PartitionLog]
Fill = Callable[..., None]
Batch = Callable[..., bytearray]
Offsets = Callable[[PartitionLog], list[int]]


def test_an_incomplete_batch_at_the_end_is_cut_off(
    open_log: OpenLog, fill: Fill, files: OpenFiles, offsets: Offsets, tmp_path: Path
) -> None:
    log = open_log()
    fill(log, 6)
    log.abandon()
    active = log.active.log
    starts = [log.active.position_of(Offset(offset)) for offset in range(7)]
    content = Path(active.path).read_bytes()
    for size in range(len(content) + 1):
        folder = tmp_path / f"cut-{size}"
        folder.mkdir()
        (folder / Path(active.path).name).write_bytes(content[:size])
        torn = PartitionLog.open(folder, log.settings, files, now=Millis(0), clean=False)
        whole = sum(1 for start in starts[1:] if start <= size)
        assert torn.end_offset == whole
        assert torn.size_bytes == starts[whole]
        assert offsets(torn) == list(range(whole))
        torn.abandon()
        shutil.rmtree(folder)


def test_corrupt_bytes_after_the_recovery_point_end_the_log(
    open_log: OpenLog, fill: Fill, offsets: Offsets
) -> None:
    log = open_log()
    fill(log, 60)
    log.close(sync=False)
    corrupt = log.segments[2]
    with open(corrupt.log.path, "r+b") as file:
        file.seek(corrupt.position_of(Offset(corrupt.base_offset + 3)) + 70)
        file.write(b"bad")
    again = open_log(clean=False)
    assert again.end_offset == corrupt.base_offset + 3
    assert offsets(again) == list(range(again.end_offset))
    assert not [s for s in again.segments if s.base_offset > corrupt.base_offset]


def test_segments_before_the_recovery_point_are_not_scanned(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 60)
    log.close(sync=False)
    with open(log.segments[0].log.path, "r+b") as file:
        file.seek(100)
        file.write(b"bad")
    again = open_log(clean=False, recovery_point=log.segments[1].base_offset)
    assert again.end_offset == 60


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_lost_indexes_are_rebuilt_as_they_were(
    open_log: OpenLog, fill: Fill, clean: bool, suffix: str
) -> None:
    log = open_log()
    fill(log, 60)
    log.close(sync=False)
    paths = sorted(log.folder.glob(f"*{suffix}"))
    contents = [path.read_bytes() for path in paths]
    assert any(contents)
    for path in paths:
        path.unlink()
    open_log(clean=clean).close(sync=False)
    assert [path.read_bytes() for path in paths] == contents


def test_an_index_with_wrong_positions_is_rebuilt(
    open_log: OpenLog, fill: Fill, offsets: Offsets
) -> None:
    log = open_log()
    fill(log, 30)
    log.close(sync=False)
    path = Path(log.active.offset_index.file.path)
    assert len(log.segments) > 1
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\7")
    again = open_log()
    assert offsets(again) == list(range(30))
    again.close(sync=False)
    assert path.read_bytes() == content


def test_an_index_without_its_log_is_removed(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 3)
    log.close(sync=False)
    stray = log.folder / f"{999:020d}.index"
    stray.write_bytes(bytes(8))
    open_log()
    assert not stray.exists()


def test_open_transactions_and_aborts_are_the_same_after_a_kill(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    for number in range(12):
        for producer in (1, 2):
            append_batch(
                log,
                batch(producer=producer, epoch=0, sequence=number, transactional=True),
                leader_epoch=LeaderEpoch(0),
                now=Millis(0),
            )
        if number % 4 == 3:
            marker = build_marker(
                commit=False,
                producer_id=ProducerId(1),
                producer_epoch=ProducerEpoch(0),
                coordinator_epoch=2,
                timestamp=Millis(number),
            )
            append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")
    log.set_high_watermark(log.end_offset)
    aborted = log.aborted_transactions(Offset(0), log.end_offset)
    assert len(aborted) == 3
    log.abandon()
    for path in log.folder.glob("*.txnindex"):
        path.unlink()
    again = open_log(clean=False)
    assert again.producers.producers == log.producers.producers
    assert again.last_stable_offset == log.last_stable_offset == 1
    assert again.aborted_transactions(Offset(0), again.end_offset) == aborted


def test_aborts_of_a_small_log_are_listed_after_a_clean_stop(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    produced = batch(producer=1, epoch=0, sequence=0, transactional=True)
    append_batch(log, produced, leader_epoch=LeaderEpoch(0), now=Millis(0))
    marker = build_marker(
        commit=False,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=2,
        timestamp=Millis(5),
    )
    append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")
    aborted = log.aborted_transactions(Offset(0), Offset(2))
    assert len(aborted) == 1
    log.close(sync=False)
    again = open_log()
    assert again.aborted_transactions(Offset(0), Offset(2)) == aborted
    assert again.producers.producers == log.producers.producers


def test_a_start_removes_deleted_and_unfinished_files(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 3)
    log.close(sync=False)
    for name in ("7.log.deleted", "7.index.cleaned", "x.log.cleaned", "x.tmp", "7.log.cut"):
        (log.folder / name).write_bytes(b"left over")
    (log.folder / "my.log").write_bytes(b"of another program")
    open_log()
    assert not [p for p in log.folder.iterdir() if p.suffix in (".deleted", ".cleaned", ".tmp")]
    assert (log.folder / "my.log").exists()


def test_a_clean_start_reads_almost_nothing(
    open_log: OpenLog, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    fill(log, 200)
    assert len(log.segments) > 10
    log.close(sync=False)
    real, read_bytes = os.pread, 0

    def pread(descriptor: int, size: int, position: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size
        return real(descriptor, size, position)

    monkeypatch.setattr(os, "pread", pread)
    again = open_log()
    assert again.end_offset == 200
    assert read_bytes < 2_500, "the end of the active segment, not its whole, not the others"


def test_a_control_batch_that_compaction_emptied_is_skipped(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 3)
    log.abandon()
    emptied = build_batch(
        [],
        base_offset=Offset(3),
        last_offset=Offset(3),
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        transactional=True,
        control=True,
    )
    with open(log.active.log.path, "ab") as file:
        file.write(emptied)
    again = open_log(clean=False)
    assert again.end_offset == 4
    assert again.last_stable_offset == again.high_watermark


def test_a_closed_segment_emptied_by_compaction_is_read_after_a_kill_and_a_clean_stop(
    open_log: OpenLog, fill: Fill
) -> None:
    log = open_log()
    fill(log, 60)
    emptied = log.segments[1]
    log.close(sync=False)
    for path in emptied.paths():  # as the cleaner leaves a segment whose keys were all rewritten
        Path(path).write_bytes(b"")
    killed = open_log(clean=False)
    killed.close(sync=False)
    again = open_log()
    assert again.segments[1].max_timestamp == -1
    assert again.segments[1].offset_index.last_entry() is None
    match = again.offset_by_timestamp(Millis(1_000 + again.segments[2].base_offset))
    assert match is not None
    assert match.offset == again.segments[2].base_offset
