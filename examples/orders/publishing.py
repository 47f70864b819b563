"""The story written to a cluster: topics made, schemas registered, every event acknowledged."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from examples.orders.story import BadKind, Order, Spoiled, Story
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.model import Millis
from penstock.serde.batch_serializers import BatchSerializer
from penstock.serde.contract import Contract
from penstock.serde.frame import SchemaId, write_prefix

SCHEMAS: Final = Path(__file__).parent / "schemas"
VERSIONS: Final = (1, 2, 3)
NO_SUCH_ID: Final = SchemaId(987_654_321)
_ADMIN_WAIT_S: Final = 30


class Topics(NamedTuple):
    """Where it is written."""

    orders: str = "orders"
    payments: str = "payments"


class _Record(NamedTuple):
    key: str
    value: bytes
    at: Millis


def publish(
    story: Story,
    bootstrap: str,
    registry_url: str,
    *,
    topics: Topics = Topics(),  # noqa: B008 - names that nobody can change
    partitions: int = 4,
) -> None:
    """Write everything, orders and payments keyed by order; the record's time is the event's."""
    _make_topics(bootstrap, topics, partitions)
    with Registry(registry_url, client="the shop") as registry:
        orders = _order_records(story, registry, topics.orders)
        payments = _payment_records(story, registry, topics.payments)
    _send(bootstrap, topics.orders, orders)
    _send(bootstrap, topics.payments, payments)


def _make_topics(bootstrap: str, topics: Topics, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    there = admin.list_topics(timeout=_ADMIN_WAIT_S).topics
    # The story is of a certain day: kept for ever, whatever today is.
    wanted = [
        NewTopic(name, partitions, 1, config={"retention.ms": "-1"})
        for name in topics
        if name not in there
    ]
    if wanted:
        for made in admin.create_topics(wanted).values():
            made.result(_ADMIN_WAIT_S)


def _order_records(story: Story, registry: Registry, topic: str) -> list[_Record]:
    """Good orders, and after some of them what the broken program wrote."""
    values: dict[str, bytes] = {}
    for version in VERSIONS:
        contract = Contract(SCHEMAS / f"order-v{version}.avsc")
        writer = BatchSerializer(registry, topic, contract)
        written = [order for order in story.orders if order.version == version]
        contents = writer.serialize_many([order.fields() for order in written]).contents()
        values |= {order.order_id: value for order, value in zip(written, contents, strict=True)}
    return list(_interleaved(story.orders, story.spoiled, values))


def _interleaved(
    orders: Sequence[Order], spoiled: Sequence[Spoiled], values: dict[str, bytes]
) -> Iterator[_Record]:
    after = {bad.order.order_id: bad for bad in spoiled}
    for order in orders:
        value = values[order.order_id]
        yield _Record(order.order_id, value, order.at)
        bad = after.get(order.order_id)
        if bad is not None:
            yield _Record(order.order_id, _spoil(bad, value), order.at)


def _spoil(bad: Spoiled, value: bytes) -> bytes:
    match bad.kind:
        case BadKind.GARBAGE:
            return bad.noise
        case BadKind.UNKNOWN_ID:
            prefix = write_prefix(NO_SUCH_ID)
            return prefix + value[len(prefix) :]
        case BadKind.TRUNCATED:
            return value[:-3]


def _payment_records(story: Story, registry: Registry, topic: str) -> list[_Record]:
    writer = BatchSerializer(registry, topic, Contract(SCHEMAS / "payment-v1.avsc"))
    contents = writer.serialize_many([payment.fields() for payment in story.payments]).contents()
    return [
        _Record(payment.order_id, value, payment.at)
        for payment, value in zip(story.payments, contents, strict=True)
    ]


def _send(bootstrap: str, topic: str, records: Sequence[_Record]) -> None:
    with Producer(bootstrap, topic) as producer:
        sent = [
            producer.send(record.value, key=record.key, timestamp=record.at) for record in records
        ]
        for one in sent:
            one.result(_ADMIN_WAIT_S)
