"""Writes events to a topic under a contract.

    with Producer("127.0.0.1:9092", "orders", registry=registry,
                  value=Contract(Path("order.avsc"))) as producer:
        placed = producer.send({"id": 7}, key="7").result()
        producer.send_many(orders).wait()

Deliveries are idempotent and acknowledged by all in-sync replicas unless `settings` say otherwise.
Thin over librdkafka: what it can do, `settings` can ask for.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from penstock.client.consuming import Offsets
from penstock.client.contract import Contract
from penstock.client.errors import ClientError
from penstock.client.frame import Side
from penstock.client.outbox import (
    CLOSE_WAIT_S,
    Deliveries,
    Outbox,
    Outgoing,
    Placed,
    RecordHeaders,
)
from penstock.client.partitioners import KEY_HASH, Partitioner
from penstock.client.registry import Registry
from penstock.client.sides import writer_for
from penstock.client.transaction import Transaction
from penstock.model import Millis


class Producer:
    """Writes events to one topic. Safe for threads.

    `value` and `key` are contracts; without one, bytes and text are sent as they are. `partitioner`
    is KEY_HASH (as Java's clients do), RoundRobin(), Sticky() or a function of your own of the
    key's bytes and the number of partitions. `transactional_id` makes `transaction()` possible.
    `settings` are librdkafka's, by its names.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        registry: Registry | None = None,
        value: Contract | None = None,
        key: Contract | None = None,
        partitioner: Partitioner | None = KEY_HASH,
        transactional_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.values = writer_for(topic, Side.VALUE, value, registry)
        self.keys = writer_for(topic, Side.KEY, key, registry)
        self._partitioner = partitioner
        self._transactional_id = transactional_id
        more = dict(settings or {})
        if transactional_id is not None:
            more["transactional.id"] = transactional_id
        self._outbox = Outbox(bootstrap, more)
        self._transaction = Transaction(self._outbox, transactional_id or "")

    def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: Millis | None = None,
    ) -> "Future[Placed]":
        """Send one event; the future tells where it is, or raises DeliveryFailed.

        None as the value deletes the key in a compacted topic. Raises Unencodable at once if the
        value does not fit the contract.
        """
        return self._outbox.send(self._record(value, key, headers, partition, timestamp))

    def send_many(self, values: Iterable[Any], *, keys: Iterable[Any] | None = None) -> Deliveries:
        """Send many events; `wait()` on what is returned until they are there."""
        deliveries = Deliveries()
        pairs = (
            ((value, None) for value in values) if keys is None else zip(values, keys, strict=True)
        )
        for value, key in pairs:
            record = self._record(value, key)
            deliveries.expect(1)
            try:
                self._outbox.put(record, deliveries.on_delivery)
            except BaseException:
                deliveries.expect(-1)
                raise
        return deliveries

    def transaction(self, consumer: Offsets | None = None) -> Transaction:
        """All or nothing: `with producer.transaction(): …` commits at its end or undoes it all.

        With a consumer, what was read from it so far is committed in the same transaction: each
        event is then handled exactly once, as seen by readers of what was committed.
        """
        if self._transactional_id is None:
            raise ClientError(
                "transactions need a name that outlives the process: pass transactional_id=..."
            )
        return self._transaction.over(consumer)

    def flush(self, timeout_s: float = CLOSE_WAIT_S) -> int:
        """Wait until nothing is under way; how many records still are when the time is over."""
        return self._outbox.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is under way, and stop."""
        self._outbox.close(timeout_s)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _record(
        self,
        value: Any,
        key: Any,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: Millis | None = None,
    ) -> Outgoing:
        framed_key, framed_value = self.keys.serialize(key), self.values.serialize(value)
        if framed_key.headers or framed_value.headers:
            headers = [*headers, *framed_key.headers, *framed_value.headers]
        if partition is None and self._partitioner is not None:
            count = self._outbox.partition_count(self.topic)
            partition = self._partitioner(framed_key.content, count)
        return Outgoing(
            self.topic, framed_key.content, framed_value.content, headers, partition, timestamp
        )
