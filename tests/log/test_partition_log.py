"""Appending, reading, rolling, looking up times, and removing batches, of one partition."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.errors import ErrorCode, Refused
from penstock.log import AbortedEntry, PartitionLog, TimestampMatch
from penstock.log.segment_policy import RELATIVE_OFFSET_MAX
from penstock.log.settings import RetentionSettings
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import iterate_headers, read_header
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import Record, build_batch
from tests.support.appending import append_batch, replicate
from tests.support.settings import default_log_settings, default_settings

OpenLog = Callable[..., PartitionLog]
Fill = Callable[..., None]
Batch = Callable[..., bytearray]
Offsets = Callable[[PartitionLog], list[int]]

ONE_SEGMENT = default_log_settings(index_interval_bytes=200, file_delete_delay_ms=Millis(100))


def append(log: PartitionLog, batch: bytearray, *, epoch: int = 0) -> int:
    appended = append_batch(log, batch, leader_epoch=LeaderEpoch(epoch), now=Millis(0))
    return appended.base_offset


def test_batches_get_the_next_offsets_and_the_leader_epoch(open_log: OpenLog, batch: Batch) -> None:
    log = open_log()
    assert append(log, batch(records=3), epoch=4) == 0
    assert append(log, batch(), epoch=4) == 3
    headers = [h for _, h in iterate_headers(log.read(Offset(0), max_bytes=10_000).view)]
    assert [(h.base_offset, h.leader_epoch) for h in headers] == [(0, 4), (3, 4)]
    assert log.end_offset == 4
    assert log.epochs.entries == [(4, 0)]


def test_a_duplicate_returns_the_first_offset(open_log: OpenLog, batch: Batch) -> None:
    log = open_log()
    for sequence in (0, 2):
        append(log, batch(records=2, producer=1, epoch=0, sequence=sequence))
    again = append_batch(
        log,
        batch(records=2, producer=1, epoch=0, sequence=0),
        leader_epoch=LeaderEpoch(0),
        now=Millis(0),
    )
    assert again == (0, 2, True, 0)
    assert log.end_offset == 4


def test_the_first_batch_is_complete_and_the_rest_within_the_limit(
    open_log: OpenLog, fill: Fill
) -> None:
    log = open_log(settings=ONE_SEGMENT)
    fill(log, 10)
    size = log.size_bytes // 10
    assert len(log.read(Offset(0), max_bytes=1).view) == size
    assert len(log.read(Offset(0), max_bytes=1, whole_first=False).view) == 0
    assert len(log.read(Offset(0), max_bytes=size * 2 + 1).view) == size * 2
    assert len(log.read(Offset(8), max_bytes=size * 5).view) == size * 2


def test_a_read_stops_at_the_given_end(open_log: OpenLog, batch: Batch) -> None:
    log = open_log(settings=ONE_SEGMENT)
    for _ in range(4):
        append(log, batch(records=5))
    view = log.read(Offset(0), max_bytes=10_000, end_offset=Offset(12)).view
    assert [h.end_offset for _, h in iterate_headers(view)] == [5, 10], "no batch across the end"
    assert len(log.read(Offset(20), max_bytes=100).view) == 0
    assert len(log.read(Offset(12), max_bytes=100, end_offset=Offset(12)).view) == 0


def test_a_read_may_start_within_a_batch(open_log: OpenLog, batch: Batch) -> None:
    log = open_log(settings=ONE_SEGMENT)
    append(log, batch(records=5))
    assert read_header(log.read(Offset(3), max_bytes=1).view).base_offset == 0


@pytest.mark.parametrize("offset", [-1, 2, 11])
def test_an_offset_outside_the_log_is_refused(open_log: OpenLog, fill: Fill, offset: int) -> None:
    log = open_log()
    fill(log, 10)
    log.advance_start_offset(Offset(3), Millis(0))
    with pytest.raises(Refused) as refused:
        log.read(Offset(offset), max_bytes=100)
    assert refused.value.code is ErrorCode.offset_out_of_range


def test_segments_roll_by_size(open_log: OpenLog, fill: Fill, offsets: Offsets) -> None:
    log = open_log()
    fill(log, 40)
    assert len(log.segments) > 2
    assert all(segment.size_bytes <= 2_000 for segment in log.segments)
    assert offsets(log) == list(range(40))


def test_segments_roll_by_timestamps(open_log: OpenLog, batch: Batch) -> None:
    log = open_log(settings=replace(ONE_SEGMENT, segment_ms=Millis(100)))
    for timestamp in (1_000, 1_100, 1_101, 1_150, 1_202):
        append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_jitter_rolls_earlier_within_its_bound(open_log: OpenLog, batch: Batch) -> None:
    settings = replace(ONE_SEGMENT, segment_ms=Millis(100), segment_jitter_ms=Millis(60))
    log = open_log(settings=settings)
    for timestamp in range(1_000, 1_200):
        append(log, batch(timestamp=timestamp, size=1))
    spans = [s.max_timestamp - s.first_timestamp for s in log.segments[:-1]]
    assert spans
    assert all(40 <= span <= 100 for span in spans)


def test_segments_roll_when_an_index_is_full(open_log: OpenLog, fill: Fill) -> None:
    log = open_log(settings=replace(ONE_SEGMENT, segment_index_bytes=36))
    fill(log, 60)
    assert len(log.segments) > 3
    assert all(segment.offset_index.count <= 4 for segment in log.segments)


def test_segments_roll_before_relative_offsets_overflow(open_log: OpenLog, batch: Batch) -> None:
    log = open_log(settings=ONE_SEGMENT)
    append(log, batch())
    far = Offset(RELATIVE_OFFSET_MAX + 1)
    follower_bytes = build_batch([(b"k", b"v")], base_offset=far, leader_epoch=LeaderEpoch(1))
    replicate(log, follower_bytes)
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert log.end_offset == far + 1
    assert read_header(log.read(Offset(1), max_bytes=1).view).base_offset == far


def test_a_follower_has_the_leaders_offsets_epochs_and_producers(
    open_log: OpenLog, batch: Batch, offsets: Offsets, tmp_path_factory: pytest.TempPathFactory
) -> None:
    leader = open_log()
    for number in range(30):
        append(leader, batch(producer=4, epoch=0, sequence=number), epoch=number // 10)
    follower = PartitionLog.open(
        tmp_path_factory.mktemp("follower") / "orders-3",
        leader.settings,
        leader.active.log.files,
        now=Millis(0),
        clean=True,
    )
    while follower.end_offset < leader.end_offset:
        replicate(follower, leader.read(follower.end_offset, max_bytes=900).view)
    assert offsets(follower) == offsets(leader)
    assert follower.epochs.entries == leader.epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert follower.producers.producers == leader.producers.producers


def test_a_record_in_a_compressed_batch_is_found_by_its_timestamp(open_log: OpenLog) -> None:
    log = open_log()
    for start in (100, 200, 300):
        records = [Record(timestamp=start + step, value=b"v") for step in (0, 30, 20)]
        append(log, build_batch(records, codec=4))
    end = log.end_offset
    assert log.offset_by_timestamp(Millis(210), end_offset=end) == TimestampMatch(
        Offset(4), Millis(230), LeaderEpoch(0)
    )
    assert log.offset_by_timestamp(Millis(331), end_offset=end) is None
    assert log.offset_by_timestamp(Millis(300), end_offset=Offset(6)) is None
    assert log.offset_of_max_timestamp() == TimestampMatch(Offset(7), Millis(330), LeaderEpoch(0))


def test_an_empty_log_has_no_timestamps(open_log: OpenLog) -> None:
    log = open_log()
    assert log.offset_of_max_timestamp() is None
    assert log.offset_by_timestamp(Millis(0), end_offset=Offset(0)) is None


def test_the_last_stable_offset_waits_for_the_transaction(open_log: OpenLog, batch: Batch) -> None:
    log = open_log()
    append(log, batch())
    append(log, batch(producer=1, epoch=0, sequence=0, transactional=True))
    append(log, batch())
    log.set_high_watermark(log.end_offset)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    marker = build_marker(
        commit=False,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(9),
    )
    append_batch(log, marker, leader_epoch=LeaderEpoch(0), now=Millis(0), origin="marker")
    assert log.last_stable_offset == 1
    log.set_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset == 4
    aborted = AbortedEntry(ProducerId(1), Offset(1), Offset(3), Offset(4))
    assert log.aborted_transactions(Offset(0), Offset(2)) == [aborted]
    assert log.aborted_transactions(Offset(0), Offset(1)) == []


def test_delete_records_moves_the_start_and_removes_whole_segments(
    open_log: OpenLog, fill: Fill, offsets: Offsets
) -> None:
    log = open_log()
    fill(log, 40)
    second = log.segments[1].base_offset
    assert log.advance_start_offset(Offset(second + 1), Millis(0)) == 1
    assert log.start_offset == second + 1
    assert offsets(log) == list(range(second + 1, 40))
    with pytest.raises(Refused):
        log.advance_start_offset(Offset(41), Millis(0))


def test_retention_by_time_removes_old_segments_and_rolls_an_old_active_one(
    open_log: OpenLog, fill: Fill
) -> None:
    log = open_log()
    fill(log, 40, timestamp=1_000)
    keeps = default_settings(RetentionSettings, retention_ms=Millis(500))
    assert log.delete_expired(keeps, Millis(1_400)) == 0
    newest = log.segments[0].max_timestamp
    assert log.delete_expired(keeps, Millis(newest + 501)) == 1
    view = log.read(log.start_offset, max_bytes=10_000).view
    log.delete_expired(keeps, Millis(9_000))
    assert (log.start_offset, log.end_offset) == (40, 40)
    assert len(log.segments) == 1
    assert log.size_bytes == 0
    assert [header.base_offset for _, header in iterate_headers(view)], (
        "the view of a reader stays valid"
    )
    log.sweep(Millis(9_000))
    assert list(log.folder.glob("*.deleted"))
    log.sweep(Millis(9_100))
    assert not list(log.folder.glob("*.deleted"))


def test_retention_by_size_keeps_at_least_that_much(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 60)
    log.delete_expired(
        default_settings(RetentionSettings, retention_ms=None, retention_bytes=4_000), Millis(0)
    )
    assert 4_000 <= log.size_bytes < 4_000 + 2_000


def test_retention_waits_for_the_high_watermark(open_log: OpenLog, fill: Fill) -> None:
    log = open_log()
    fill(log, 40)
    log.high_watermark = log.segments[1].base_offset
    assert (
        log.delete_expired(
            default_settings(RetentionSettings, retention_ms=Millis(1)), Millis(99_999)
        )
        == 1
    )
    assert (
        log.delete_expired(default_settings(RetentionSettings, delete=False), Millis(99_999)) == 0
    )


def test_truncation_removes_batches_producers_and_epochs(
    open_log: OpenLog, batch: Batch, offsets: Offsets
) -> None:
    log = open_log()
    for number in range(40):
        append(log, batch(producer=1, epoch=0, sequence=number), epoch=number // 15)
    view = log.read(Offset(0), max_bytes=10_000).view
    log.truncate_to(Offset(17))
    assert offsets(log) == list(range(17))
    assert log.epochs.entries == [(0, 0), (1, 15)]
    assert log.producers.producers[ProducerId(1)].last_sequence == 16
    append(log, batch(producer=1, epoch=0, sequence=17), epoch=5)
    assert offsets(log) == list(range(18))
    assert read_header(view).base_offset == 0


def test_a_truncation_within_the_first_batch_removes_it(open_log: OpenLog, batch: Batch) -> None:
    log = open_log()
    append(log, batch(records=5))
    log.set_high_watermark(Offset(5))
    log.advance_start_offset(Offset(2), Millis(0))
    log.truncate_to(Offset(4))
    assert (log.start_offset, log.high_watermark, log.end_offset) == (2, 2, 2)
    assert append(log, batch()) == 2


def test_a_log_can_be_reset_to_any_offset(open_log: OpenLog, fill: Fill, batch: Batch) -> None:
    log = open_log()
    fill(log, 40)
    log.reset_to(Offset(500))
    assert (log.start_offset, log.high_watermark, log.end_offset) == (500, 500, 500)
    assert append(log, batch()) == 500
    log.close(sync=False)
    assert open_log().start_offset == 500


def test_flush_moves_the_recovery_point(open_log: OpenLog, fill: Fill) -> None:
    log = open_log(settings=replace(ONE_SEGMENT, flush_messages=5, flush_ms=Millis(1_000)))
    log.last_flush_at = Millis(0)
    fill(log, 4)
    assert not log.flush_due(Millis(999))
    assert log.flush_due(Millis(1_000))
    fill(log, 1)
    assert log.flush_due(Millis(0))
    work = log.pending_flush()
    fill(log, 1)
    work.run()
    log.flushed(work.end_offset, Millis(50))
    assert (log.recovery_point, log.unflushed_messages, log.last_flush_at) == (5, 1, 50)
    log.roll(Millis(0))
    assert log.flush_due(Millis(50)), "a closed segment is flushed soon"
    assert log.flush() == 6
