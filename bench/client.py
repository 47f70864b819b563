"""The client: CPU per event and the delay of backpressure, compared with confluent-kafka.

Orders of about 350 B with an Avro contract, on one broker. The peer is confluent-kafka with its
AvroSerializer and AvroDeserializer, one event at a time, as its users write it; Penstock sends
dicts and Arrow batches with `send_many` and reads Arrow batches. CPU is that of the whole process,
including librdkafka's threads. The pause is the time from the high watermark of the queue to the
last record that still arrived; its limit is 100 ms.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bench.figures import LIMIT, Figure, report
from bench.serde import SCHEMA, order
from penstock.client.consumer import Consumer
from penstock.client.flow_control import FlowLimits
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.serde.batch_serializers import BatchDeserializer, BatchSerializer
from penstock.serde.contract import Contract
from penstock.testing.platform import Platform

EVENTS = 100_000
ARROW_US_MAX = 1.3  # CPU per event, all columns
PAUSES = 15
WATCH_S = 0.25  # after a pause: whether anything still arrives
PAUSE_BUDGET_MS = 100.0
UNIT = "CPU us/event"
QUEUE = {"queue.buffering.max.messages": 500_000}


def orders() -> list[dict[str, Any]]:
    """Of about 350 B each; they repeat, because making them is no part of this."""
    rows = [order(random.Random(number), number) for number in range(EVENTS // 10)]
    for row in rows:
        row["items"] = row["items"][:4]
    return rows * 10


def cpu_us(work: Callable[[], None], events: int = EVENTS) -> float:
    start_s = time.process_time()
    work()
    return (time.process_time() - start_s) / events * 1e6


def measure() -> Iterator[Figure]:
    platform = Platform("bench").start()
    try:
        with Registry(platform.registry_url) as registry:
            yield from compared(platform.bootstrap, registry)
        slowest_ms = pause_ms(platform.bootstrap)
        note = f"the slowest of {PAUSES}"
        yield Figure("delay of a pause", slowest_ms, PAUSE_BUDGET_MS, "ms", "<= 1.0", note, LIMIT)
    finally:
        platform.stop()


def compared(bootstrap: str, registry: Registry) -> Iterator[Figure]:
    (ours, arrow), peer = send_ours(bootstrap, registry), send_peer(bootstrap, registry.url)
    yield Figure("produce dicts", ours, peer, UNIT, "<= 0.25")
    yield Figure("produce Arrow, peer from dicts", arrow, peer, UNIT, "<= 0.1")
    peer = read_peer(bootstrap, registry.url)
    for name, columns in (("all columns", None), ("two columns", ["order_id", "total"])):
        arrow = read_ours(bootstrap, registry, columns)
        yield Figure(f"consume to Arrow, {name}", arrow, peer, UNIT, "<= 0.04")
        if columns is None:
            yield Figure("its CPU", arrow, ARROW_US_MAX, UNIT, "<= 1.0", "", LIMIT)


def send_ours(bootstrap: str, registry: Registry) -> tuple[float, float]:
    """From dicts, and from Arrow to a topic of its own."""
    rows, contract = orders(), Contract(SCHEMA)
    framed = BatchSerializer(registry, "ours", contract).serialize_many(rows)
    columns = BatchDeserializer(registry, "ours").deserialize_many(framed.contents()).batch
    spent = []
    for topic, given in (("ours", rows), ("ours-arrow", columns)):
        with Producer(bootstrap, topic, registry=registry, value=contract) as producer:
            producer.send_many(given[:100]).wait()  # so that everything is compiled
            spent.append(cpu_us(lambda: check(producer.send_many(given).wait())))  # noqa: B023 - called at once
    return spent[0], spent[1]


def check(count: int) -> None:
    assert count == EVENTS


def send_peer(bootstrap: str, url: str) -> float:
    rows = orders()
    write = AvroSerializer(SchemaRegistryClient({"url": url}), SCHEMA)
    context = SerializationContext("peer", MessageField.VALUE)
    producer = KafkaProducer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUEUE}
    )
    delivery_errors = []

    def work() -> None:
        for row in rows:
            producer.produce(
                "peer",
                write(row, context),
                on_delivery=lambda error, _message: delivery_errors.append(error),
            )
            producer.poll(0)
        producer.flush()

    spent = cpu_us(work)
    assert delivery_errors == [None] * EVENTS
    return spent


def read_ours(bootstrap: str, registry: Registry, columns: list[str] | None) -> float:
    with Consumer(bootstrap, "ours", f"read-{columns}", registry=registry) as consumer:
        batches = consumer.arrow_batches(columns)
        seen = warm = len(next(batches))

        def work() -> None:
            nonlocal seen
            while seen < EVENTS:
                seen += len(next(batches))

        return cpu_us(work, EVENTS - warm)


def read_peer(bootstrap: str, url: str) -> float:
    read = AvroDeserializer(SchemaRegistryClient({"url": url}), SCHEMA)
    context = SerializationContext("peer", MessageField.VALUE)
    consumer = KafkaConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "peer", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["peer"])
    rows: list[Any] = []

    def work() -> None:
        while len(rows) < EVENTS:
            rows.extend(read(one.value(), context) for one in consumer.consume(500, 1.0))

    spent = cpu_us(work)
    consumer.close()
    return spent


def pause_ms(bootstrap: str) -> float:
    """The slowest of several: from a full queue to the last record that arrived."""
    limits = FlowLimits(high_records=1_000, low_records=100)
    slowest_ms, wait = 0.0, threading.Event()
    with Consumer(bootstrap, "ours", "paused", flow=limits) as consumer:
        stats = consumer.flow_stats
        for number in range(1, PAUSES + 1):
            while stats.pauses < number:
                if stats.arrived - stats.taken <= limits.low_records:
                    wait.wait(0.0005)
                else:
                    consumer.take(100, 0)
            full_s = last_s = time.perf_counter()
            arrived = stats.arrived
            while time.perf_counter() - full_s < WATCH_S:
                if stats.arrived != arrived:
                    arrived, last_s = stats.arrived, time.perf_counter()
                wait.wait(0.0005)
            slowest_ms = max(slowest_ms, (last_s - full_s) * 1000)
            assert stats.pauses == number, "nothing was taken"
            while stats.arrived - stats.taken > limits.low_records:
                consumer.take(100, 0)
    return slowest_ms


if __name__ == "__main__":
    report(measure(), __doc__, peer="confluent-kafka and its Avro serializers")
