"""Writes events to a topic under a contract.

    with Producer("127.0.0.1:9092", "orders", registry=registry,
                  value=Contract(Path("order.avsc"))) as producer:
        metadata = producer.send({"id": 7}, key="7").result()
        producer.send_many(orders).wait()

Deliveries are idempotent and acknowledged by all in-sync replicas unless `settings` say otherwise.
`settings` are librdkafka's. It sends single events, and all of a transaction; many events go over
`link` as columns. Switching between the two waits for the other, so that order is kept.

A partitioner is a function of the key's bytes and the number of partitions. `KEY_HASH` is
librdkafka's own, and the one to use: a key has the same partition in every client with that hash,
the Java client's default included.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.client.delivery import (
    CLOSE_WAIT_S,
    STICKY_EVENTS,
    Deliveries,
    OutgoingRecord,
    RecordHeaders,
    RecordMetadata,
    RecordSender,
)
from penstock.client.errors import ClosedError
from penstock.client.registry import Registry
from penstock.client.transaction import ProducerTransaction, TransactionalConsumer
from penstock.closing import Closing
from penstock.extras import is_installed
from penstock.link.settings import IDEMPOTENT_PRODUCER
from penstock.model import Millis
from penstock.serde.contract import Contract
from penstock.serde.errors import ClientError
from penstock.serde.frame import Side
from penstock.serde.key_value import (
    KeyRows,
    ManySerializer,
    RowsGiven,
    row_chunks,
    serializer_for,
)
from penstock.serde.serializers import Framed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.column_sender import ColumnSender
    from penstock.client.tracing import Tracing
    from penstock.serde.framed_column import FramedColumn


Partitioner: TypeAlias = Callable[[bytes | None, int], int]

KEY_HASH: Final[Partitioner | None] = None  # events without a key stay together for a while
MANY_ROWS: Final = 5_000  # are encoded together, and sent all or none
_NO_KEY: Final = Framed(None)


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
        self._columns = _ColumnsOnDemand(bootstrap, topic, {**IDEMPOTENT_PRODUCER, **own})
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
        framed, framed_key = self.values.serialize(value), self.keys.serialize(key)
        return self._send(self._record(framed, framed_key, headers, partition, timestamp))

    def _send(self, record: OutgoingRecord) -> Future[RecordMetadata]:
        self._columns.flush(CLOSE_WAIT_S)  # they have a queue of their own, and came first
        return self._sender.send(record)

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
            delivery = self._send(self._record(framed, framed_key, headers, partition, timestamp))
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
        key_rows = None if keys is None else KeyRows(keys)
        columns = self._columns.sender()
        if columns is not None and len(self._sender.kafka):
            self._sender.flush()  # what was sent one by one has a queue of its own, and came first
        for part in row_chunks(values, MANY_ROWS):
            if columns is None:
                self._send_one_by_one(deliveries, part, key_rows, headers)
            else:
                self._send_columns(columns, deliveries, part, key_rows, headers)
        if key_rows is not None:
            key_rows.check_end()
        return deliveries

    def _send_columns(
        self,
        columns: "ColumnSender",
        deliveries: Deliveries,
        rows: RowsGiven,
        key_rows: KeyRows | None,
        headers: RecordHeaders,
    ) -> None:
        values = self._many_values.serialize_column(rows, deliveries.sent)
        count, keys = len(values.contents), None
        if key_rows is not None:
            keys = self._many_keys.serialize_column(key_rows.take(count), deliveries.sent)
        columns.send(deliveries, values, keys, headers, self._chosen_partitions(count, keys))

    def _send_one_by_one(
        self,
        deliveries: Deliveries,
        rows: RowsGiven,
        key_rows: KeyRows | None,
        headers: RecordHeaders,
    ) -> None:
        """Through librdkafka: in its transactions, and with what only it can do."""
        values = self._many_values.serialize_many(rows, deliveries.sent)
        keys: Iterable[Framed] = itertools.repeat(_NO_KEY, len(values))
        if key_rows is not None:
            keys = self._many_keys.serialize_many(key_rows.take(len(values)), deliveries.sent)
        records = map(self._record, values, keys, itertools.repeat(headers))
        deliveries.send_all(self._sender, list(records))

    def _chosen_partitions(self, count: int, keys: "FramedColumn | None") -> list[int] | None:
        """By a partitioner of the program's own; None: by the keys."""
        if self._partitioner is None:
            return None
        partitions = self._sender.partition_count(self.topic)
        contents = itertools.repeat(None, count) if keys is None else keys.contents.to_pylist()
        chosen = [self._partitioner(key, partitions) for key in contents]
        outside = [partition for partition in chosen if not 0 <= partition < partitions]
        if outside:
            raise ClientError(
                f"the partitioner chose partition {outside[0]}: {self.topic} has {partitions}"
            )
        return chosen

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
        deadline_s = time.monotonic() + timeout_s
        left = self._columns.flush(timeout_s)
        return left + self._sender.flush(max(0.0, deadline_s - time.monotonic()))

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is in flight, and stop."""
        deadline_s = time.monotonic() + timeout_s
        self._columns.close(timeout_s)
        self._sender.close(max(0.0, deadline_s - time.monotonic()))

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


class _ColumnsOnDemand:
    """The sender of columns of one producer, started when the program first sends many events.

    There is none with a transactional id, because a transaction and its sequence numbers are
    librdkafka's alone; without the extra `arrow`; and with settings that `link` does not have.
    """

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, Any]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._settings = settings
        self._lock = threading.Lock()
        self._is_decided = False
        self._is_closed = False
        self._sender: ColumnSender | None = None

    def sender(self) -> "ColumnSender | None":
        """The sender, or None if librdkafka is to send the events."""
        with self._lock:
            if self._is_closed:
                raise ClosedError("the producer is closed")
            if not self._is_decided:
                self._sender = self._start()
                self._is_decided = True
            return self._sender

    def _start(self) -> "ColumnSender | None":
        if "transactional.id" in self._settings or not is_installed("arrow"):
            return None
        from penstock.client.column_sender import ColumnSender  # with the kernels
        from penstock.client.column_settings import column_settings

        settings = column_settings(self._settings)
        return None if settings is None else ColumnSender(self._bootstrap, self._topic, settings)

    def flush(self, timeout_s: float) -> int:
        """Wait until all events are delivered or failed; returns how many are not in time."""
        return 0 if self._sender is None else self._sender.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Deliver what is queued, and stop."""
        with self._lock:
            self._is_closed = True
        if self._sender is not None:
            self._sender.close(timeout_s)
