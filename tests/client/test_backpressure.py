"""A consumer far slower than its producer: bounded memory, a steady member, nothing lost."""

import threading
from collections.abc import Callable

import pytest

from penstock.client.consumer import Consumer
from penstock.client.flow_control import FlowLimits
from penstock.client.producer import Producer
from penstock.model import TopicPartition

MakeTopic = Callable[..., str]
LIMITS = FlowLimits(high_records=200, low_records=50, high_bytes=100_000, low_bytes=25_000)
# Polled less often than this, a member is thrown out. The program below takes longer than that
# for what waits in the queue, so only polling on a thread of its own keeps it in.
IMPATIENT = {
    "max.poll.interval.ms": 6000,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}


@pytest.mark.slow
def test_a_slow_consumer_holds_its_bound_stays_a_member_and_loses_nothing(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, count = make_topic(partitions=2), 800
    with Producer(bootstrap, topic) as producer:
        keys = [str(number) for number in range(count)]
        producer.send_many((b"x" * 300 for _ in range(count)), keys=keys).wait(60)
    pace = threading.Event()
    seen: list[bytes] = []
    with Consumer(bootstrap, topic, topic, flow=LIMITS, settings=IMPATIENT) as consumer:
        for event in consumer.events(idle_s=20):
            seen.append(event.key)
            if len(seen) <= 70:
                pace.wait(0.1)  # 7 s for what the producer did in a few milliseconds
            if len(seen) == 1:
                first = consumer.assignment
            if len(seen) == count:
                break
        assert consumer.assignment == first == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        stats = consumer.flow_stats
        assert stats.peak_records <= LIMITS.high_records
        assert stats.peak_bytes <= LIMITS.high_bytes + 600  # the record that filled it
        assert stats.pauses >= count // LIMITS.high_records // 2
        assert stats.dropped == 0, "no rebalance took the queue away"
    assert sorted(seen, key=int) == [key.encode() for key in keys]


def test_a_pause_stops_the_flow_within_one_fetch(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send_many(b"y" * 100 for _ in range(5000)).wait(60)
        limits = FlowLimits(high_records=1000, low_records=100)
        with Consumer(bootstrap, topic, topic, flow=limits) as consumer:
            while consumer.flow_stats.pauses == 0:
                threading.Event().wait(0.01)
            arrived = consumer.flow_stats.arrived
            assert arrived == 1000
            producer.send_many(b"z" * 100 for _ in range(500)).wait(60)
            threading.Event().wait(0.5)  # it polls ten times meanwhile
            assert consumer.flow_stats.arrived == arrived
            taken = 0
            while taken < 5500:
                taken += len(consumer.take(wait_s=20))
            assert taken == 5500
            assert consumer.flow_stats.peak_records <= 1000


@pytest.mark.slow
def test_a_member_that_joins_while_the_queue_is_full_changes_no_bound(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    with Producer(bootstrap, topic) as producer:
        keys = [str(number) for number in range(600)]
        producer.send_many((b"x" for _ in keys), keys=keys).wait(60)
    limits = FlowLimits(high_records=100, low_records=10)
    pace = threading.Event()
    seen: set[bytes] = set()
    first = Consumer(bootstrap, topic, topic, flow=limits)
    while not first.flow_stats.pauses:
        pace.wait(0.01)
    second = Consumer(bootstrap, topic, topic, flow=limits)
    while not (second.assignment and len(first.assignment) == 2):
        seen.update(event.key for event in first.take(records_max=1, wait_s=0.05))
        seen.update(event.key for event in second.take(records_max=1, wait_s=0.05))
    while len(seen) < 600:
        for consumer in (first, second):
            seen.update(event.key for event in consumer.take(wait_s=0.05))
    for consumer in (first, second):
        assert consumer.flow_stats.peak_records <= limits.high_records
        consumer.close()
