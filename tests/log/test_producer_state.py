"""The rules of idempotence and transactions, and the producer table."""

import pytest

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.log.producer_snapshots import read_snapshot, write_snapshot
from penstock.log.producer_state import ProducerState, ProducerTable, Staged
from penstock.model import NO_OFFSET, Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.batch import BatchHeader, read_header
from penstock.protocol.control_records import Marker, build_marker, read_marker
from penstock.protocol.records import build_batch

SEQUENCE_LAST = (1 << 31) - 1


def a_batch(
    sequence: int,
    *,
    records: int = 1,
    epoch: int = 0,
    producer: int = 7,
    transactional: bool = False,
) -> BatchHeader:
    return read_header(
        build_batch(
            [(b"k", b"v")] * records,
            timestamp=Millis(50),
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=SequenceNumber(sequence),
            transactional=transactional,
        )
    )


def a_marker(
    *, commit: bool, epoch: int = 0, producer: int = 7, coordinator: int = 0
) -> tuple[BatchHeader, Marker]:
    batch = build_marker(
        commit=commit,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(epoch),
        coordinator_epoch=coordinator,
        timestamp=Millis(60),
    )
    return read_header(batch), read_marker(batch)


class Table(ProducerTable):
    """Appends at the next offset, as the log does."""

    end = 0

    def write(self, header: BatchHeader, marker: Marker | None = None) -> list[tuple[int, ...]]:
        staged = Staged(self)
        if marker is None:
            staged.add_batch(header, Offset(self.end), "client")
        else:
            staged.add_marker(header, Offset(self.end), marker, "marker")
        aborted = self.aborted_by(staged)
        self.commit(staged)
        self.end += header.last_offset_delta + 1
        return [tuple(entry) for entry in aborted]

    def refusal(self, header: BatchHeader, marker: Marker | None = None) -> ErrorCode:
        before = dict(self.producers)
        with pytest.raises(Refused) as refused:
            self.write(header, marker)
        assert self.producers == before
        return refused.value.code

    @property
    def known(self) -> ProducerState:
        return self.producers[ProducerId(7)]


def test_an_unknown_producer_may_start_at_any_sequence_number() -> None:
    table = Table()
    table.write(a_batch(41, epoch=3))
    assert table.known.last_sequence == 41


def test_sequence_numbers_have_no_gap() -> None:
    table = Table()
    table.write(a_batch(0, records=3))
    assert table.refusal(a_batch(4)) is ErrorCode.out_of_order_sequence_number
    assert table.refusal(a_batch(2)) is ErrorCode.out_of_order_sequence_number
    table.write(a_batch(3))


def test_sequence_numbers_wrap_to_zero() -> None:
    table = Table()
    table.write(a_batch(SEQUENCE_LAST - 1, records=3))
    assert table.known.last_sequence == 0
    assert table.known.batches[-1].base_sequence == SEQUENCE_LAST - 1
    table.write(a_batch(1))
    other = Table()
    other.write(a_batch(SEQUENCE_LAST))
    other.write(a_batch(0))


def test_a_retry_of_one_of_the_last_five_batches_is_recognised() -> None:
    table = Table()
    for number in range(7):
        table.write(a_batch(number * 2, records=2))
    marks = [table.duplicate_of(a_batch(number * 2, records=2)) for number in range(7)]
    assert [mark and mark.base_offset for mark in marks] == [None, None, 4, 6, 8, 10, 12]
    assert table.duplicate_of(a_batch(12)) is None, "half a batch is no repeat"
    assert table.duplicate_of(a_batch(12, records=2, epoch=1)) is None
    assert table.refusal(a_batch(2, records=2)) is ErrorCode.out_of_order_sequence_number


def test_a_new_epoch_starts_at_zero_and_has_no_earlier_batches() -> None:
    table = Table()
    table.write(a_batch(5))
    assert table.refusal(a_batch(6, epoch=1)) is ErrorCode.out_of_order_sequence_number
    table.write(a_batch(0, epoch=1))
    assert len(table.known.batches) == 1
    assert table.refusal(a_batch(6)) is ErrorCode.invalid_producer_epoch


def test_a_transaction_keeps_the_stable_offset_until_its_marker_is_committed() -> None:
    table = Table()
    table.write(a_batch(0))
    table.write(a_batch(1, transactional=True))
    table.write(a_batch(0, producer=8, transactional=True))
    assert table.first_unstable_offset == 1
    assert table.write(*a_marker(commit=True)) == []
    assert table.first_unstable_offset == 1, "the marker is not below the high watermark yet"
    table.on_high_watermark(Offset(4))
    assert table.first_unstable_offset == 2
    table.write(*a_marker(commit=False, producer=8))
    table.on_high_watermark(Offset(5))
    assert table.first_unstable_offset is None


def test_an_abort_is_listed_with_the_offset_that_was_stable_then() -> None:
    table = Table()
    table.write(a_batch(0, transactional=True))
    table.write(a_batch(0, producer=8, transactional=True))
    assert table.write(*a_marker(commit=False)) == [(7, 0, 2, 1)]
    assert table.write(*a_marker(commit=False, producer=8)) == [(8, 1, 3, 4)]
    assert table.write(*a_marker(commit=False)) == [], "nothing was open"


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    table = Table()
    table.write(a_batch(0, transactional=True))
    assert table.refusal(a_batch(1)) is ErrorCode.invalid_txn_state


def test_markers_of_old_producers_and_old_coordinators_are_refused() -> None:
    table = Table()
    table.write(a_batch(0, epoch=2, transactional=True))
    assert table.refusal(*a_marker(commit=True, epoch=1)) is ErrorCode.invalid_producer_epoch
    table.write(*a_marker(commit=True, epoch=2, coordinator=5))
    stale = a_marker(commit=True, epoch=2, coordinator=4)
    assert table.refusal(*stale) is ErrorCode.transaction_coordinator_fenced


def test_a_marker_may_raise_the_epoch() -> None:
    table = Table()
    table.write(a_batch(0, transactional=True))
    table.write(*a_marker(commit=True, epoch=1))
    assert (table.known.producer_epoch, table.known.batches) == (1, ())
    assert table.refusal(a_batch(1)) is ErrorCode.invalid_producer_epoch
    assert table.refusal(a_batch(1, epoch=1)) is ErrorCode.out_of_order_sequence_number
    table.write(a_batch(0, epoch=1, transactional=True))


def test_idle_producers_expire_unless_they_have_a_transaction() -> None:
    table = Table()
    table.write(a_batch(0))
    table.write(a_batch(0, producer=8, transactional=True))
    assert table.expire(Millis(40), Millis(100)) == 0  # idle from here on; its record is of 50
    assert table.expire(Millis(149), Millis(100)) == 0
    assert table.expire(Millis(150), Millis(100)) == 1
    assert list(table.producers) == [8]


def test_a_producer_of_old_records_is_not_idle() -> None:
    table = Table()
    table.write(a_batch(0))
    assert table.expire(Millis(1000), Millis(100)) == 0
    assert table.expire(Millis(1099), Millis(100)) == 0
    table.write(a_batch(1))
    assert table.expire(Millis(1150), Millis(100)) == 0, "it wrote since"
    assert table.expire(Millis(1250), Millis(100)) == 1


def test_a_snapshot_is_read_back_as_the_same_table() -> None:
    table = Table()
    for number in range(8):
        table.write(a_batch(number, transactional=True))
    table.write(a_batch(3, producer=9))
    table.write(*a_marker(commit=True, producer=10, coordinator=3))
    table.write(a_batch(0, producer=10, transactional=True))
    restored = ProducerTable()
    restored.load(read_snapshot(write_snapshot(table)))
    assert restored.producers == table.producers
    assert restored.first_unstable_offset == 0
    assert [row.producer_id for row in restored.active()] == [7, 9, 10]
    assert [row.current_txn_start_offset for row in restored.active()] == [0, NO_OFFSET, 10]


def test_a_damaged_snapshot_is_malformed() -> None:
    table = Table()
    table.write(a_batch(0))
    content = write_snapshot(table)
    for position in range(len(content)):
        corrupt = bytearray(content)
        corrupt[position] ^= 0x40
        with pytest.raises(Malformed):
            read_snapshot(corrupt)
        with pytest.raises(Malformed):
            read_snapshot(content[:position])
