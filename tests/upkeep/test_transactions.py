"""Transactions while a log is compacted."""

from penstock.log.transaction_index import AbortedEntry
from penstock.model import Offset, ProducerId
from penstock.upkeep.compaction_plan import TransactionScan

ONE, OTHER = ProducerId(1), ProducerId(2)


def aborted(producer_id: ProducerId, first: int, last: int) -> AbortedEntry:
    return AbortedEntry(producer_id, Offset(first), Offset(last), Offset(last + 1))


def test_batches_of_an_aborted_transaction_are_removed_a_round_before_its_marker() -> None:
    entry = aborted(ONE, 10, 20)
    walk = TransactionScan([entry], Offset(0))
    assert not walk.on_batch(ONE, Offset(9))
    assert walk.on_commit(ONE, Offset(9)) is False
    assert walk.on_batch(ONE, Offset(12))
    assert not walk.on_batch(OTHER, Offset(15))
    assert walk.on_abort(ONE, Offset(20)) == (False, entry)
    assert not walk.on_batch(ONE, Offset(21))


def test_a_marker_without_records_of_its_transaction_is_removed() -> None:
    walk = TransactionScan([aborted(ONE, 10, 20)], Offset(0))
    assert walk.on_abort(ONE, Offset(20)) == (True, None)
    assert walk.on_commit(OTHER, Offset(30)) is True


def test_an_abort_without_its_marker_affects_no_later_batch() -> None:
    walk = TransactionScan([aborted(ONE, 10, 20)], Offset(0))
    assert walk.on_batch(ONE, Offset(12))
    assert not walk.on_batch(ONE, Offset(25))


def test_an_abort_without_its_marker_is_not_mistaken_for_the_next_one() -> None:
    later = aborted(ONE, 30, 40)
    walk = TransactionScan([aborted(ONE, 10, 20), later], Offset(0))
    assert walk.on_batch(ONE, Offset(12))
    assert walk.on_batch(ONE, Offset(35))
    assert walk.on_abort(ONE, Offset(40)) == (False, later)


def test_transactions_that_ended_before_the_start_are_ignored() -> None:
    walk = TransactionScan([aborted(ONE, 0, 5)], Offset(6))
    assert not walk.on_batch(ONE, Offset(8))
