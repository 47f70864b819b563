"""Leader epochs: when they are noted, what they answer, and what becomes of their file."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import EpochStart, LeaderEpochs, PartitionLog
from penstock.model import EpochEnd, LeaderEpoch, Millis, Offset
from tests.support.appending import append_batch, replicate

OpenLog = Callable[..., PartitionLog]
Batch = Callable[..., bytearray]
Fill = Callable[..., None]
UNDEFINED = EpochEnd(LeaderEpoch(-1), Offset(-1))


def lead(log: PartitionLog, batch: bytearray, epoch: int) -> None:
    log.start_epoch(LeaderEpoch(epoch))
    append_batch(log, batch, leader_epoch=LeaderEpoch(epoch))


def end_of(log: PartitionLog, epoch: int) -> EpochEnd:
    return log.epochs.end_offset_for(LeaderEpoch(epoch), log.end_offset)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (5, (5, 30)),  # the latest ends with the log
        (
            4,
            (3, 20),
        ),  # between: the largest known one not above it, which ends where the next starts
        (3, (3, 20)),
        (2, (2, 15)),
        (1, (1, 10)),  # below all: nothing of it is left
        (6, UNDEFINED),  # above all
        (-1, UNDEFINED),
    ],
)
def test_the_end_of_an_epoch_is_what_kafka_answers(
    tmp_path: Path, epoch: int, expected: tuple[int, int]
) -> None:
    starts = [(2, 10), (3, 15), (5, 20)]
    epochs = LeaderEpochs(str(tmp_path), [EpochStart(LeaderEpoch(e), Offset(s)) for e, s in starts])
    assert epochs.end_offset_for(LeaderEpoch(epoch), Offset(30)) == expected


def test_a_log_without_epochs_knows_the_end_of_none(tmp_path: Path) -> None:
    assert LeaderEpochs(str(tmp_path)).end_offset_for(LeaderEpoch(0), Offset(0)) == UNDEFINED


def test_an_epoch_is_noted_before_its_leader_writes(open_log: OpenLog, batch: Batch) -> None:
    log = open_log()
    lead(log, batch(), 3)
    log.start_epoch(LeaderEpoch(7))
    assert log.epochs.entries == [(3, 0), (7, 1)]
    assert end_of(log, 5) == (3, 1), "a follower with epoch 5 must cut back to the end of epoch 3"
    log.abandon()
    assert open_log().epochs.entries == [(3, 0), (7, 1)], "on disk, not only in memory"


def test_the_note_of_a_new_leader_is_synced_off_the_loop(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 3)
    log.flush()
    assert not log.flush_due(Millis(0))
    log.start_epoch(LeaderEpoch(1))
    assert log.flush_due(Millis(0))
    work = log.pending_flush()
    assert log.epochs.path in work.paths
    work.run()
    log.flushed(work.end_offset)
    assert not log.flush_due(Millis(0))


def test_an_epoch_of_an_empty_log_is_written_with_its_first_batch(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    log.start_epoch(LeaderEpoch(2))
    assert end_of(log, 2) == (2, 0)
    assert not os.path.exists(log.epochs.path)
    append_batch(log, batch(), leader_epoch=LeaderEpoch(2))
    assert Path(log.epochs.path).read_text() == "0\n1\n2 0\n"


def test_a_leader_that_wrote_nothing_leaves_no_epoch_in_front_of_replicated_batches(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    lead(log, batch(), 4)
    log.start_epoch(LeaderEpoch(5))  # then another broker leads, with more of epoch 4
    sent = batch()
    sent[:16] = (1).to_bytes(8) + sent[8:12] + (4).to_bytes(4)
    replicate(log, sent, leader_epoch=6)
    assert log.epochs.entries == [(4, 0)]
    assert end_of(log, 4) == (4, 2)


def test_a_truncation_to_the_end_removes_epochs_without_a_batch(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    lead(log, batch(), 4)
    log.start_epoch(LeaderEpoch(5))
    log.truncate_to(Offset(1))
    assert log.epochs.entries == [(4, 0)]


@pytest.mark.parametrize("content", [None, b"", b"0\n0\n", b"0\n1\n", b"0\n2\n5 0\n3 9\n", b"\xff"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_or_damaged_file_is_made_from_all_batch_headers(
    open_log: OpenLog, batch: Batch, content: bytes | None, clean: bool
) -> None:
    log = open_log()
    for number in range(40):
        append_batch(log, batch(), leader_epoch=LeaderEpoch(number // 10))
    assert len(log.segments) > 2
    expected = log.epochs.entries
    log.close()
    path = Path(log.epochs.path)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = open_log(clean=clean, recovery_point=40)
    assert again.epochs.entries == expected == [(0, 0), (1, 10), (2, 20), (3, 30)]
    again.abandon()
    assert LeaderEpochs.load(str(log.folder)) is not None, "and written again"


def test_a_file_that_is_older_than_the_batches_is_corrected_after_a_crash(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    for epoch in (0, 0, 2, 2, 3):
        append_batch(log, batch(), leader_epoch=LeaderEpoch(epoch))
    log.abandon()
    Path(log.epochs.path).write_text("0\n2\n0 0\n1 1\n")  # epoch 1 wrote nothing and is outdated
    assert open_log(clean=False).epochs.entries == [(0, 0), (2, 2), (3, 4)]


def test_a_full_disk_keeps_the_note_in_memory_until_the_next_append(
    open_log: OpenLog, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    lead(log, batch(), 0)

    def no_space(*_: object, **__: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.log.checkpoints.replace_file", no_space)
        log.start_epoch(LeaderEpoch(1))
        with pytest.raises(OSError, match="no space"):
            append_batch(log, batch(), leader_epoch=LeaderEpoch(1))
        assert log.end_offset == 1
    assert end_of(log, 0) == (0, 1)
    append_batch(log, batch(), leader_epoch=LeaderEpoch(1))
    loaded = LeaderEpochs.load(str(log.folder))
    assert loaded is not None
    assert loaded.entries == [(0, 0), (1, 1)]
