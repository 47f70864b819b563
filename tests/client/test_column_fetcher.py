"""Columns over the link beside a member of librdkafka: hand-over, switching, seeking, faults."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer

from penstock.client.commit_tracker import CommitMode
from penstock.client.consumer import Consumer
from penstock.client.flow_control import FlowLimits
from penstock.client.kafka_errors import BrokerError
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.model import TopicPartition
from penstock.serde.contract import Contract
from penstock.serde.errors import ArgumentError
from penstock.testing.platform import Platform

MakeTopic = Callable[..., str]
SCHEMA = json.dumps({"type": "record", "name": "Tick", "fields": [{"name": "id", "type": "long"}]})
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}


def send(bootstrap: str, registry: Registry, topic: str, ids: range) -> None:
    with Producer(bootstrap, topic, registry=registry, value=Contract(SCHEMA)) as producer:
        producer.send_many([{"id": n} for n in ids], keys=map(str, ids)).wait(60)


def ids_of(batch: Any) -> list[int]:
    return [] if batch is None else list(batch.values["id"].to_pylist())


def take_until(consumer: Consumer, count: int, **options: Any) -> list[int]:
    seen: list[int] = []
    while len(seen) < count:
        batch = consumer.take_arrow(wait_s=20, **options)
        assert batch is not None, f"{len(seen)} of {count} came"
        seen += ids_of(batch)
    return seen


def test_events_and_columns_take_turns_and_none_is_lost_or_repeated(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    send(bootstrap, registry, topic, range(300))
    seen: list[int] = []
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        for turn in range(20):
            if turn % 2:
                seen += [event.value["id"] for event in consumer.take(15, wait_s=20)]
            else:
                seen += ids_of(consumer.take_arrow(records_max=15, wait_s=20))
        seen += take_until(consumer, 300 - len(seen))
    assert sorted(seen) == list(range(300))


def test_a_seek_before_and_after_the_switch_to_columns_is_kept(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, range(50))
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        assert len(consumer.take(1, wait_s=20)) == 1
        consumer.seek(place, 30)
        assert take_until(consumer, 20) == list(range(30, 50))
        consumer.seek(place, 40)
        assert take_until(consumer, 10) == list(range(40, 50))


def test_a_paused_partition_is_not_fetched_until_it_is_resumed(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    send(bootstrap, registry, topic, range(100))
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        consumer.pause([TopicPartition(topic, 0)])
        batches = list(consumer.arrow_batches(idle_s=1.5))
        assert {place for one in batches for place in one.partitions.to_pylist()} == {1}
        read = sum(map(len, batches))
        consumer.resume([TopicPartition(topic, 0)])
        assert len(take_until(consumer, 100 - read)) == 100 - read


@pytest.mark.parametrize(
    "settings",
    [CLASSIC, COOPERATIVE, {"group.protocol": "consumer"}],
    ids=["eager", "cooperative", "consumer-protocol"],
)
def test_a_second_member_gets_partitions_at_their_committed_offsets(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, settings: dict[str, Any]
) -> None:
    topic = make_topic(partitions=4)
    send(bootstrap, registry, topic, range(2_000))

    def member() -> Consumer:
        return Consumer(bootstrap, topic, topic, registry=registry, settings=settings)

    seen: list[int] = []
    with member() as first:
        seen += take_until(first, 500, records_max=50)
        with member() as second:
            while not (second.assignment and first.assignment and len(set(seen)) == 2_000):
                seen += ids_of(first.take_arrow(records_max=50, wait_s=0.1))
                seen += ids_of(second.take_arrow(records_max=50, wait_s=0.1))
            assert not first.assignment & second.assignment
            send(bootstrap, registry, topic, range(2_000, 2_100))
            late: set[int] = set()
            while len(late) < 100:
                late.update(ids_of(first.take_arrow(wait_s=0.2)))
                late.update(ids_of(second.take_arrow(wait_s=0.2)))
    # What was taken and not handled when partitions moved comes again, and nothing more.
    assert len(seen) - 2_000 <= 100
    assert late >= set(range(2_000, 2_100))


def test_events_of_aborted_transactions_do_not_appear(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = Producer(
        bootstrap, topic, registry=registry, value=Contract(SCHEMA), transactional_id=topic
    )
    with producer:
        for turn in range(4):
            try:
                with producer.transaction():
                    producer.send_many([{"id": turn * 10 + n} for n in range(10)])
                    if turn % 2:
                        raise ArithmeticError
            except ArithmeticError:
                continue
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        seen = [one for batch in consumer.arrow_batches(idle_s=1.5) for one in ids_of(batch)]
    assert seen == [*range(10), *range(20, 30)]


def test_the_queue_of_columns_is_bounded(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, range(100))
    limits = FlowLimits(high_records=2_000, low_records=500)
    batch_records = 500
    writer = KafkaProducer(
        {"bootstrap.servers": bootstrap, "batch.num.messages": batch_records, "linger.ms": 50}
    )
    for _ in range(20_000):
        writer.produce(topic, b"x" * 200, partition=0)
    writer.flush(30)
    with Consumer(bootstrap, topic, topic, registry=registry, flow=limits) as consumer:
        take_until(consumer, 100, records_max=100)
        while not consumer.flow_stats.pauses:
            threading.Event().wait(0.01)
        threading.Event().wait(0.5)
        # One fetch more than the limit at most, because its size is an estimate.
        assert consumer.flow_stats.peak_records <= 2 * limits.high_records + batch_records


def test_reading_continues_after_the_broker_was_killed(
    platform_of_its_own: Platform,
) -> None:
    platform = platform_of_its_own
    registry, topic = platform.registry, platform.make_topic(partitions=2)
    send(platform.bootstrap, registry, topic, range(100))
    with Consumer(platform.bootstrap, topic, topic, registry=registry) as consumer:
        seen = take_until(consumer, 100)
        platform.kill()
        platform.restart()
        send(platform.bootstrap, registry, topic, range(100, 200))
        while len(set(seen)) < 200:
            seen += ids_of(consumer.take_arrow(wait_s=5))
    assert set(seen) == set(range(200))


@pytest.fixture
def platform_of_its_own() -> Iterator[Platform]:
    platform = Platform("own").start()
    try:
        yield platform
    finally:
        platform.stop()


def test_without_a_committed_offset_the_settings_say_where_to_start(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(bootstrap, registry, topic, range(10))
    with Consumer(bootstrap, topic, f"{topic}-late", registry=registry, start="latest") as late:
        assert late.take_arrow(wait_s=2) is None
        send(bootstrap, registry, topic, range(10, 15))
        assert take_until(late, 5) == list(range(10, 15))
    with (
        Consumer(bootstrap, topic, f"{topic}-none", registry=registry, start="error") as strict,
        pytest.raises(BrokerError),
    ):
        strict.take_arrow(wait_s=20)


def test_a_transaction_that_is_rolled_back_delivers_its_columns_again(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    send(bootstrap, registry, source, range(30))
    mode = CommitMode.EXACTLY_ONCE
    with (
        Consumer(bootstrap, source, source, registry=registry, commit_mode=mode) as consumer,
        Producer(bootstrap, target, transactional_id=source) as producer,
    ):
        first = take_until(consumer, 10, records_max=10)
        with pytest.raises(ArithmeticError), producer.transaction(consumer):
            raise ArithmeticError
        again = take_until(consumer, 10, records_max=10)
        assert again == first
        with producer.transaction(consumer):
            producer.send_many(map(str, again))
    with Consumer(bootstrap, source, source, registry=registry) as consumer:
        assert take_until(consumer, 20) == list(range(10, 30))


def test_settings_that_the_link_does_not_know_are_refused_by_name(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    settings = {"sasl.oauthbearer.config": "principal=me"}
    with (
        Consumer(bootstrap, topic, topic, registry=registry, settings=settings) as consumer,
        pytest.raises(ArgumentError, match=r"sasl\.oauthbearer\.config"),
    ):
        consumer.take_arrow(wait_s=5)
