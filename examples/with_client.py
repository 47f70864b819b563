"""The shop's questions answered by plain programs on `penstock.client`: no Spark, no Java.

Each reads its topic from the beginning as a group of its own. What cannot be read is put into
`<orders>.quarantine` by the consumer, with the reason.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import TopicPartition

from examples.orders import SCHEMAS, Topics, Total
from examples.orders.expected import WINDOW_MS
from examples.orders.story import PAY_WITHIN_MS
from penstock.client.consumer import Consumer
from penstock.client.event import Event
from penstock.client.quarantine import quarantine_topic, read_quarantined
from penstock.client.registry import Registry
from penstock.model import Millis
from penstock.serde.contract import Contract

IDLE_S = 30.0  # nothing more came for so long: something is wrong
TAKE_MAX = 2_000
Step = Callable[[str], None]


class Found(NamedTuple):
    """What a way of asking found; the same shape as what was expected."""

    revenue: dict[tuple[Millis, str], Total]
    paid: dict[str, tuple[str, int]]
    quarantined: dict[str, int]


def answer(kafka: str, registry_url: str, topics: Topics, step: Step) -> Found:
    """All of them, one after another; `step` is told what is being done."""
    with Registry(registry_url, client="demo") as registry:
        step("orders by hour and country")
        orders = _values(kafka, topics.orders, registry, "order-v3.avsc")
        step("payments joined with their orders")
        payments = _values(kafka, topics.payments, registry, "payment-v1.avsc")
    step("what could not be read")
    return Found(_revenue(orders), _paid(orders, payments), _reasons(kafka, topics.orders))


def _revenue(orders: list[dict[str, Any]]) -> dict[tuple[Millis, str], Total]:
    totals: dict[tuple[Millis, str], Total] = {}
    for order in orders:
        at = _millis(order["at"])
        place = (Millis(at - at % WINDOW_MS), order["country"])
        before = totals.get(place, Total())
        totals[place] = Total(before.orders + 1, before.cents + order["cents"])
    return totals


def _paid(
    orders: list[dict[str, Any]], payments: list[dict[str, Any]]
) -> dict[str, tuple[str, int]]:
    placed = {order["order_id"]: _millis(order["at"]) for order in orders}
    paid: dict[str, tuple[str, int]] = {}
    for payment in payments:
        wait_ms = _millis(payment["paid_at"]) - placed[payment["order_id"]]
        if 0 <= wait_ms <= PAY_WITHIN_MS:
            paid[payment["order_id"]] = (payment["payment_id"], wait_ms)
    return paid


def _millis(moment: Any) -> Millis:
    """Avro's timestamps come as aware datetimes."""
    return Millis(round(moment.timestamp() * 1000))


def _values(kafka: str, topic: str, registry: Registry, schema: str) -> list[dict[str, Any]]:
    """The values of a topic as a reader's schema sees them."""
    contract = Contract(SCHEMAS / schema, auto_register=False)
    group = f"demo-{topic}"
    with Consumer(kafka, topic, group, registry=registry, value=contract) as consumer:
        return [event.value for event in _all_events(consumer, topic, _end(kafka, topic))]


def _reasons(kafka: str, topic: str) -> dict[str, int]:
    """Why events are in quarantine, and how many."""
    aside = quarantine_topic(topic)
    with Consumer(kafka, aside, f"demo-{aside}") as consumer:
        found = _all_events(consumer, aside, _end(kafka, aside))
        envelopes = [read_quarantined(event.key, event.value, event.headers) for event in found]
    return dict(Counter(str(one.failure.reason) for one in envelopes))


def _all_events(consumer: Consumer, topic: str, wanted: int) -> Iterator[Event]:
    """So many records: those that can be read; the others are counted by the consumer."""
    seen = 0
    give_up_at_s = time.monotonic() + IDLE_S
    while seen + consumer.quarantined < wanted:
        events = consumer.take(TAKE_MAX)
        if events:
            give_up_at_s = time.monotonic() + IDLE_S
        elif time.monotonic() > give_up_at_s:
            raise TimeoutError(f"{topic}: {seen} of {wanted} events came, and then no more")
        seen += len(events)
        yield from events


def _end(kafka: str, topic: str) -> int:
    """How many records a topic has, of which none was deleted."""
    consumer = PlainConsumer({"bootstrap.servers": kafka, "group.id": "demo"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in partitions]
        return sum(consumer.get_watermark_offsets(place, timeout=20)[1] for place in places)
    finally:
        consumer.close()
