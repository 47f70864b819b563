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


def test_the_last_record_of_each_key_is_retained_at_its_offset(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
    compacted.segment(3, batch(3, (b"b", b"2"), (b"c", b"1")))
    compacted.clean()
    assert [(r.offset, r.key, r.value) for r in compacted.records()] == [
        (2, b"a", b"2"),
        (3, b"b", b"2"),
        (4, b"c", b"1"),
    ]


def test_a_batch_keeps_its_offsets_and_timestamps_when_it_loses_records(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")))
    compacted.segment(4, batch(4, (b"b", b"3")))
    compacted.clean()
    (first, records), _ = compacted.batches()
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 3, 1)
    assert records == [Record(2, NOW - 5000, b"a", b"2")]


def test_an_unchanged_batch_is_copied_byte_for_byte(compacted: Any) -> None:
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


def test_records_without_a_key_are_removed(compacted: Any) -> None:
    compacted.segment(0, batch(0, (None, b"lost"), (b"a", b"1")))
    compacted.clean()
    assert compacted.values() == {b"a": b"1"}


def test_a_tombstone_gets_a_horizon_and_is_removed_after_it(compacted: Any) -> None:
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


def test_records_after_the_round_are_not_changed(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1"), (b"a", b"2")), batch(2, (b"a", b"3"), (b"a", b"4")))
    assert compacted.clean(end_offset=Offset(2)).end_offset == 2
    assert [record.offset for record in compacted.records()] == [1, 2, 3]


def test_the_last_batch_of_the_range_is_retained_even_when_empty(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1")), batch(1, (None, b"lost")))
    compacted.clean()
    last, records = compacted.batches()[-1]
    assert (last.end_offset, records) == (2, [])


def test_an_empty_batch_retains_a_live_producers_last_sequence_number(compacted: Any) -> None:
    last = batch(
        0,
        (b"a", b"1"),
        (b"a", b"2"),
        producer_id=P,
        producer_epoch=E,
        base_sequence=SequenceNumber(5),
    )
    compacted.segment(0, last, batch(2, (b"a", b"3")))
    live = LiveProducer(P, E, Offset(1))
    compacted.clean(producers=(live,))
    (first, records), _ = compacted.batches()
    assert (first.base_offset, first.last_offset, first.last_sequence) == (0, 1, 6)
    assert (first.producer_id, records) == (P, [])
    compacted.clean()
    assert [header.base_offset for header, _ in compacted.batches()] == [2]


def test_aborted_records_are_removed_before_their_marker_and_index_entry(
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


def test_a_marker_is_removed_after_its_records_and_its_retention(compacted: Any) -> None:
    compacted.segment(
        0,
        transactional(0, (b"a", b"1"), sequence=0),
        marker(1, commit=True),
        batch(2, (b"a", b"2")),
        batch(3, (b"z", b"1")),
    )
    compacted.clean()
    # The round read a record of the transaction, so its marker is needed and has no horizon yet.
    assert [h.base_offset for h, _ in compacted.batches()] == [1, 2, 3]
    assert not compacted.batches()[0][0].has_delete_horizon
    compacted.clean()
    assert compacted.batches()[0][0].base_timestamp == NOW + GRACE
    compacted.clean(now=Millis(NOW + GRACE))
    assert [h.base_offset for h, _ in compacted.batches()] == [2, 3]


def test_the_marker_with_a_producers_epoch_is_retained_while_the_producer_is_known(
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


def test_a_small_map_needs_more_rounds_for_the_same_result(compacted: Any) -> None:
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


def test_small_segments_are_joined_with_the_time_of_the_newest(compacted: Any) -> None:
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


def test_a_batch_larger_than_a_chunk_is_read_completely(compacted: Any) -> None:
    compacted.segment(0, batch(0, (b"a", b"1" * (5 << 20)), (b"b", b"2")), batch(2, (b"a", b"3")))
    compacted.clean()
    assert compacted.values() == {b"b": b"2", b"a": b"3"}


@pytest.mark.parametrize("position", [0, 8, 16, 20, 23, 60, 61, 62, 70])
def test_a_corrupt_segment_is_not_changed(compacted: Any, position: int) -> None:
    corrupt = batch(1, (b"a", b"1"), (b"b", b"2"))
    corrupt[position] ^= 0x88
    content = bytes(batch(0, (b"a", b"0")) + corrupt)
    compacted.segment(0, content)
    with pytest.raises(Malformed):
        compacted.clean(end_offset=Offset(3))
    assert [path.read_bytes() for path in compacted.folder.iterdir()] == [content]
