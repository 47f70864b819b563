"""The follower's append: what a leader may send, and what it may not."""

import os
from collections.abc import Callable

import pytest

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log import OpenFiles, PartitionLog
from penstock.log.append_plan import read_replicated
from penstock.log.segment_policy import RELATIVE_OFFSET_MAX
from penstock.model import LeaderEpoch, Millis, Offset, ProducerEpoch, ProducerId
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, read_header, seal, write_header
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch
from tests.support.appending import replicate
from tests.support.settings import default_log_settings

OpenLog = Callable[..., PartitionLog]
Offsets = Callable[[PartitionLog], list[int]]

OFFSET_LAST = (1 << 63) - 1


def sent(base_offset: int, *, records: int = 1, epoch: int = 0, size: int = 10) -> bytearray:
    """A batch as it is in a leader's log."""
    return build_batch(
        [(b"k", bytes(size))] * records,
        base_offset=Offset(base_offset),
        leader_epoch=LeaderEpoch(epoch),
        timestamp=Millis(1_000 + max(0, min(base_offset, 1_000))),
    )


def test_batches_are_appended_as_they_are_gaps_included(
    open_log: OpenLog, offsets: Offsets
) -> None:
    log = open_log()
    batches = sent(3, records=2, epoch=1) + sent(7, epoch=2) + sent(9, epoch=4)
    replicate(log, batches, leader_epoch=4)
    assert bytes(log.read(Offset(0), max_bytes=10_000).view) == bytes(batches)
    assert offsets(log) == [3, 7, 9]
    assert (log.start_offset, log.end_offset) == (0, 10)
    assert log.epochs.entries == [(1, 3), (2, 7), (4, 9)]


def test_many_batches_roll_as_they_would_one_by_one(open_log: OpenLog, offsets: Offsets) -> None:
    log = open_log()
    replicate(log, b"".join(sent(offset, size=100) for offset in range(60)))
    assert offsets(log) == list(range(60))
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= 2_000 for segment in log.segments)


def test_batches_far_apart_go_to_segments_of_their_own(open_log: OpenLog, offsets: Offsets) -> None:
    log = open_log()
    far = RELATIVE_OFFSET_MAX + 1
    replicate(log, sent(0) + sent(far) + sent(2 * far))
    assert [segment.base_offset for segment in log.segments] == [0, far, 2 * far]
    assert offsets(log) == [0, far, 2 * far]


def test_a_batch_that_is_cut_off_at_the_end_is_left_out(open_log: OpenLog) -> None:
    log = open_log()
    replicate(log, sent(0) + sent(1)[:-1])
    assert log.end_offset == 1
    replicate(log, sent(1)[:70])
    assert log.end_offset == 1


def corrupt(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def of_version_1(batch: bytearray) -> bytearray:
    batch[16] = 1
    return batch


def changed(batch: bytearray, **fields: int) -> bytearray:
    write_header(batch, 0, read_header(batch)._replace(**fields))
    seal(batch)
    return batch


@pytest.mark.parametrize(
    "batches",
    [
        sent(9),
        sent(-5),
        sent(12, epoch=2),
        sent(12) + sent(12),
        sent(12, epoch=4) + sent(13, epoch=3),
        sent(OFFSET_LAST),
        changed(sent(12), last_offset_delta=-1),
        changed(sent(12), record_count=7),
        changed(sent(12), attributes=7),
        changed(sent(12), attributes=TRANSACTIONAL),
        changed(sent(12), attributes=CONTROL | TRANSACTIONAL, producer_id=7),
        of_version_1(sent(12)),
        corrupt(sent(12)),
        sent(12) + corrupt(sent(13)),
        sent(12) + b"x" * 80,
    ],
)
def test_bytes_that_cannot_follow_the_log_are_malformed_and_change_nothing(
    open_log: OpenLog, batches: bytearray
) -> None:
    log = open_log()
    replicate(log, sent(0, records=10, epoch=3))
    before = bytes(log.read(Offset(0), max_bytes=10_000).view)
    with pytest.raises(Malformed):
        replicate(log, batches)
    assert (log.end_offset, log.epochs.entries) == (10, [(3, 0)])
    assert bytes(log.read(Offset(0), max_bytes=10_000).view) == before


def test_a_batch_of_a_later_epoch_than_the_leaders_is_refused(open_log: OpenLog) -> None:
    log = open_log()
    with pytest.raises(Refused) as refused:
        replicate(log, sent(0, epoch=4) + sent(1, epoch=5), leader_epoch=4)
    assert refused.value.code is ErrorCode.unknown_leader_epoch
    assert (log.end_offset, log.epochs.entries) == (0, [])


def test_a_control_batch_that_compaction_emptied_is_accepted(open_log: OpenLog) -> None:
    log = open_log()
    marker = build_marker(
        commit=True,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(1),
        leader_epoch=LeaderEpoch(0),
    )
    emptied = marker[:61]
    changed(emptied, length=61 - 12, record_count=0)
    replicate(log, emptied)
    assert log.end_offset == 1
    log.abandon()
    assert open_log(clean=False).end_offset == 1


def test_a_log_that_starts_within_the_leaders_batch_keeps_its_start(
    open_log: OpenLog, offsets: Offsets
) -> None:
    log = open_log()
    replicate(log, sent(0))
    log.reset_to(Offset(15))
    replicate(log, sent(10, records=10, epoch=2) + sent(20, epoch=3))
    assert (log.start_offset, log.end_offset) == (15, 21)
    assert [segment.base_offset for segment in log.segments] == [10]
    assert log.epochs.entries == [(2, 15), (3, 20)]
    assert offsets(log) == [10, 20]
    assert read_header(log.read(Offset(17), max_bytes=1).view).base_offset == 10


def test_a_log_with_batches_does_not_take_one_that_starts_before_its_end(
    open_log: OpenLog,
) -> None:
    log = open_log()
    replicate(log, sent(0, records=15))
    with pytest.raises(Malformed):
        replicate(log, sent(10, records=10))


class FailingDisk:
    """Replaces `os.pwrite`, and fails one of its calls."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    def __call__(self, descriptor: int, chunk: bytes, position: int) -> int:
        self.turn -= 1
        if self.turn == 0:
            raise OSError("the disk failed")
        return os.pwrite(descriptor, chunk, position)


@pytest.mark.parametrize("turn", range(1, 8))
def test_after_a_failed_write_nothing_that_follows_is_appended(
    open_log: OpenLog, offsets: Offsets, monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    log = open_log(settings=default_log_settings(segment_bytes=500))
    monkeypatch.setattr(OpenFiles, "write", FailingDisk(turn))
    batches = [sent(offset, size=100) for offset in range(20)]
    with pytest.raises(OSError, match="the disk failed"):
        replicate(log, b"".join(batches))
    assert offsets(log) == list(range(log.end_offset))
    replicate(log, b"".join(batches[log.end_offset :]))
    assert offsets(log) == list(range(20))


def test_reading_headers_needs_no_log() -> None:
    assert [header.base_offset for header in read_replicated(sent(4) + sent(9))] == [4, 9]
