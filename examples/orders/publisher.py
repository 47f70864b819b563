"""Writes the shop's events to a cluster: topics, schemas, and every event acknowledged."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.orders.shop_data import BadEvent, BadKind, Order, ShopData
from penstock.client import BatchSerializer, Contract, Producer, Registry

SCHEMAS: Final = Path(__file__).parent / "schemas"
VERSIONS: Final = (1, 2, 3)
UNKNOWN_FRAME: Final = b"\0" + (987_654_321).to_bytes(4, "big")  # of a schema that does not exist
_ADMIN_WAIT_S: Final = 30


class Topics(NamedTuple):
    """The topics that are written."""

    orders: str = "orders"
    payments: str = "payments"


class _Record(NamedTuple):
    key: str
    value: bytes
    at: int


def publish(
    data: ShopData,
    bootstrap: str,
    registry_url: str,
    *,
    topics: Topics = Topics(),  # noqa: B008 - it is frozen
    partitions: int = 4,
) -> None:
    """Write all events, keyed by order; the record's timestamp is the event's time."""
    _create_topics(bootstrap, topics, partitions)
    with Registry(registry_url, client="shop") as registry:
        orders = _order_records(data, registry, topics.orders)
        payments = _payment_records(data, registry, topics.payments)
    _send(bootstrap, topics.orders, orders)
    _send(bootstrap, topics.payments, payments)


def _create_topics(bootstrap: str, topics: Topics, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    existing = admin.list_topics(timeout=_ADMIN_WAIT_S).topics
    # Event times are of a fixed day: without a limit, retention would delete them.
    missing = [
        NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        for name in topics
        if name not in existing
    ]
    if missing:
        for created in admin.create_topics(missing).values():
            created.result(_ADMIN_WAIT_S)


def _order_records(data: ShopData, registry: Registry, topic: str) -> list[_Record]:
    """Good orders, some of them followed by an event of the broken program."""
    values: dict[str, bytes] = {}
    for version in VERSIONS:
        contract = Contract(SCHEMAS / f"order-v{version}.avsc")
        writer = BatchSerializer(registry, topic, contract)
        written = [order for order in data.orders if order.version == version]
        contents = writer.serialize_many([order.fields() for order in written]).contents()
        values |= {order.order_id: value for order, value in zip(written, contents, strict=True)}
    return list(_interleaved(data.orders, data.bad_events, values))


def _interleaved(
    orders: Sequence[Order], bad_events: Sequence[BadEvent], values: dict[str, bytes]
) -> Iterator[_Record]:
    after = {bad.order.order_id: bad for bad in bad_events}
    for order in orders:
        value = values[order.order_id]
        yield _Record(order.order_id, value, order.at)
        bad = after.get(order.order_id)
        if bad is not None:
            yield _Record(order.order_id, _bad_value(bad, value), order.at)


def _bad_value(bad: BadEvent, value: bytes) -> bytes:
    match bad.kind:
        case BadKind.GARBAGE:
            return bad.garbage
        case BadKind.UNKNOWN_ID:
            return UNKNOWN_FRAME + value[len(UNKNOWN_FRAME) :]
        case BadKind.TRUNCATED:
            return value[:-3]


def _payment_records(data: ShopData, registry: Registry, topic: str) -> list[_Record]:
    writer = BatchSerializer(registry, topic, Contract(SCHEMAS / "payment-v1.avsc"))
    contents = writer.serialize_many([payment.fields() for payment in data.payments]).contents()
    return [
        _Record(payment.order_id, value, payment.at)
        for payment, value in zip(data.payments, contents, strict=True)
    ]


def _send(bootstrap: str, topic: str, records: Sequence[_Record]) -> None:
    with Producer(bootstrap, topic) as producer:
        sent = [
            producer.send(record.value, key=record.key, timestamp=record.at) for record in records
        ]
        for future in sent:
            future.result(_ADMIN_WAIT_S)
