"""Compaction of segment files, one rule at a time."""

import os
from typing import Any

import pytest

from penstock.errors import Malformed
from penstock.log.transaction_index import ABORTED_ENTRY, AbortedEntry
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.compression import Codec
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import Record, build_batch
from penstock.upkeep.jobs import LiveProducer

NOW = Millis(1_700_000_000_000)
GRACE = Millis(1000)
P = ProducerId(7)
E = ProducerEpoch(0)


def batch(offset: int, *records: tuple[bytes | None, bytes | None], **fields: Any) -> bytearray:
    return build_batch(
        records, base_offset=Offset(offset), timestamp=Millis(NOW - 5000 + offset), **fields
    )


def transactional(offset: int, *records: tuple[bytes, bytes | None], sequence: int) -> bytearray:
    return batch(
        offset,
        *records,
        producer_id=P,
        producer_epoch=E,
        base_sequence=SequenceNumber(sequence),
        transactional=True,
    )


def marker(offset: int, *, commit: bool) -> bytearray:
    return build_marker(
        commit=commit,
        producer_id=P,
        producer_epoch=E,
        coordinator_epoch=0,
        base_offset=Offset(offset),
        timestamp=Millis(NOW - 5000 + offset),
    )


def test_the_last_record_of_each_key_stays_where_it_was(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
    compacted.segment(3, batch(3, (b"b", b"2"), (b"c", b"1")))
    compacted.clean()
    assert [(r.offset, r.key, r.value) for r in compacted.records()] == [
        (2, b"a", b"2"),
        (3, b"b", b"2"),
        (4, b"c", b"1"),
    ]


def test_a_batch_keeps_its_offsets_and_timestamps_when_records_leave_it(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")))
    compacted.segment(4, batch(4, (b"b", b"3")))
    compacted.clean()
    (first, records), _ = compacted.batches()
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 3, 1)
    assert records == [Record(2, NOW - 5000, b"a", b"2")]


def test_an_untouched_batch_is_copied_byte_for_byte(compacted: Any) -> None:
    odd = batch(1, (b"b", b"1" * 500), (b"c", b"2" * 500), codec=Codec.GZIP, level=1)
    compacted.segment(0, batch(0, (b"a", b"1")), odd, batch(3, (b"a", b"2")))
    compacted.clean()
    assert bytes(odd) in next(compacted.folder.glob("*.log")).read_bytes()


@pytest.mark.parametrize("codec", list(Codec))
def test_a_changed_batch_keeps_its_codec(compacted: Any, codec: Codec) -> None:
    compacted.segment(
        0, batch(0, (b"a", b"1" * 100), (b"b", b"2" * 100), codec=codec), batch(2, (b"a", b"3"))
    )
    compacted.clean()
    (first, records), _ = compacted.batches()
    assert first.codec == codec
    assert [record.value for record in records] == [b"2" * 100]


def test_records_without_a_key_are_dropped(compacted: Any) -> None:
    compacted.segment(0, batch(0, (None, b"lost"), (b"a", b"1")))
    compacted.clean()
    assert compacted.values() == {b"a": b"1"}


def test_a_tombstone_gets_a_horizon_and_goes_when_it_has_passed(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", None)))
    compacted.segment(3, batch(3, (b"z", b"1")))
    compacted.clean(delete_retention_ms=GRACE)
    (first, records), _ = compacted.batches()
    assert first.has_delete_horizon
    assert first.base_timestamp == NOW + GRACE
    assert records == [
        Record(1, NOW - 5000, b"b", b"1"),
        Record(2, NOW - 5000, b"a", None),
    ]
    compacted.clean(now=Millis(NOW + GRACE - 1))
    assert b"a" in compacted.values()
    compacted.clean(now=Millis(NOW + GRACE))
    assert b"a" not in compacted.values()
    assert compacted.batches()[0][0].base_timestamp == NOW + GRACE


def test_what_lies_beyond_the_round_stays(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"a", b"3"), (b"a", b"4")))
    assert compacted.clean(end_offset=Offset(2)).end_offset == 2
    assert [record.offset for record in compacted.records()] == [1, 2, 3]


def test_the_last_batch_of_the_range_stays_even_when_empty(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1")), batch(1, (None, b"lost")))
    compacted.clean()
    last, records = compacted.batches()[-1]
    assert (last.end_offset, records) == (2, [])


def test_an_empty_batch_holds_a_live_producers_last_sequence(compacted: Any) -> None:
    held = batch(
        0,
        (b"a", b"1"),
        (b"a", b"2"),
        producer_id=P,
        producer_epoch=E,
        base_sequence=SequenceNumber(5),
    )
    compacted.segment(0, held, batch(2, (b"a", b"3")))
    live = LiveProducer(P, E, Offset(1))
    compacted.clean(producers=(live,))
    (first, records), _ = compacted.batches()
    assert (first.base_offset, first.last_offset, first.last_sequence) == (0, 1, 6)
    assert (first.producer_id, records) == (P, [])
    compacted.clean()
    assert [header.base_offset for header, _ in compacted.batches()] == [2]


def test_aborted_records_go_and_their_marker_and_index_entry_stay_with_them(
    compacted: Any,
) -> None:
    aborted = AbortedEntry(P, Offset(1), Offset(3), Offset(4))
    compacted.segment(
        0,
        batch(0, (b"a", b"1")),
        transactional(1, (b"a", b"2"), (b"b", b"2"), sequence=0),
        marker(3, commit=False),
        batch(4, (b"z", b"1")),
    )
    compacted.clean(aborted=(aborted,), producers=(LiveProducer(P, E, Offset(2)),))
    assert compacted.values()[b"a"] == b"1"
    assert [header.base_offset for header, _ in compacted.batches()] == [0, 1, 3, 4]
    content = next(compacted.folder.glob("*.txnindex")).read_bytes()
    assert ABORTED_ENTRY.unpack(content) == (0, *aborted)


def test_a_marker_goes_after_its_records_and_its_grace_period(compacted: Any) -> None:
    compacted.segment(
        0,
        transactional(0, (b"a", b"1"), sequence=0),
        marker(1, commit=True),
        batch(2, (b"a", b"2")),
        batch(3, (b"z", b"1")),
    )
    compacted.clean()
    # The walk met a record of the transaction, so its marker is needed and has no horizon yet.
    assert [h.base_offset for h, _ in compacted.batches()] == [1, 2, 3]
    assert not compacted.batches()[0][0].has_delete_horizon
    compacted.clean()
    assert compacted.batches()[0][0].base_timestamp == NOW + GRACE
    compacted.clean(now=Millis(NOW + GRACE))
    assert [h.base_offset for h, _ in compacted.batches()] == [2, 3]


def test_the_marker_that_holds_a_producers_epoch_stays_while_the_producer_lives(
    compacted: Any,
) -> None:
    compacted.segment(0, marker(0, commit=True), batch(1, (b"z", b"1")))
    only_marker = LiveProducer(P, E, None)
    compacted.clean(producers=(only_marker,))
    compacted.clean(producers=(only_marker,), now=Millis(NOW + GRACE))
    (first, records), _ = compacted.batches()
    assert (first.is_control, first.producer_id, len(records)) == (True, P, 1)
    compacted.clean(now=Millis(NOW + GRACE))
    assert [header.base_offset for header, _ in compacted.batches()] == [1]


def test_a_tiny_map_needs_more_rounds_and_ends_in_the_same_log(compacted: Any) -> None:
    for base in range(0, 60, 10):
        compacted.segment(
            base, *(batch(o, (b"%d" % (o % 17), b"%d" % o)) for o in range(base, base + 10))
        )
    end = first_dirty = 0
    rounds = 0
    while end < 60:
        end = compacted.clean(first_dirty_offset=Offset(first_dirty), map_bytes=24 * 8).end_offset
        assert end > first_dirty
        first_dirty = end
        rounds += 1
    assert rounds > 3
    assert sorted(r.offset for r in compacted.records()) == list(range(43, 60))


def test_small_segments_are_joined_and_dated_as_the_newest(compacted: Any) -> None:
    for base in range(4):
        compacted.segment(base, batch(base, (b"%d" % base, b"1")))
        os.utime(compacted.folder / f"{base:020d}.log", (base, base))
    (joined,) = compacted.clean().segments
    assert joined.replaces == (0, 1, 2, 3)
    assert (compacted.folder / f"{0:020d}.log").stat().st_mtime == 3
    assert joined.max_timestamp == NOW - 5000 + 3


def test_a_segment_in_which_nothing_changes_is_not_written_again(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1")))
    assert compacted.clean().segments == ()
    assert sorted(path.name for path in compacted.folder.iterdir()) == [f"{0:020d}.log"]


def test_a_batch_larger_than_a_stretch_is_read_whole(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1" * (5 << 20)), (b"b", b"2")), batch(2, (b"a", b"3")))
    compacted.clean()
    assert compacted.values() == {b"b": b"2", b"a": b"3"}


@pytest.mark.parametrize("position", [0, 8, 16, 20, 23, 60, 61, 62, 70])
def test_a_damaged_segment_is_left_alone(compacted: Any, position: int) -> None:
    rotten = batch(1, (b"a", b"1"), (b"b", b"2"))
    rotten[position] ^= 0x88
    content = bytes(batch(0, (b"a", b"0")) + rotten)
    compacted.segment(0, content)
    with pytest.raises(Malformed):
        compacted.clean(end_offset=Offset(3))
    assert [path.read_bytes() for path in compacted.folder.iterdir()] == [content]
