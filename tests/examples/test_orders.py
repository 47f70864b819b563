"""The made-up shop: the same from the same seed, and what is worked out from it adds up."""

from collections import Counter

import pytest
from confluent_kafka import Consumer

from examples.orders import BadKind, Story, expected, publish, tell
from examples.orders.story import JITTER_MS
from penstock.client.registry import Registry
from penstock.serde.batch_serializers import BatchDeserializer
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry


@pytest.fixture(scope="module")
def story() -> Story:
    return tell(seed=3, orders=600)


def test_the_same_seed_tells_the_same_story(story: Story) -> None:
    assert story == tell(seed=3, orders=600)
    assert story != tell(seed=4, orders=600)


def test_events_are_out_of_order_by_less_than_the_jitter(story: Story) -> None:
    newest = 0
    for order in story.orders:
        assert order.at > newest - JITTER_MS
        newest = max(newest, order.at)
    assert list(story.orders) != sorted(story.orders, key=lambda order: order.at)


def test_every_way_of_being_wrong_is_there(story: Story) -> None:
    assert {bad.kind for bad in story.spoiled} == set(BadKind)


def test_what_is_expected_counts_every_order_once(story: Story) -> None:
    wanted = expected(story)
    cents = sum(order.cents for order in story.orders)
    assert sum(total.orders for total in wanted.revenue.values()) == 600
    assert sum(total.cents for total in wanted.revenue.values()) == cents
    assert sum(total.cents for total in wanted.customers.values()) == cents
    assert sum(wanted.versions.values()) == 600
    assert sum(wanted.quarantined.values()) == len(story.spoiled)
    assert 0 < len(wanted.paid) < len(story.payments)


def test_what_is_published_reads_back_as_expected(story: Story) -> None:
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as service:
        publish(story, broker.bootstrap, service.url)
        values = _values(broker.bootstrap, "orders", len(story.orders) + len(story.spoiled))
        with Registry(service.url, client="tests") as registry:
            found = BatchDeserializer(registry, "orders").deserialize_many(values)
    reasons = Counter(str(wrong.reason) for wrong in found.wrongs)
    assert reasons == expected(story).quarantined
    told = {row["order_id"]: row["cents"] for row in found.batch.to_pylist() if row["order_id"]}
    assert told == {order.order_id: order.cents for order in story.orders}


def _values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "tests", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    while len(values) < count:
        messages = consumer.consume(count, timeout=10)
        assert messages, f"only {len(values)} of {count} came"
        values += [message.value() for message in messages]
    consumer.close()
    return values
