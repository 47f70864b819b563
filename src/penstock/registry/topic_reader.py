"""A topic of one partition, read continuously by a thread that hands items to the event loop.

What is committed is read once and in order. A batch is handed over only when the one before it was
applied: a long topic must not fill the memory.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    NewTopic,
)

from penstock.link import settings as link
from penstock.link.settings import librdkafka_settings
from penstock.model import Millis, Offset

logger: Final = logging.getLogger(__name__)

POLL_S: Final = 0.5
BATCH_RECORDS_MAX: Final = 2000
ADMIN_S: Final = 10.0
WATERMARKS_S: Final = 2.0
RETRY_S: Final = 1.0
ItemT = TypeVar("ItemT")


class CannotWriteError(Exception):
    """Nothing was written: the cluster refused it, or another node took over."""


class Batch(NamedTuple, Generic[ItemT]):
    """Items in order, where they end, and whether that is the end of the topic."""

    items: Sequence[ItemT]
    end_offset: Offset
    is_end: bool


# Of the key, value and time of a record; None for a record that is not an item.
ReadItem = Callable[[bytes | None, bytes | None, Millis], ItemT | None]


class TopicReader(Generic[ItemT]):
    """Seen from the event loop, where `on_items` is called with what was read."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        read_item: ReadItem[ItemT],
        on_items: Callable[[Sequence[ItemT]], None],
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._read_item = read_item
        self._on_items = on_items
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name=f"{topic}-reader", daemon=True)
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self.end_offset: Offset = Offset(0)  # exclusive: everything below was applied

    async def start(self) -> None:
        """Read the topic to its end, and go on reading."""
        self._thread.start()
        await self._loaded

    async def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.ident is not None:
            await self._loop.run_in_executor(None, self._thread.join)
        for _, waiter in self._waiting:
            waiter.cancel()

    async def reached(self, end_offset: Offset, within_s: float) -> None:
        """Wait until everything below was applied; TimeoutError."""
        if end_offset <= self.end_offset:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry = (end_offset, waiter)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(within_s):
                await waiter
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    def _read_on(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_until_error()
            except KafkaException as error:
                logger.warning("reading %s failed: %s", self._topic, error)
                self._stopping.wait(RETRY_S)

    def _read_until_error(self) -> None:
        consumer = Consumer(
            {
                **client_settings(self._kafka),
                "group.id": "schema-registry-reader",  # commits nothing, joins nothing
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,  # an empty response shows the end
                "fetch.error.backoff.ms": 50,
            }
        )
        try:
            partition = TopicPartition(self._topic, 0)
            # By number: librdkafka needs half a second to find the beginning of an assigned one.
            first_offset, _ = consumer.get_watermark_offsets(partition, timeout=WATERMARKS_S)
            partition.offset = self.end_offset or first_offset
            consumer.assign([partition])
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    rest = consumer.consume(BATCH_RECORDS_MAX, 0)
                    self._hand_over(self._read_batch([first, *rest]))
        finally:
            consumer.close()

    def _read_batch(self, messages: Sequence[Message]) -> Batch[ItemT]:
        items: list[ItemT] = []
        end_offset, is_end = self.end_offset, False
        for message in messages:
            error = message.error()
            offset = message.offset()
            if error is None and offset is not None:
                _, timestamp = message.timestamp()
                item = self._read_item(message.key(), message.value(), Millis(max(timestamp, 0)))
                if item is not None:
                    items.append(item)
                end_offset = max(end_offset, Offset(offset + 1))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so named
                is_end = True
                end_offset = max(end_offset, Offset(offset or 0))
            elif error is not None and not error.retriable():
                raise KafkaException(error)
        return Batch(items, end_offset, is_end)

    def _hand_over(self, batch: Batch[ItemT]) -> None:
        applied = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._apply, batch, applied)
        except RuntimeError:  # the loop is closed
            self._stopping.set()
            return
        while not applied.wait(POLL_S) and not self._stopping.is_set():
            pass

    def _apply(self, batch: Batch[ItemT], applied: threading.Event) -> None:
        self.end_offset = max(self.end_offset, batch.end_offset)
        self._on_items(batch.items)
        if batch.is_end and not self._loaded.done():
            self._loaded.set_result(None)
        for end_offset, waiter in self._waiting:
            if end_offset <= self.end_offset and not waiter.done():
                waiter.set_result(None)
        applied.set()


def client_settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    """What all clients of the registry share, and how to connect to this cluster."""
    own = {
        "client.id": "penstock-registry",
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1000,
    }
    return link.client_settings(kafka["bootstrap.servers"], {**own, **librdkafka_settings(kafka)})


def ensure_topic(
    kafka: Mapping[str, str], topic: str, replication_factor: int, config: dict[str, str]
) -> str:
    """Create a topic of one partition if it does not exist; the id of the cluster. Blocks."""
    admin = AdminClient(client_settings(kafka))
    cluster = admin.list_topics(timeout=ADMIN_S)
    if topic not in cluster.topics:
        new_topic = NewTopic(
            topic, num_partitions=1, replication_factor=replication_factor, config=config
        )
        _wait_for(admin.create_topics([new_topic])[topic])
    elif len(cluster.topics[topic].partitions) != 1:
        raise CannotWriteError(f"the topic {topic} must have exactly one partition")
    return str(cluster.cluster_id)


def _wait_for(future: Any) -> None:
    """Wait for a topic to be created; another node may have done it."""
    try:
        future.result(ADMIN_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
