"""The generated shop: the same for the same seed, and with consistent expected results."""

from collections import Counter

import pytest
from confluent_kafka import Consumer

from examples.orders import BadKind, ShopData, expected, generate, publish
from examples.orders.shop_data import JITTER_MS
from penstock.client import BatchDeserializer, Registry
from penstock.testing.embedded import EmbeddedBroker, EmbeddedRegistry


@pytest.fixture(scope="module")
def data() -> ShopData:
    return generate(seed=3, orders=600)


def test_the_same_seed_gives_the_same_shop(data: ShopData) -> None:
    assert data == generate(seed=3, orders=600)
    assert data != generate(seed=4, orders=600)


def test_events_are_out_of_order_by_less_than_the_jitter(data: ShopData) -> None:
    newest = 0
    for order in data.orders:
        assert order.at > newest - JITTER_MS
        newest = max(newest, order.at)
    assert list(data.orders) != sorted(data.orders, key=lambda order: order.at)


def test_every_kind_of_bad_event_occurs(data: ShopData) -> None:
    assert {bad.kind for bad in data.bad_events} == set(BadKind)


def test_the_expected_results_count_every_order_once(data: ShopData) -> None:
    results = expected(data)
    cents = sum(order.cents for order in data.orders)
    assert sum(total.orders for total in results.revenue.values()) == 600
    assert sum(total.cents for total in results.revenue.values()) == cents
    assert sum(total.cents for total in results.customers.values()) == cents
    assert sum(results.versions.values()) == 600
    assert sum(results.quarantined.values()) == len(data.bad_events)
    assert 0 < len(results.paid) < len(data.payments)


def test_published_events_are_read_back_as_expected(data: ShopData) -> None:
    with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap) as service:
        publish(data, broker.bootstrap, service.url)
        values = _values(broker.bootstrap, "orders", len(data.orders) + len(data.bad_events))
        with Registry(service.url, client="tests") as registry:
            read = BatchDeserializer(registry, "orders").deserialize_many(values)
    reasons = Counter(str(error.reason) for error in read.errors)
    assert reasons == expected(data).quarantined
    cents = {row["order_id"]: row["cents"] for row in read.batch.to_pylist() if row["order_id"]}
    assert cents == {order.order_id: order.cents for order in data.orders}


def _values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "tests", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    while len(values) < count:
        messages = consumer.consume(count, timeout=10)
        assert messages, f"received {len(values)} of {count}"
        values += [message.value() for message in messages]
    consumer.close()
    return values
