"""The records of `__transaction_state`, against bytes that Apache Kafka 4.3 wrote."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordination.transactions.codec import (
    read_events,
    read_key,
    read_value,
    write_event,
    write_key,
    write_value,
)
from penstock.coordination.transactions.events import (
    MarkersDue,
    TransactionalIdExpired,
    TransactionSet,
)
from penstock.coordination.transactions.transaction_moves import Transaction, TransactionState
from penstock.errors import Malformed
from penstock.machine import JournalRecord
from penstock.model import (
    NO_PRODUCER,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)

PARTITIONS = frozenset((TopicPartition("a", 1),))  # the order of several is not defined
EMPTY = Transaction(
    "orders-1",
    ProducerId(1000),
    ProducerEpoch(0),
    Millis(60_000),
    TransactionState.EMPTY,
    frozenset(),
    updated_at=Millis(1_700_000_000_000),
    previous_producer_id=ProducerId(1000),
)
ONGOING = replace(
    EMPTY,
    producer_epoch=ProducerEpoch(5),
    state=TransactionState.ONGOING,
    partitions=PARTITIONS,
    updated_at=Millis(1_700_000_000_001),
    started_at=Millis(1_700_000_000_000),
    client_version=2,
)
PREPARED = replace(
    ONGOING,
    producer_epoch=ProducerEpoch(32767),
    next_producer_id=ProducerId(2000),
    state=TransactionState.PREPARE_COMMIT,
    updated_at=Millis(1_700_000_000_002),
)
COMPLETE = replace(
    ONGOING,
    producer_id=ProducerId(2000),
    producer_epoch=ProducerEpoch(0),
    state=TransactionState.COMPLETE_COMMIT,
    partitions=frozenset(),
    updated_at=Millis(1_700_000_000_003),
)

# as Apache Kafka 4.3.1 serialises the same metadata under transaction.version 2 and 0
NEWEST = [
    (
        EMPTY,
        "000100000000000003e800000000ea6000000000018bcfe56800ffffffffffffffff010008000000"
        "00000003e8",
    ),
    (
        ONGOING,
        "000100000000000003e800050000ea60010202610200000001000000018bcfe568010000018bcfe5"
        "680002000800000000000003e802020002",
    ),
    (
        PREPARED,
        "000100000000000003e87fff0000ea60020202610200000001000000018bcfe568020000018bcfe5"
        "680003000800000000000003e8010800000000000007d002020002",
    ),
    (
        COMPLETE,
        "000100000000000007d000000000ea6004010000018bcfe568030000018bcfe56800020008000000"
        "00000003e802020002",
    ),
]
OLDEST = [
    (
        EMPTY,
        "000000000000000003e800000000ea6000ffffffff0000018bcfe56800ffffffffffffffff",
    ),
    (
        ONGOING,
        "000000000000000003e800050000ea60010000000100016100000001000000010000018bcfe56801"
        "0000018bcfe56800",
    ),
    (
        PREPARED,
        "000000000000000003e87fff0000ea60020000000100016100000001000000010000018bcfe56802"
        "0000018bcfe56800",
    ),
    (
        COMPLETE,
        "000000000000000007d000000000ea6004000000000000018bcfe568030000018bcfe56800",
    ),
]


@pytest.mark.parametrize(("transaction", "packed"), NEWEST, ids=lambda case: "")
def test_values_are_written_as_kafka_writes_them(transaction: Transaction, packed: str) -> None:
    assert write_value(transaction).hex() == packed
    assert read_value("orders-1", bytes.fromhex(packed)) == transaction


@pytest.mark.parametrize(("transaction", "packed"), OLDEST, ids=lambda case: "")
def test_values_of_older_clusters_are_read(transaction: Transaction, packed: str) -> None:
    known_to_them = replace(
        transaction,
        previous_producer_id=NO_PRODUCER,
        next_producer_id=NO_PRODUCER,
        client_version=0,
    )
    assert read_value("orders-1", bytes.fromhex(packed)) == known_to_them


def test_the_key_is_the_transactional_id() -> None:
    assert write_key("orders-1").hex() == "000000086f72646572732d31"
    assert read_key(write_key("größe")) == "größe"


def test_a_tombstone_removes_the_id() -> None:
    record = write_event(TransactionalIdExpired("orders-1"))
    assert record == JournalRecord(write_key("orders-1"), None)
    assert read_events(record) == (TransactionalIdExpired("orders-1"),)


def test_unknown_versions_are_skipped() -> None:
    assert read_events(JournalRecord(b"\x00\x01\x00\x01x", b"")) == ()
    assert read_events(JournalRecord(write_key("x"), b"\x00\x02rest")) == ()


def test_an_unknown_tag_is_skipped() -> None:
    packed = write_value(replace(EMPTY, previous_producer_id=NO_PRODUCER))
    assert packed.endswith(b"\x00")
    tagged = packed[:-1] + b"\x01\x09\x03abc"
    assert read_value("orders-1", tagged) == replace(EMPTY, previous_producer_id=NO_PRODUCER)


def test_a_note_has_no_record() -> None:
    with pytest.raises(AssertionError):
        write_event(MarkersDue("t", Millis(1)))


@settings(deadline=None, max_examples=200)
@given(cut=st.integers(0, 200), flipped=st.integers(0, 255), value=st.sampled_from([ONGOING]))
def test_corrupt_records_raise_malformed_and_nothing_else(
    cut: int, flipped: int, value: Transaction
) -> None:
    packed = bytearray(write_value(value))
    packed[cut % len(packed)] ^= flipped
    for damaged in (bytes(packed), bytes(packed[:cut])):
        try:
            read_events(JournalRecord(write_key("t"), damaged))
        except Malformed:
            continue


topic_partitions = st.builds(
    TopicPartition, st.text("abcdef.-_", min_size=1, max_size=12), st.integers(0, 2**31 - 1)
)


@settings(deadline=None, max_examples=100)
@given(
    partitions=st.frozensets(topic_partitions, max_size=200),
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 32767),
    next_producer_id=st.integers(-1, 2**63 - 1),
    last_epoch=st.integers(-1, 32766),
    state=st.sampled_from([TransactionState.ONGOING, TransactionState.PREPARE_ABORT]),
)
def test_what_is_written_is_read_back(
    partitions: frozenset[TopicPartition],
    producer_id: int,
    epoch: int,
    next_producer_id: int,
    last_epoch: int,
    state: TransactionState,
) -> None:
    transaction = replace(
        ONGOING,
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        next_producer_id=ProducerId(next_producer_id),
        last_producer_epoch=ProducerEpoch(last_epoch),
        partitions=partitions,
        state=state,
    )
    assert read_events(write_event(TransactionSet(transaction))) == (TransactionSet(transaction),)
