"""Writes events to a topic under a contract.

    with Producer("127.0.0.1:9092", "orders", registry=registry,
                  value=Contract(Path("order.avsc"))) as producer:
        metadata = producer.send({"id": 7}, key="7").result()
        producer.send_many(orders).wait()

Deliveries are idempotent and acknowledged by all in-sync replicas unless `settings` say otherwise.
Thin over librdkafka: `settings` accept all that it can do.

A partitioner is a function of the key's bytes and the number of partitions. `KEY_HASH` is
librdkafka's own, and the one to use: a key has the same partition in every client with that hash,
the Java client's default included.
"""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.client.delivery import (
    CLOSE_WAIT_S,
    Deliveries,
    OutgoingRecord,
    RecordHeaders,
    RecordMetadata,
    RecordSender,
)
from penstock.client.registry import Registry
from penstock.client.transaction import ProducerTransaction, TransactionalConsumer
from penstock.closing import Closing
from penstock.model import Millis
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.serde.key_value import ManySerializer, iterable_of, row_chunks, serializer_for
from penstock.serde.serializers import Framed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.tracing import Tracing


Partitioner: TypeAlias = Callable[[bytes | None, int], int]

STICKY_EVENTS: Final = 500
KEY_HASH: Final[Partitioner | None] = None  # events without a key stay together for a while
MANY_ROWS: Final = 5_000  # are encoded together, and sent all or none
_NO_KEY: Final = Framed(None)
_END: Final = object()


class RoundRobin:
    """One partition after another, whatever the key: the most even distribution."""

    def __init__(self, first: int = 0) -> None:
        self._numbers = itertools.count(first)

    def __call__(self, _key: bytes | None, partition_count: int) -> int:
        """The next partition."""
        return next(self._numbers) % partition_count


class Sticky:
    """Many events to one partition, then to another, whatever the key: the largest batches."""

    def __init__(self, events: int = STICKY_EVENTS, seed: int | None = None) -> None:
        self._events = events
        self._left = 0
        self._partition = 0
        self._random = random.Random(seed)

    def __call__(self, _key: bytes | None, partition_count: int) -> int:
        """The current partition, or another random one after its share of events."""
        if self._left == 0 or self._partition >= partition_count:
            self._left = self._events
            others = [index for index in range(partition_count) if index != self._partition]
            self._partition = self._random.choice(others or [0])
        self._left -= 1
        return self._partition


class Producer(Closing):
    """Writes events to one topic. Safe for threads.

    `value` and `key` are contracts; without one, bytes and text are sent as they are. `partitioner`
    is KEY_HASH (as the Java client's), RoundRobin(), Sticky() or a function of the key's bytes and
    the number of partitions. `transactional_id` enables `transaction()`. `settings` are
    librdkafka's, by its names. `tracing` makes spans and puts their context into headers.
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
        tracing: "Tracing | None" = None,
    ) -> None:
        self.topic = topic
        self._tracing = tracing
        self.values: Final = serializer_for(topic, Side.VALUE, value, registry)
        self.keys: Final = serializer_for(topic, Side.KEY, key, registry)
        self._many_values, self._many_keys = ManySerializer(self.values), ManySerializer(self.keys)
        self._partitioner = partitioner
        self._transactional_id = transactional_id
        own = dict(settings or {})
        if transactional_id is not None:
            own["transactional.id"] = transactional_id
        self._sender = RecordSender(bootstrap, own)
        self._transaction = ProducerTransaction(self._sender, transactional_id or "")

    def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]:
        """Send one event; the future is where it was written, or raises DeliveryError.

        None as the value deletes the key in a compacted topic. `timestamp` is in milliseconds.
        Raises EncodeError before anything is sent if the value does not fit the contract.
        """
        if self._tracing is not None:
            return self._send_traced(self._tracing, value, key, headers, partition, timestamp)
        framed = self.values.serialize(value)
        return self._sender.send(
            self._record(framed, self.keys.serialize(key), headers, partition, timestamp)
        )

    def _send_traced(
        self,
        tracing: "Tracing",
        value: Any,
        key: Any,
        headers: RecordHeaders,
        partition: int | None,
        timestamp: int | None,
    ) -> Future[RecordMetadata]:
        span = tracing.start_send(self.topic)
        try:
            framed, framed_key = self.values.serialize(value), self.keys.serialize(key)
            headers = tracing.added_to(headers, span)
            delivery = self._sender.send(
                self._record(framed, framed_key, headers, partition, timestamp)
            )
        except BaseException as error:
            tracing.fail(span, error)
            raise
        delivery.add_done_callback(partial(tracing.end_send, span))
        return delivery

    def send_many(
        self,
        values: "Iterable[Any] | pa.RecordBatch | pa.Table",
        *,
        keys: "Iterable[Any] | pa.Array[Any] | None" = None,
    ) -> Deliveries:
        """Send many events; call `wait()` on the result until they are delivered.

        `values` are dicts (any iterable of them), or an Arrow batch or table with a column per
        field; a None among them deletes its key. They are encoded MANY_ROWS at a time, as columns,
        which is several times faster than `send` for each. If one does not fit, EncodeError names
        it, and none of its MANY_ROWS is sent. Traced, they are one span until all are in the queue.
        """
        if self._tracing is None:
            return self._send_many(values, keys, ())
        with self._tracing.sending(self.topic) as span:
            deliveries = self._send_many(values, keys, self._tracing.headers_of(span))
            self._tracing.set_count(span, deliveries.sent)
            return deliveries

    def _send_many(
        self,
        values: "Iterable[Any] | pa.RecordBatch | pa.Table",
        keys: "Iterable[Any] | pa.Array[Any] | None",
        headers: RecordHeaders,
    ) -> Deliveries:
        deliveries = Deliveries()
        left = None if keys is None else iter(iterable_of(keys))
        first_row = 0
        for part in row_chunks(values, MANY_ROWS):
            framed = self._many_values.serialize_many(part, first_row)
            framed_keys = self._next_keys(left, len(framed), first_row)
            records = map(self._record, framed, framed_keys, itertools.repeat(headers))
            deliveries.send_all(self._sender, list(records))
            first_row += len(framed)
        if left is not None and next(left, _END) is not _END:
            raise ClientError(f"there are more keys than events; all {first_row} events were sent")
        return deliveries

    def _next_keys(
        self, keys: Iterator[Any] | None, count: int, first_row: int
    ) -> Iterable[Framed]:
        if keys is None:
            return itertools.repeat(_NO_KEY, count)
        part = list(itertools.islice(keys, count))
        if len(part) < count:
            missing = first_row + len(part)
            raise ClientError(f"there are fewer keys than events: event {missing} has none")
        return self._many_keys.serialize_many(part, first_row)

    def transaction(self, consumer: TransactionalConsumer | None = None) -> ProducerTransaction:
        """All or nothing: `with producer.transaction(): …` commits at its end, or aborts.

        With a consumer, the events read from it so far are committed in the same transaction: each
        event is then handled exactly once, as seen by readers of committed events.
        """
        if self._transactional_id is None:
            raise ClientError(
                "transactions need a name that outlives the process: pass transactional_id=..."
            )
        return self._transaction.over(consumer)

    def flush(self, timeout_s: float = CLOSE_WAIT_S) -> int:
        """Wait until no event is in flight; returns how many still are when the time is over."""
        return self._sender.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is in flight, and stop."""
        self._sender.close(timeout_s)

    def _record(
        self,
        value: Framed,
        key: Framed,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> OutgoingRecord:
        if key.headers or value.headers:
            headers = [*headers, *key.headers, *value.headers]
        if partition is None and self._partitioner is not None:
            count = self._sender.partition_count(self.topic)
            partition = self._partitioner(key.content, count)
        at = None if timestamp is None else Millis(timestamp)
        return OutgoingRecord(self.topic, key.content, value.content, headers, partition, at)
