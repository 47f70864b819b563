"""Records on their way to brokers, and a thread that hears what became of them.

When librdkafka's queue is full, putting waits: that is backpressure, and it ends in an error only
if nothing moved for long. Knows nothing of contracts.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from penstock.client.kafka_errors import BrokerError, connected, explained
from penstock.link.settings import IDEMPOTENT_PRODUCER
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.errors import ArgumentError, ClosedError, DeliveryError, WaitTimeoutError

logger = logging.getLogger(__name__)

QUEUE_WAIT_S: Final = 60.0  # how long a full queue may stand still before putting gives up
CLOSE_WAIT_S: Final = 30.0
METADATA_S: Final = 30.0  # how long the number of partitions is believed
TOPICS_MAX: Final = 1000  # whose number of partitions is remembered
_POLL_S: Final = 0.1

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]
RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


class Placed(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: Offset
    timestamp: Millis


class Outgoing(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    partition: int | None = None  # None: by its key
    timestamp: Millis | None = None  # None: now


class Deliveries:
    """What becomes of many records: how many are there, which are not, and up to where they go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken as it is for each record: a condition costs more
        self._changed = threading.Condition(self._lock)
        self.sent = 0
        self.delivered = 0
        self.failures: list[DeliveryError] = []
        self._last_offsets: dict[tuple[str | None, int | None], int | None] = {}

    @property
    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """What comes after the last one that is there, in each partition."""
        with self._changed:
            return {
                TopicPartition(topic, partition): Offset(offset + 1)
                for (topic, partition), offset in self._last_offsets.items()
                # Nobody tells offsets with acks=0.
                if topic is not None and partition is not None and offset is not None
            }

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until all are delivered; how many. Raises the first failure."""
        with self._changed:
            is_done = self._changed.wait_for(self._all_heard, timeout_s)
        if not is_done:
            raise WaitTimeoutError(
                f"{self.delivered} of {self.sent} records were delivered within {timeout_s} s; "
                "the rest are still on their way: wait again"
            )
        if self.failures:
            raise self.failures[0]
        return self.delivered

    def _all_heard(self) -> bool:
        return self.delivered + len(self.failures) >= self.sent

    def put_all(self, outbox: "Outbox", records: Sequence[Outgoing]) -> None:
        """Send some more."""
        with self._changed:
            row = self.sent
            self.sent += len(records)
        try:
            for record in records:
                outbox.put(record, partial(self._on_delivery, row))
                row += 1
        except BaseException:
            with self._changed:
                self.sent = row
                self._changed.notify_all()
            raise

    def _on_delivery(self, row: int, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            if error is None:
                self.delivered += 1
                self._last_offsets[message.topic(), message.partition()] = message.offset()
            else:
                self.failures.append(_failed(error, message, row))
            if self._all_heard():
                self._changed.notify_all()


class Outbox:
    """Safe for threads. `settings` are librdkafka's, by its names."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        self.kafka = connected(
            KafkaProducer, bootstrap, {**IDEMPOTENT_PRODUCER, **(settings or {})}
        )
        self._partition_counts: dict[str, tuple[int, float]] = {}  # and when they were asked for
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._hear, name="deliveries", daemon=True)
        self._thread.start()

    def put(self, record: Outgoing, on_delivery: OnDelivery) -> None:
        """Send a record; `on_delivery` is told what became of it, on a thread of its own."""
        if self._stopping.is_set():
            raise ClosedError("it was closed; nothing can be sent any more")
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = _header_pairs(record)
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp is not None:
            more["timestamp"] = record.timestamp
        full_since_s = 0.0
        while True:
            try:
                self.kafka.produce(
                    record.topic, record.value, record.key, on_delivery=on_delivery, **more
                )
                return
            except BufferError:
                now_s = time.monotonic()
                full_since_s = full_since_s or now_s
                if now_s - full_since_s > QUEUE_WAIT_S:
                    raise self._stuck(record.topic) from None
                self._poll()
            except KafkaException as failure:
                raise BrokerError(failure.args[0], f"sending to {record.topic}") from None
            except (TypeError, ValueError, OverflowError) as wrong:
                raise ArgumentError(
                    f"the record for {record.topic} cannot be sent: {wrong}. The topic is text, "
                    "partition and timestamp are integers, header values are bytes"
                ) from None

    def _stuck(self, topic: str) -> DeliveryError:
        told = (
            f"the queue is full and nothing left it for {QUEUE_WAIT_S:.0f} s. "
            f"Is {self._bootstrap} reachable?"
        )
        return DeliveryError(topic, told, retriable=True)

    def send(self, record: Outgoing) -> "Future[Placed]":
        """Send a record; the future tells where it is, or raises DeliveryError."""
        future: Future[Placed] = Future()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                future.set_result(_placed(message))
            else:
                future.set_exception(_failed(error, message))

        self.put(record, on_delivery)
        return future

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; asked anew now and then."""
        count, asked_s = self._partition_counts.get(topic, (0, 0.0))
        now_s = time.monotonic()
        if count and now_s - asked_s < METADATA_S:
            return count
        try:
            found = self.kafka.list_topics(topic, timeout=10).topics[topic]
        except KafkaException as failure:
            raise BrokerError(failure.args[0], f"asking for the partitions of {topic}") from None
        if found.error is not None:
            raise BrokerError(found.error, f"asking for the partitions of {topic}")
        if len(self._partition_counts) >= TOPICS_MAX:
            self._partition_counts.clear()
        self._partition_counts[topic] = (len(found.partitions), now_s)
        return len(found.partitions)

    def flush(self, timeout_s: float = CLOSE_WAIT_S) -> int:
        """Wait until nothing is under way; how many records still are when the time is over."""
        try:
            return int(self.kafka.flush(timeout_s))
        except KafkaException as failure:
            raise BrokerError(failure.args[0], "waiting for deliveries") from None

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is under way, and stop."""
        if not self._stopping.is_set():
            try:
                self.flush(timeout_s)
            except BrokerError as failure:
                logger.warning("closing: %s", failure)
            self._stopping.set()
            self._thread.join()

    def _hear(self) -> None:
        while not self._stopping.is_set():
            self._poll()

    def _poll(self) -> None:
        try:
            self.kafka.poll(_POLL_S)
        except KafkaException as failure:
            # A fatal error, which each record and the transaction are told of as well.
            logger.debug("hearing of deliveries: %s", failure)
            self._stopping.wait(_POLL_S)


def _header_pairs(record: Outgoing) -> list[tuple[str, bytes | None]]:
    if isinstance(record.headers, Mapping):
        raise ArgumentError(
            f"the headers of a record for {record.topic} are a dict, and a name may occur more "
            "than once: pass pairs, such as [('trace', b'1')]"
        )
    return list(record.headers)


def _placed(message: Message) -> Placed:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "what was delivered has a topic"
    assert partition is not None, "and a partition"
    place = Offset(-1 if offset is None else offset)  # nobody tells it with acks=0
    return Placed(topic, partition, place, Millis(message.timestamp()[1]))


def _failed(error: KafkaError, message: Message, row: int | None = None) -> DeliveryError:
    topic = message.topic() or "?"
    return DeliveryError(topic, explained(error), retriable=bool(error.retriable()), row=row)
