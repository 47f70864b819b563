"""The consumer against a real broker and registry: delivery, commits and quarantine."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition as KafkaPartition

from penstock.client.commit_tracker import CommitMode
from penstock.client.consumer import Consumer
from penstock.client.decode_filter import OnDecodeError
from penstock.client.errors import ClosedError
from penstock.client.flow_control import FlowLimits
from penstock.client.producer import Producer
from penstock.client.quarantine import QuarantinedRecord, quarantine_topic, read_quarantined
from penstock.client.quarantine_writer import QuarantineError
from penstock.client.registry import Registry
from penstock.client.transaction import TransactionAbortedError
from penstock.model import Offset, TopicPartition
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError, DecodeError, Reason, RegistryUnavailableError
from penstock.serde.frame import SchemaId, write_prefix
from penstock.serde.serializers import Serializer

MakeTopic = Callable[..., str]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = KafkaConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    (offset,) = consumer.committed([KafkaPartition(topic, partition)], timeout=20)
    consumer.close()
    return int(offset.offset)


def fill(bootstrap: str, topic: str, count: int, start: int = 0) -> None:
    with Producer(bootstrap, topic) as producer:
        producer.send_many(str(number) for number in range(start, start + count)).wait(30)


def values(consumer: Consumer, count: int) -> list[Any]:
    events = consumer.events(idle_s=20)
    return [next(events).value for _ in range(count)]


def in_quarantine(bootstrap: str, topic: str, count: int) -> list[QuarantinedRecord]:
    records = []
    with Consumer(bootstrap, quarantine_topic(topic), f"look-{topic}") as consumer:
        for event in consumer.events(idle_s=20):
            records.append(read_quarantined(event.key, event.value, event.headers))
            if len(records) == count:
                break
    return records


def test_events_come_in_order_with_their_positions(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, registry=registry, value=Contract(ORDER)) as producer:
        producer.send({"id": 5}, key=b"k", headers=[("h", b"v")]).result(30)
    with Consumer(bootstrap, topic, f"g-{topic}", registry=registry) as consumer:
        event = next(iter(consumer))
    assert (event.topic, event.partition, event.offset) == (topic, 0, 0)
    assert (event.key, event.value, event.headers) == (b"k", {"id": 5}, (("h", b"v"),))
    assert event.topic_partition == TopicPartition(topic, 0)


def test_at_least_once_commits_an_event_when_the_next_is_taken(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 5)
    with Consumer(bootstrap, topic, topic) as consumer:
        assert values(consumer, 3) == [b"0", b"1", b"2"]  # the third is not handled
    assert committed(bootstrap, topic, topic) == 2
    with Consumer(bootstrap, topic, topic) as consumer:
        assert values(consumer, 1) == [b"2"]
        consumer.commit()
    assert committed(bootstrap, topic, topic) == 3


def test_at_most_once_commits_before_delivery(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 2)
    with Consumer(bootstrap, topic, topic, commit_mode=CommitMode.AT_MOST_ONCE) as consumer:
        assert values(consumer, 1) == [b"0"]
        at = committed(bootstrap, topic, topic)
        assert at >= 1
    assert committed(bootstrap, topic, topic) == at


def test_batches_and_takes_are_handled_when_the_next_is_taken(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 10)
    seen: list[bytes] = []
    with Consumer(bootstrap, topic, topic) as consumer:
        for batch in consumer.batches(records_max=4, idle_s=20):
            assert len(batch) <= 4
            seen += [event.value for event in batch]
            if len(seen) == 10:
                break
    assert seen == [str(number).encode() for number in range(10)]
    last = committed(bootstrap, topic, topic)
    assert 6 <= last < 10  # the last batch is not handled
    with Consumer(bootstrap, topic, topic) as consumer:
        taken: list[Any] = []
        while len(taken) < 10 - last:
            taken += consumer.take(wait_s=20)
        assert consumer.take(wait_s=0) == []
    assert committed(bootstrap, topic, topic) == 10


def test_a_consumer_can_seek_and_pause_a_partition(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    with Producer(bootstrap, topic) as producer:
        for partition in (0, 1):
            producer.send(f"p{partition}", partition=partition).result(30)
    with Consumer(bootstrap, topic, topic) as consumer:
        assert sorted(values(consumer, 2)) == [b"p0", b"p1"]
        paused = TopicPartition(topic, 0)
        consumer.pause([paused])
        consumer.seek(paused, Offset(0))
        consumer.seek(TopicPartition(topic, 1), Offset(0))
        assert [event.value for event in consumer.events(idle_s=1)] == [b"p1"]
        consumer.resume([paused])
        assert values(consumer, 1) == [b"p0"]
        assert consumer.assignment == {paused, TopicPartition(topic, 1)}


def test_unreadable_events_go_to_quarantine_and_the_others_are_delivered(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    good = Serializer(registry, topic, Contract(ORDER)).serialize({"id": 1}).content
    assert good is not None
    unknown = write_prefix(SchemaId(2**30)) + b"x"
    with Producer(bootstrap, topic) as producer:
        for value in (b"{}", good, unknown, good[:-1], good):
            producer.send(value, key=b"key", headers=[("trace", b"t")]).result(30)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        assert [event.offset for event in consumer.events(idle_s=0.8)] == [1, 4]
        assert consumer.quarantined == 3
        subject = f"{topic}-value"
        ((read_subject, stats),) = consumer.read_stats
        assert read_subject == subject
        assert stats.errors == {
            (subject, Reason.NOT_FRAMED): 1,
            (subject, Reason.UNKNOWN_SCHEMA): 1,
            (subject, Reason.UNDECODABLE): 1,
        }
    assert committed(bootstrap, topic, topic) == 5
    records = in_quarantine(bootstrap, topic, 3)
    assert [one.origin.value for one in records] == [b"{}", unknown, good[:-1]]
    assert {one.origin.key for one in records} == {b"key"}
    assert list(records[1].origin.headers) == [("trace", b"t")]
    origin, failure = records[1]
    assert (origin.topic, origin.partition, origin.offset) == (topic, 0, 2)
    assert (failure.reason, failure.schema) == (Reason.UNKNOWN_SCHEMA, str(2**30))
    assert failure.subject == subject


@pytest.mark.parametrize("as_columns", [False, True], ids=["take", "take_arrow"])
def test_take_waits_for_a_readable_event_after_unreadable_ones(
    bootstrap: str, registry: Registry, make_topic: MakeTopic, as_columns: bool
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"unreadable").result(30)
    contract = Contract(ORDER)
    with Consumer(bootstrap, topic, topic, registry=registry, value=contract) as consumer:
        with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
            later = threading.Timer(1.5, producer.send, [{"id": 5}])
            later.start()
            if as_columns:
                batch = consumer.take_arrow(records_max=1, wait_s=30)
                assert batch is not None
                assert batch.values.to_pylist() == [{"id": 5}]
            else:
                assert [event.value for event in consumer.take(1, wait_s=30)] == [{"id": 5}]
            later.join()
        assert consumer.quarantined == 1


def test_take_returns_nothing_only_after_its_wait(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic) as producer:
        producer.send(b"unreadable").result(30)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        while not consumer.assignment:
            assert consumer.take(1, wait_s=0) == []
        started_s = time.monotonic()
        assert consumer.take(1, wait_s=2) == []
        assert time.monotonic() - started_s >= 2
        assert consumer.quarantined == 1


def test_many_unreadable_events_are_quarantined_and_committed(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 2000)
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        assert list(consumer.events(idle_s=0.8)) == []
        assert consumer.quarantined == 2000
    assert committed(bootstrap, topic, topic) == 2000


def test_on_decode_error_raises_or_skips(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    good = Serializer(registry, topic, Contract(ORDER)).serialize({"id": 1}).content
    with Producer(bootstrap, topic) as producer:
        producer.send_many([good, b"bad", good]).wait(30)
    raising = Consumer(
        bootstrap, topic, f"{topic}-r", registry=registry, on_decode_error=OnDecodeError.RAISE
    )
    with raising as consumer:
        assert [event.offset for event in consumer.take(wait_s=20)][:1] == [0]
        offsets: list[int] = []
        with pytest.raises(DecodeError, match=f"{topic}-0 at 1"):
            consumer.take(wait_s=20)
        while not offsets:
            offsets = [event.offset for event in consumer.take(wait_s=20)]
        assert offsets == [2]
    skipping = Consumer(
        bootstrap, topic, f"{topic}-s", registry=registry, on_decode_error=OnDecodeError.SKIP
    )
    with skipping as consumer:
        assert [event.offset for event in consumer.events(idle_s=0.8)] == [0, 2]
        assert consumer.quarantined == 0


def test_nothing_is_committed_past_an_event_that_could_not_be_quarantined(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    # Its quarantine exists and accepts only tiny records.
    with Producer(bootstrap, topic) as producer:
        producer.send_many([b"bad", b"bad"]).wait(30)
    narrow = make_topic(**{"max.message.bytes": "100"})
    consumer = Consumer(bootstrap, topic, topic, registry=registry)
    writer = consumer._decoding.quarantine  # noqa: SLF001 - the only way to break it
    record = writer.record
    writer.record = lambda origin, failure: record(origin, failure)._replace(topic=narrow)  # type: ignore[method-assign]  # as above
    with pytest.raises(QuarantineError, match="Create the topic"):
        next(consumer.events(idle_s=20))
    with pytest.raises(QuarantineError):
        consumer.close()
    assert committed(bootstrap, topic, topic) < 0


def test_an_unreachable_registry_delays_events_and_loses_none(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer(bootstrap, topic, registry=registry, value=Contract(ORDER)) as producer:
        producer.send_many({"id": number} for number in range(3)).wait(30)
    with (
        Registry("http://127.0.0.1:1", attempts=1) as down,
        Consumer(bootstrap, topic, topic, registry=down, registry_wait_s=0) as consumer,
    ):
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError, match="Is it running"):
                consumer.take(wait_s=20)
        assert consumer.quarantined == 0
    with Consumer(bootstrap, topic, topic, registry=registry) as consumer:
        assert values(consumer, 3) == [{"id": 0}, {"id": 1}, {"id": 2}]


def transform(consumer: Consumer, producer: Producer, *, fail_at: int) -> Iterator[int]:
    """Doubles numbers in transactions; the one at `fail_at` fails the first time."""
    failed = False
    for batch in consumer.batches(records_max=3, idle_s=1.5):
        try:
            with producer.transaction(consumer):
                for event in batch:
                    producer.send(str(int(event.value) * 2))
                    if int(event.value) == fail_at and not failed:
                        failed = True
                        raise ArithmeticError
        except (ArithmeticError, TransactionAbortedError):
            continue
        yield len(batch)


def test_exactly_once_through_an_abort(bootstrap: str, make_topic: MakeTopic) -> None:
    source, target = make_topic(), make_topic()
    fill(bootstrap, source, 10)
    consumer = Consumer(bootstrap, source, source, commit_mode=CommitMode.EXACTLY_ONCE)
    with consumer, Producer(bootstrap, target, transactional_id=source) as producer:
        assert sum(transform(consumer, producer, fail_at=4)) == 10
    assert committed(bootstrap, source, source) == 10
    with Consumer(bootstrap, target, target) as reader:
        assert [int(event.value) for event in reader.events(idle_s=0.8)] == list(range(0, 20, 2))


def test_exactly_once_quarantines_in_the_same_transaction(
    bootstrap: str, registry: Registry, make_topic: MakeTopic
) -> None:
    source, target = make_topic(), make_topic()
    good = Serializer(registry, source, Contract(ORDER)).serialize({"id": 1}).content
    with Producer(bootstrap, source) as producer:
        producer.send_many([b"bad", good]).wait(30)
    consumer = Consumer(
        bootstrap, source, source, registry=registry, commit_mode=CommitMode.EXACTLY_ONCE
    )
    with consumer, Producer(bootstrap, target, transactional_id=source) as producer:
        events = consumer.events(idle_s=20)
        next(events)
        with pytest.raises(ClientError, match="a contract"), producer.transaction(consumer):
            producer.send({"not": "bytes"})
        next(events)
        with producer.transaction(consumer):
            producer.send(b"made")
    assert committed(bootstrap, source, source) == 2
    with Consumer(bootstrap, quarantine_topic(source), source) as look:
        assert [event.value for event in look.events(idle_s=0.8)] == [b"bad"]


def test_members_share_partitions_and_nothing_is_lost_when_one_leaves(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    seen: Counter[bytes] = Counter()
    lock, stop = threading.Lock(), threading.Event()

    def work(consumer: Consumer) -> None:
        while not stop.is_set():
            for event in consumer.take(records_max=20, wait_s=0.1):
                with lock:
                    seen[event.value] += 1

    first = Consumer(bootstrap, topic, topic, settings=QUICK)
    second = Consumer(bootstrap, topic, topic, settings=QUICK)
    threads = [threading.Thread(target=work, args=(one,)) for one in (first, second)]
    for thread in threads:
        thread.start()
    with Producer(bootstrap, topic) as producer:
        producer.send_many((str(n) for n in range(500)), keys=(str(n) for n in range(500))).wait(30)
        while not (first.assignment and second.assignment):
            stop.wait(0.05)
        producer.send_many(
            (str(n) for n in range(500, 1000)), keys=(str(n) for n in range(500, 1000))
        ).wait(30)
    while len(seen) < 1000:
        stop.wait(0.05)
    stop.set()
    for thread in threads:
        thread.join()
    first.close()
    second.close()
    assert len(seen) == 1000


def test_a_closed_consumer_raises_closed_error(bootstrap: str, topic: str) -> None:
    consumer = Consumer(bootstrap, topic, topic, flow=FlowLimits())
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.take()
    with pytest.raises(ClosedError):
        consumer.seek(TopicPartition(topic, 0), Offset(0))
    consumer.close()
