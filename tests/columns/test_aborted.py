"""Aborted transactions are hidden exactly as a read_committed consumer hides them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columns.open_batches import PageLimits, open_batches, open_pages
from penstock.model import Millis, Offset, ProducerEpoch, ProducerId, SequenceNumber
from penstock.protocol.control_records import build_marker
from penstock.protocol.records import build_batch

Aborted = list[tuple[ProducerId, Offset]]


def written(producer: int, offset: int, *, transactional: bool = True) -> bytearray:
    return build_batch(
        [(b"k", b"v")],
        base_offset=Offset(offset),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=SequenceNumber(0),
        transactional=transactional,
    )


def marker(producer: int, offset: int, *, commit: bool) -> bytearray:
    return build_marker(
        commit=commit,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        coordinator_epoch=0,
        timestamp=Millis(0),
        base_offset=Offset(offset),
    )


def aborted(*transactions: tuple[int, int]) -> Aborted:
    return [(ProducerId(producer), Offset(first)) for producer, first in transactions]


def test_only_the_aborted_producers_records_are_hidden() -> None:
    log = written(1, 0) + written(2, 1) + marker(1, 2, commit=False) + marker(2, 3, commit=True)
    assert open_batches(log, aborted=aborted((1, 0))).offsets.tolist() == [1]
    assert open_batches(log).offsets.tolist() == [0, 1]


def test_after_the_abort_marker_the_producer_counts_again() -> None:
    log = written(1, 0) + marker(1, 1, commit=False) + written(1, 2) + marker(1, 3, commit=True)
    assert open_batches(log, aborted=aborted((1, 0))).offsets.tolist() == [2]


def test_records_outside_a_transaction_are_never_hidden() -> None:
    log = written(1, 0, transactional=False) + written(1, 1)
    assert open_batches(log, aborted=aborted((1, 0))).offsets.tolist() == [0]


def test_what_was_written_before_the_aborted_transaction_stays() -> None:
    log = written(1, 0) + marker(1, 1, commit=True) + written(1, 2) + marker(1, 3, commit=False)
    assert open_batches(log, aborted=aborted((1, 2))).offsets.tolist() == [0]


def test_a_transaction_of_which_only_the_marker_is_left_hides_nothing_after_it() -> None:
    log = marker(1, 5, commit=False) + written(1, 6) + marker(1, 7, commit=True)
    assert open_batches(log, aborted=aborted((1, 2))).offsets.tolist() == [6]


def test_two_aborted_transactions_of_one_producer() -> None:
    log = written(1, 0) + marker(1, 1, commit=False) + written(1, 2) + marker(1, 3, commit=False)
    assert open_batches(log, aborted=aborted((1, 2), (1, 0))).offsets.tolist() == []
    assert open_batches(log, aborted=aborted((1, 2), (1, 0))).end_offset == 4


@given(steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["write", "commit", "abort"]))))
@settings(deadline=None, max_examples=80)
def test_any_history_shows_what_was_committed_or_is_still_open(
    steps: list[tuple[int, str]],
) -> None:
    log = bytearray()
    running: dict[int, list[int]] = {}
    gone: set[int] = set()
    listed = []
    for offset, (producer, step) in enumerate(steps):
        if step == "write":
            log += written(producer, offset)
            running.setdefault(producer, []).append(offset)
            continue
        log += marker(producer, offset, commit=step == "commit")
        offsets = running.pop(producer, [])
        if step == "abort" and offsets:
            gone.update(offsets)
            listed.append((producer, offsets[0]))
    shown = [o for o, (_, step) in enumerate(steps) if step == "write" and o not in gone]
    assert open_batches(log, aborted=aborted(*listed)).offsets.tolist() == shown
    pages = open_pages(log, aborted=aborted(*listed), limits=PageLimits(page_bytes=1))
    assert [o for page in pages for o in page.offsets.tolist()] == shown
