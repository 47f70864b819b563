"""Truncation and reset of a follower's log: planned, prepared in a thread, finished."""

import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.log import LogDirectory, OpenFiles, PartitionLog
from penstock.log.settings import RetentionSettings
from penstock.log.truncation import Truncation
from penstock.model import LeaderEpoch, Millis, Offset, ProducerId, TopicId, TopicPartition
from penstock.protocol.batch import iterate_headers
from tests.support.appending import append_batch, replicate
from tests.support.settings import default_log_settings, default_settings

OpenLog = Callable[..., PartitionLog]
Batch = Callable[..., bytearray]
Fill = Callable[..., None]
Offsets = Callable[[PartitionLog], list[int]]

LARGE = default_log_settings(index_interval_bytes=4096, file_delete_delay_ms=Millis(100))
ORDERS = TopicPartition("orders", 0)


def planned(log: PartitionLog, offset: int) -> Truncation:
    truncation = log.plan_truncation(Offset(offset))
    assert truncation is not None
    return truncation


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def sequenced(log: PartitionLog, batch: Batch, count: int, *, size: int = 100) -> None:
    for _ in range(count):
        sequence = log.end_offset
        content = batch(producer=1, epoch=0, sequence=sequence, size=size, timestamp=sequence)
        append_batch(log, content, leader_epoch=LeaderEpoch(sequence // 10))
    log.set_high_watermark(log.end_offset)


def test_a_view_keeps_its_bytes_when_the_file_behind_it_is_cut(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log(settings=LARGE)
    sequenced(log, batch, 40, size=10_000)
    view = log.read(Offset(0), max_bytes=1 << 20).view
    assert log.active.log.live_views > 0, "mapped, not copied"
    before = bytes(view)
    truncation = planned(log, 17)
    in_thread(truncation.run)
    assert log.finish_truncation(truncation)
    assert offsets(log) == list(range(17))
    sequenced(log, batch, 23, size=9_000)
    assert bytes(view) == before
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20), (3, 30)]
    log.close()
    assert offsets(open_log(settings=LARGE)) == list(range(40))


def test_a_file_without_readers_is_cut_in_place(open_log: OpenLog, batch: Batch) -> None:
    log = open_log(settings=LARGE)
    sequenced(log, batch, 40)
    inode = Path(log.active.log.path).stat().st_ino
    log.truncate_to(Offset(17))
    assert Path(log.active.log.path).stat().st_ino == inode


def test_a_reader_that_comes_after_the_plan_makes_it_be_planned_again(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log(settings=LARGE)
    sequenced(log, batch, 40, size=10_000)
    truncation = planned(log, 17)
    truncation.run()
    view = log.read(Offset(0), max_bytes=1 << 20).view
    assert not log.finish_truncation(truncation)
    again = planned(log, 17)
    again.run()
    assert log.finish_truncation(again)
    assert offsets(log) == list(range(17))
    assert len(view) > 0


def test_a_plan_for_a_segment_that_retention_removed_is_void(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 60)
    truncation = planned(log, log.segments[1].base_offset + 1)
    truncation.run()
    log.set_high_watermark(log.end_offset)
    expired = default_settings(RetentionSettings, retention_ms=Millis(1))
    log.delete_expired(expired, Millis(10_000))
    assert not log.finish_truncation(truncation)
    log.truncate_to(Offset(5))
    assert (log.start_offset, log.end_offset) == (5, 5)


def test_until_it_is_finished_the_log_reads_as_before_and_takes_no_batch(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log()
    sequenced(log, batch, 40)
    log.flush()
    truncation = planned(log, 17)
    assert (log.recovery_point, log.high_watermark, log.end_offset) == (17, 17, 40)
    assert offsets(log) == list(range(40))
    with pytest.raises(OSError, match="truncation"):
        append_batch(log, batch())
    work = log.pending_flush()
    work.run()
    log.flushed(work.end_offset)
    assert log.recovery_point == 17, "a checkpoint must not claim what is about to go"
    truncation.run()
    assert log.finish_truncation(truncation)
    assert append_batch(log, batch(producer=1, epoch=0, sequence=17)).base_offset == 17


def test_a_log_that_leads_gives_up_its_truncation_and_keeps_its_records(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    """The leader that required it leads no more; it may have failed on a full disk before."""
    log = open_log()
    sequenced(log, batch, 40)
    truncation = planned(log, 17)
    truncation.run()
    log.give_up_truncation()
    assert not log.is_truncating
    assert append_batch(log, batch(producer=1, epoch=0, sequence=40)).base_offset == 40
    assert not log.finish_truncation(truncation), "it was planned for another log"
    assert offsets(log) == list(range(41))


def test_a_follower_completes_a_truncation_that_its_next_leader_does_not_require(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log()
    sequenced(log, batch, 40)
    planned(log, 17)
    assert log.is_truncating
    log.truncate_to(log.end_offset)
    assert append_batch(log, batch(producer=1, epoch=0, sequence=40)).base_offset == 40
    assert offsets(log) == list(range(41))


def test_a_flush_that_began_before_the_truncation_says_nothing_of_later_batches(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    sequenced(log, batch, 40)
    work = log.pending_flush()
    log.truncate_to(Offset(20))
    sequenced(log, batch, 15)
    work.run()
    log.flushed(work.end_offset)
    assert log.recovery_point == 20
    assert log.flush() == 35


def test_producers_after_a_truncation_are_those_of_the_batches_that_are_left(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    sequenced(log, batch, 60)
    for end in (59, 41, 40, 12, 1):
        log.truncate_to(Offset(end))
        assert log.producers.producers[ProducerId(1)].last_sequence == end - 1
        assert log.active.max_timestamp == end - 1
    log.truncate_to(Offset(0))
    assert len(log.producers) == 0
    assert log.epochs.entries == []


def test_segments_after_the_cut_are_unlinked_after_their_delay(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    sequenced(log, batch, 60)
    log.truncate_to(Offset(5), Millis(1_000))
    sequenced(log, batch, 55)
    log.truncate_to(Offset(5), Millis(1_000))
    assert list(log.folder.glob("*.deleted"))
    log.sweep(Millis(1_100))
    assert not list(log.folder.glob("*.deleted"))


def test_a_log_that_cannot_be_read_at_the_offset_is_refused(open_log: OpenLog, fill: Fill) -> None:
    log = open_log(settings=LARGE)
    fill(log, 100)
    with open(log.active.log.path, "r+b") as file:
        file.write(bytes(200))
    with pytest.raises(Refused) as refused:
        log.plan_truncation(Offset(10))
    assert refused.value.code is ErrorCode.corrupt_message
    assert log.recovery_point <= log.end_offset == 100


def test_a_reset_leaves_an_empty_log_that_starts_at_the_offset(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log()
    sequenced(log, batch, 60)
    view = log.read(Offset(0), max_bytes=900).view
    log.reset_to(Offset(500))
    assert (log.start_offset, log.high_watermark, log.end_offset) == (500, 500, 500)
    assert (log.recovery_point, log.epochs.entries, len(log.producers)) == (500, [], 0)
    append_batch(log, batch(), leader_epoch=LeaderEpoch(9))
    assert next(header.base_offset for _, header in iterate_headers(view)) == 0
    log.abandon()
    again = open_log(clean=False)
    assert offsets(again) == [500]
    assert again.epochs.entries == [(9, 500)]
    assert len(again.producers) == 0


def opened(root: Path) -> tuple[LogDirectory, PartitionLog]:
    folder = LogDirectory.open(root / "data", OpenFiles(8))
    log = folder.open_partition(
        ORDERS,
        default_log_settings(segment_bytes=2_000),
        topic_id=TopicId(UUID(int=5)),
        now=Millis(0),
    )
    folder.started()
    return folder, log


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_kill_after_the_truncation_finds_checkpoints_that_fit(
    tmp_path: Path, fill: Fill, offsets: Offsets, is_reset: bool
) -> None:
    folder, log = opened(tmp_path)
    fill(log, 60)
    log.flush()
    folder.plan_checkpoint().run()
    truncation = log.plan_reset(Offset(7)) if is_reset else planned(log, 20)
    in_thread(truncation.run)
    assert log.finish_truncation(truncation)
    folder.release()  # killed: nothing is closed
    folder, again = opened(tmp_path)
    assert offsets(again) == ([] if is_reset else list(range(20)))
    assert again.end_offset == (7 if is_reset else 20)
    folder.close()


def test_there_is_nothing_to_plan_at_the_end(tmp_path: Path, fill: Fill) -> None:
    folder, log = opened(tmp_path)
    fill(log, 3)
    assert log.plan_truncation(Offset(3)) is None
    assert log.plan_truncation(Offset(9)) is None
    folder.close()


def test_a_batch_appended_after_a_truncation_replaces_the_one_that_was_there(
    open_log: OpenLog, batch: Batch
) -> None:
    log = open_log()
    sequenced(log, batch, 30)
    log.truncate_to(Offset(12))
    other = batch(size=77)
    other[:16] = (12).to_bytes(8) + other[8:12] + (50).to_bytes(4)
    replicate(log, other)
    assert bytes(log.read(Offset(12), max_bytes=10_000).view) == bytes(other)
    assert log.epochs.entries == [(0, 0), (1, 10), (50, 12)]
