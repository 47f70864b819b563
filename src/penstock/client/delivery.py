"""Sending records through librdkafka, and a thread that collects the delivery reports.

When librdkafka's queue is full, sending waits: that is backpressure, and it ends in an error only
if nothing leaves the queue for a minute. Knows nothing about contracts.
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

from penstock.client.errors import ClosedError, DeliveryError, WaitTimeoutError
from penstock.client.kafka_errors import BrokerError, connect_client, explained
from penstock.link.settings import IDEMPOTENT_PRODUCER
from penstock.model import Millis, Offset, TopicPartition
from penstock.serde.errors import ArgumentError

logger: Final = logging.getLogger(__name__)

QUEUE_WAIT_S: Final = 60.0  # how long a full queue may stay full before sending fails
CLOSE_WAIT_S: Final = 30.0
STICKY_EVENTS: Final = 500  # without a key, to one partition before the next one
METADATA_S: Final = 30.0  # how long the number of partitions is cached
TOPICS_MAX: Final = 1000  # whose number of partitions is cached
_POLL_S: Final = 0.1

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]
RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: Offset  # -1 with acks=0
    timestamp: Millis


class OutgoingRecord(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()
    partition: int | None = None  # None: by its key
    timestamp: Millis | None = None  # None: now


class Deliveries:
    """The deliveries of many records: how many were written, which failed, and where they end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a plain lock per record: a condition costs more
        self._changed = threading.Condition(self._lock)
        self.sent: int = 0
        self.delivered: int = 0
        self.failures: list[DeliveryError] = []
        self._last_offsets: dict[tuple[str | None, int | None], int | None] = {}

    @property
    def end_offsets(self) -> dict[TopicPartition, Offset]:
        """The offset after the last delivered record, by partition; empty with acks=0."""
        with self._changed:
            return {
                TopicPartition(topic, partition): Offset(offset + 1)
                for (topic, partition), offset in self._last_offsets.items()
                if topic is not None and partition is not None and offset is not None
            }

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until all are delivered; returns how many. Raises the first failure."""
        with self._changed:
            is_complete = self._changed.wait_for(self._is_complete, timeout_s)
        if not is_complete:
            raise WaitTimeoutError(
                f"{self.delivered} of {self.sent} records were delivered within {timeout_s} s; "
                "the rest are still in flight: wait again"
            )
        if self.failures:
            raise self.failures[0]
        return self.delivered

    def _is_complete(self) -> bool:
        return self.delivered + len(self.failures) >= self.sent

    def add(self, count: int) -> int:
        """Count more records as sent; the number of the first one."""
        with self._lock:
            row = self.sent
            self.sent += count
            return row

    def on_delivered(self, partition: TopicPartition, count: int, last: Offset | None) -> None:
        """So many more were written to a partition; `last` is the offset of the last, if known."""
        with self._lock:
            self.delivered += count
            if last is not None:
                self._last_offsets[partition.topic, partition.partition] = last
            if self._is_complete():
                self._changed.notify_all()

    def on_failed(self, errors: Sequence[DeliveryError]) -> None:
        """These were not written, or that is unknown."""
        with self._lock:
            self.failures.extend(errors)
            if self._is_complete():
                self._changed.notify_all()

    def send_all(self, sender: "RecordSender", records: Sequence[OutgoingRecord]) -> None:
        """Send more records."""
        row = self.add(len(records))
        try:
            for record in records:
                sender.produce(record, partial(self._on_delivery, row))
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
                self.failures.append(_delivery_error(error, message, row))
            if self._is_complete():
                self._changed.notify_all()


class RecordSender:
    """Safe for threads. `settings` are librdkafka's, by its names."""

    def __init__(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> None:
        self._bootstrap = bootstrap
        own = {**IDEMPOTENT_PRODUCER, **(settings or {})}
        self.kafka: Final = connect_client(KafkaProducer, bootstrap, own)
        self._partition_counts: dict[str, tuple[int, float]] = {}  # and when they were read
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deliveries", daemon=True)
        self._thread.start()

    def produce(self, record: OutgoingRecord, on_delivery: OnDelivery) -> None:
        """Send a record; `on_delivery` is called with the outcome, on the delivery thread."""
        if self._stopping.is_set():
            raise ClosedError("the producer is closed")
        optional: dict[str, Any] = {}
        if record.headers:
            optional["headers"] = _header_pairs(record)
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp is not None:
            optional["timestamp"] = record.timestamp
        full_since_s = 0.0
        while True:
            try:
                self.kafka.produce(
                    record.topic, record.value, record.key, on_delivery=on_delivery, **optional
                )
                return
            except BufferError:
                now_s = time.monotonic()
                full_since_s = full_since_s or now_s
                if now_s - full_since_s > QUEUE_WAIT_S:
                    raise stuck_error(record.topic, self._bootstrap) from None
                self._poll()
            except KafkaException as failure:
                raise BrokerError(failure.args[0], f"sending to {record.topic}") from None
            except (TypeError, ValueError, OverflowError) as invalid:
                raise ArgumentError(
                    f"the record for {record.topic} is invalid: {invalid}. The topic is text, "
                    "partition and timestamp are integers, header values are bytes"
                ) from None

    def send(self, record: OutgoingRecord) -> Future[RecordMetadata]:
        """Send a record; the future is where it was written, or raises DeliveryError."""
        future: Future[RecordMetadata] = Future()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                future.set_result(_metadata(message))
            else:
                future.set_exception(_delivery_error(error, message))

        self.produce(record, on_delivery)
        return future

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, cached for a while."""
        count, read_s = self._partition_counts.get(topic, (0, 0.0))
        now_s = time.monotonic()
        if count and now_s - read_s < METADATA_S:
            return count
        doing = f"reading the number of partitions of {topic}"
        try:
            metadata = self.kafka.list_topics(topic, timeout=10).topics[topic]
        except KafkaException as failure:
            raise BrokerError(failure.args[0], doing) from None
        if metadata.error is not None:
            raise BrokerError(metadata.error, doing)
        if len(self._partition_counts) >= TOPICS_MAX:
            self._partition_counts.clear()
        self._partition_counts[topic] = (len(metadata.partitions), now_s)
        return len(metadata.partitions)

    def flush(self, timeout_s: float = CLOSE_WAIT_S) -> int:
        """Wait until no record is in flight; returns how many still are when the time is over."""
        try:
            return int(self.kafka.flush(timeout_s))
        except KafkaException as failure:
            raise BrokerError(failure.args[0], "waiting for deliveries") from None

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is in flight, and stop."""
        if not self._stopping.is_set():
            try:
                self.flush(timeout_s)
            except BrokerError as failure:
                logger.warning("closing: %s", failure)
            self._stopping.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._poll()

    def _poll(self) -> None:
        try:
            self.kafka.poll(_POLL_S)
        except KafkaException as failure:
            # A fatal error, which every record and the transaction get as well.
            logger.debug("polling for delivery reports: %s", failure)
            self._stopping.wait(_POLL_S)


def stuck_error(topic: str, bootstrap: str) -> DeliveryError:
    """A queue stays full."""
    message = (
        f"the queue is full and nothing left it for {QUEUE_WAIT_S:.0f} s. Is {bootstrap} reachable?"
    )
    return DeliveryError(topic, message, retriable=True)


def _header_pairs(record: OutgoingRecord) -> list[tuple[str, bytes | None]]:
    if isinstance(record.headers, Mapping):
        raise ArgumentError(
            f"the headers of a record for {record.topic} are a dict, but a name may occur more "
            "than once: pass pairs, such as [('trace', b'1')]"
        )
    return list(record.headers)


def _metadata(message: Message) -> RecordMetadata:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a delivered record has a topic"
    assert partition is not None, "and a partition"
    written_at = Offset(-1 if offset is None else offset)
    return RecordMetadata(topic, partition, written_at, Millis(message.timestamp()[1]))


def _delivery_error(error: KafkaError, message: Message, row: int | None = None) -> DeliveryError:
    topic = message.topic() or "?"
    return DeliveryError(topic, explained(error), retriable=bool(error.retriable()), row=row)
