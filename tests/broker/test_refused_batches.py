"""Producers with several requests in flight, and a broker that becomes leader between two of them.

The later batch must not be appended, nor be out of order, while the earlier one is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.broker.leadership import Leadership
from penstock.broker.partition import Partition
from penstock.broker.refused_batches import REFUSED_MAX, RefusedBatches
from penstock.errors import ErrorCode, Refused
from penstock.log.producer_state import BatchMark, ProducerState
from penstock.model import (
    LeaderEpoch,
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
    SequenceNumber,
)
from penstock.protocol.batch import read_header
from penstock.protocol.records import read_records
from tests.support.wire import batch

if TYPE_CHECKING:
    from penstock.protocol.batch import BatchHeader
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

MakeBatch = Callable[..., bytearray]

PRODUCER = 7
PLACE = ("t", 0)
OTHER = NodeId(2)
NO_LEADER = NodeId(-1)
IN_FLIGHT = 5
NOT_LEADER = ErrorCode.not_leader_or_follower
LARGEST = 2**31 - 1


# The rule.


def header(sequence: int, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    return read_header(batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def known(last_sequence: int, epoch: int = 0) -> ProducerState:
    """A producer whose last batch had one record."""
    mark = BatchMark(SequenceNumber(last_sequence), Offset(9), 0)
    return ProducerState(ProducerId(PRODUCER), ProducerEpoch(epoch), (mark,))


def refused_at(*sequences: int) -> RefusedBatches:
    refused = RefusedBatches()
    for sequence in sequences:
        refused.add(PLACE, header(sequence), NOT_LEADER)
    return refused


@pytest.mark.parametrize("producer", [None, known(2), known(50, epoch=-1)])
def test_what_follows_a_refused_batch_is_refused_for_the_same_reason(
    producer: ProducerState | None,
) -> None:
    refused = refused_at(3)
    for _ in range(2):
        with pytest.raises(Refused) as refusal:
            refused.check(PLACE, header(4), producer)
        assert refusal.value.code == NOT_LEADER


def test_sequence_numbers_are_compared_across_their_largest_value() -> None:
    refused = refused_at(LARGEST)
    with pytest.raises(Refused):
        refused.check(PLACE, header(0), known(LARGEST - 1))
    refused = refused_at(0)
    refused.check(PLACE, header(LARGEST), known(LARGEST - 1))
    assert not refused


@pytest.mark.parametrize(
    "again", [header(3), header(2), header(0, epoch=1)], ids=["same", "earlier", "new epoch"]
)
def test_the_rule_ends_when_the_producer_goes_back(again: BatchHeader) -> None:
    refused = refused_at(3, 4)
    refused.check(PLACE, again, known(2))
    assert not refused
    refused.check(PLACE, header(4), known(2))


def test_the_rule_ends_when_the_partition_has_the_batch_from_an_earlier_leader() -> None:
    refused = refused_at(3)
    refused.check(PLACE, header(9), known(8))
    assert not refused


def test_the_rule_is_limited_to_what_can_be_in_flight() -> None:
    refused = refused_at(3, 4, 5, 6)
    with pytest.raises(Refused):
        refused.check(PLACE, header(7), None)
    refused.add(PLACE, header(7), NOT_LEADER)
    refused.check(PLACE, header(8), None)


def test_other_partitions_producers_and_errors_do_not_count() -> None:
    refused = refused_at(3)
    refused.check(("t", 1), header(4), None)
    refused.check(PLACE, header(4, producer_id=8), None)
    refused = RefusedBatches()
    refused.add(PLACE, header(3), ErrorCode.message_too_large)
    refused.add(PLACE, header(-1, epoch=-1, producer_id=-1), NOT_LEADER)
    assert not refused


def test_the_number_of_refused_batches_is_limited() -> None:
    refused, one = RefusedBatches(), header(3)
    for index in range(REFUSED_MAX + 10):
        refused.add(("t", index), one, NOT_LEADER)
    assert len(refused) == REFUSED_MAX


# A connection.


def partition_of(broker: RunningBroker, index: int = 0) -> Partition:
    partition = broker.partitions.find("t", index)
    assert partition is not None
    return partition


def leadership_of(
    broker: RunningBroker, index: int, *, leads: bool, epoch: int, isr: tuple[NodeId, ...] = ()
) -> Leadership:
    """That of this broker or, as in an election, that of none."""
    me = partition_of(broker, index).node_id
    leader = me if leads else NO_LEADER
    return Leadership(leader, LeaderEpoch(epoch), (me, OTHER), (me, *isr))


def led(broker: RunningBroker, index: int, *, leads: bool, epoch: int) -> None:
    """Let the broker lead a partition, or not."""
    leadership = leadership_of(broker, index, leads=leads, epoch=epoch)
    broker.call(lambda: partition_of(broker, index).lead(leadership))


def produced(wire: Wire, make_batch: MakeBatch, sequence: int) -> Any:
    return wire.produce(
        "t",
        make_batch(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence),
        acks=1,
    )


@pytest.mark.parametrize("before", [0, 1], ids=["unknown producer", "known producer"])
def test_a_batch_that_follows_one_refused_before_the_broker_led_is_refused_too(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch, before: int
) -> None:
    broker.create_topic("t")
    for sequence in range(before):
        assert produced(wire, make_batch, sequence).error_code == ErrorCode.none
    led(broker, 0, leads=False, epoch=1)
    assert produced(wire, make_batch, before).error_code == NOT_LEADER
    led(broker, 0, leads=True, epoch=2)
    assert produced(wire, make_batch, before + 1).error_code == NOT_LEADER
    for sequence in (before, before + 1):
        assert produced(wire, make_batch, sequence).base_offset == sequence


def test_a_gap_without_a_refused_batch_is_out_of_order(
    broker: RunningBroker, wire: Wire, make_batch: MakeBatch
) -> None:
    broker.create_topic("t")
    assert produced(wire, make_batch, 0).error_code == ErrorCode.none
    assert produced(wire, make_batch, 2).error_code == ErrorCode.out_of_order_sequence_number


# librdkafka.


class ClientUnderTest:
    """An idempotent producer of one message per request, several of them in flight."""

    def __init__(self, bootstrap: str) -> None:
        self.delivered: list[tuple[int, bytes]] = []
        self.failed: list[object] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )

    def send(self, partition: int, *values: bytes) -> None:
        for value in values:
            self._producer.produce("t", value, partition=partition, on_delivery=self._on_delivered)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def _on_delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.delivered.append((message.partition(), message.value()))


def stored(broker: RunningBroker, wire: Wire, index: int) -> list[bytes | None]:
    """The values of a partition."""
    log, values = partition_of(broker, index).log, []
    for offset in range(broker.call(lambda: log.end_offset)):
        at = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1}
        response = wire.call(
            1,
            12,
            max_bytes=1 << 20,
            isolation_level=0,
            session_epoch=-1,
            topics=[{"topic": "t", "partitions": [at]}],
        )
        (record,) = read_records(response.responses[0].partitions[0].records)
        values.append(record.value)
    return values


@contextmanager
def kept_waiting(broker: RunningBroker) -> Iterator[None]:
    """Let the broker read nothing for a while: what a client sends meanwhile, it reads at once."""
    proceed = threading.Event()
    broker.loop.call_soon_threadsafe(proceed.wait)
    yield
    time.sleep(0.3)
    proceed.set()


@pytest.fixture
def lead_after_one_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Partition, Leadership], None]:
    """Become the leader when one request has been refused, before the next is handled."""

    def arrange(led_later: Partition, leadership: Leadership) -> None:
        check_leader = Partition.check_leader

        def check_and_lead(partition: Partition, current_leader_epoch: int) -> None:
            try:
                check_leader(partition, current_leader_epoch)
            finally:
                if partition is led_later and not partition.is_leader:
                    partition.lead(leadership)

        monkeypatch.setattr(Partition, "check_leader", check_and_lead)

    return arrange


LeadAfterOneRefusal = Callable[["Partition", Leadership], None]
VALUES = [b"%d" % number for number in range(IN_FLIGHT)]


@pytest.mark.parametrize("before", [[], [b"before"]], ids=["unknown producer", "known producer"])
def test_librdkafka_loses_nothing_when_the_leader_begins_between_two_requests(
    broker: RunningBroker,
    wire: Wire,
    lead_after_one_refusal: LeadAfterOneRefusal,
    before: list[bytes],
) -> None:
    broker.create_topic("t", 2)
    client = ClientUnderTest(broker.bootstrap)
    client.send(1, b"connected")
    client.send(0, *before)
    client.flush()
    led(broker, 0, leads=False, epoch=1)
    lead_after_one_refusal(partition_of(broker), leadership_of(broker, 0, leads=True, epoch=2))
    with kept_waiting(broker):
        client.send(0, *VALUES)
    client.flush()
    assert client.failed == []
    assert stored(broker, wire, 0) == [*before, *VALUES]


def test_librdkafka_writes_nothing_twice_when_another_leader_begins_between_two_requests(
    broker: RunningBroker, wire: Wire, lead_after_one_refusal: LeadAfterOneRefusal
) -> None:
    """With a new epoch, it would write again what another partition had stored before."""
    broker.create_topic("t", 2)
    client = ClientUnderTest(broker.bootstrap)
    client.send(1, b"before")
    client.flush()
    stays_uncommitted = leadership_of(broker, 0, leads=True, epoch=1, isr=(OTHER,))
    broker.call(lambda: partition_of(broker).lead(stays_uncommitted))
    client.send(0, b"once")
    while broker.call(lambda: partition_of(broker).log.end_offset) < 1:
        time.sleep(0.01)
    led(broker, 0, leads=False, epoch=2)  # the client gets NOT_LEADER_OR_FOLLOWER
    led(broker, 1, leads=False, epoch=1)
    lead_after_one_refusal(partition_of(broker, 1), leadership_of(broker, 1, leads=True, epoch=2))
    with kept_waiting(broker):
        client.send(1, *VALUES)
    while broker.call(lambda: partition_of(broker, 1).log.end_offset) < 1 + IN_FLIGHT:
        time.sleep(0.01)
    led(broker, 0, leads=True, epoch=3)
    client.flush()
    assert client.failed == []
    assert stored(broker, wire, 0) == [b"once"]
    assert stored(broker, wire, 1) == [b"before", *VALUES]
