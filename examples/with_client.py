"""The shop's results, computed with consumers of `penstock`: without Spark and Java.

Each topic is read from its start by its own group. The consumer sends events that cannot be decoded
to `<orders>.quarantine`, with the reason.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import TopicPartition

from examples.orders import SCHEMAS, Topics, Total
from examples.orders.expected_results import WINDOW_MS
from examples.orders.shop_data import PAY_WITHIN_MS
from penstock import Consumer, Contract, Event, Registry

IDLE_S = 30.0  # without any event: then the example fails
TAKE_MAX = 2_000
Step = Callable[[str], None]


class Results(NamedTuple):
    """Computed results, in the form of the expected ones."""

    revenue: dict[tuple[int, str], Total]
    paid: dict[str, tuple[str, int]]
    quarantined: dict[str, int]


def compute(kafka: str, registry_url: str, topics: Topics, step: Step) -> Results:
    """Compute all results, one after another; `step` is called with a description of each."""
    with Registry(registry_url, client="demo") as registry:
        step("orders by hour and country")
        orders = _values(kafka, topics.orders, registry, "order-v3.avsc")
        step("payments joined with their orders")
        payments = _values(kafka, topics.payments, registry, "payment-v1.avsc")
    step("events that cannot be decoded")
    return Results(_revenue(orders), _paid(orders, payments), _reasons(kafka, topics.orders))


def _revenue(orders: list[dict[str, Any]]) -> dict[tuple[int, str], Total]:
    totals: dict[tuple[int, str], Total] = {}
    for order in orders:
        at = _millis(order["at"])
        window = (at - at % WINDOW_MS, order["country"])
        before = totals.get(window, Total())
        totals[window] = Total(before.orders + 1, before.cents + order["cents"])
    return totals


def _paid(
    orders: list[dict[str, Any]], payments: list[dict[str, Any]]
) -> dict[str, tuple[str, int]]:
    ordered_at = {order["order_id"]: _millis(order["at"]) for order in orders}
    paid: dict[str, tuple[str, int]] = {}
    for payment in payments:
        wait_ms = _millis(payment["paid_at"]) - ordered_at[payment["order_id"]]
        if 0 <= wait_ms <= PAY_WITHIN_MS:
            paid[payment["order_id"]] = (payment["payment_id"], wait_ms)
    return paid


def _millis(moment: Any) -> int:
    """Avro's timestamps are decoded as aware datetimes."""
    milliseconds: int = round(moment.timestamp() * 1000)
    return milliseconds


def _values(kafka: str, topic: str, registry: Registry, schema: str) -> list[dict[str, Any]]:
    """The values of a topic, read with one reader schema."""
    contract = Contract(SCHEMAS / schema, auto_register=False)
    group = f"demo-{topic}"
    with Consumer(kafka, topic, group, registry=registry, value=contract) as consumer:
        return [event.value for event in _all_events(consumer, topic, _end(kafka, topic))]


def _reasons(kafka: str, topic: str) -> dict[str, int]:
    """The number of events in quarantine, by reason."""
    quarantine = f"{topic}.quarantine"
    with Consumer(kafka, quarantine, f"demo-{quarantine}") as consumer:
        events = list(_all_events(consumer, quarantine, _end(kafka, quarantine)))
    reasons = [dict(event.headers)["penstock.quarantine.reason"] or b"" for event in events]
    return dict(Counter(reason.decode() for reason in reasons))


def _all_events(consumer: Consumer, topic: str, count: int) -> Iterator[Event]:
    """The events among this many records; the consumer counts those that cannot be decoded."""
    received = 0
    deadline_s = time.monotonic() + IDLE_S
    while received + consumer.quarantined < count:
        events = consumer.take(TAKE_MAX)
        if events:
            deadline_s = time.monotonic() + IDLE_S
        elif time.monotonic() > deadline_s:
            raise TimeoutError(f"{topic}: received {received} of {count} events in {IDLE_S} s")
        received += len(events)
        yield from events


def _end(kafka: str, topic: str) -> int:
    """The number of records of a topic from which none was deleted."""
    consumer = PlainConsumer({"bootstrap.servers": kafka, "group.id": "demo"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)[1]
            for index in partitions
        )
    finally:
        consumer.close()
