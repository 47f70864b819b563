"""A topic of one partition, read from its beginning and on; its thread hands over to the loop.

What is committed is seen once and in order. A batch is handed over only when the one before it was
taken: a long topic must not pile up in front of the loop.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
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

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
BATCH_RECORDS_MAX: Final = 2000
ORDER_S: Final = 10.0
RETRY_S: Final = 1.0
_Item = TypeVar("_Item")


class CannotWrite(Exception):
    """Nothing was written: the cluster refused it, or another node took over."""


class Batch(NamedTuple, Generic[_Item]):
    """What was found: items in order, where they end, and whether that is the end."""

    items: Sequence[_Item]
    end_offset: Offset
    is_end: bool


# Key, value and time of a record; None for what means nothing here.
Understand = Callable[[bytes | None, bytes | None, Millis], _Item | None]


class TopicReader(Generic[_Item]):
    """Seen from the event loop, where `on_items` is called with what was understood."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        understand: Understand[_Item],
        on_items: Callable[[Sequence[_Item]], None],
    ) -> None:
        self._kafka = kafka
        self._topic = topic
        self._understand = understand
        self._on_items = on_items
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name=f"{topic}-reader", daemon=True)
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self.end_offset = Offset(0)  # exclusive: everything below was taken

    async def start(self) -> None:
        """Read the topic to its end, and go on reading."""
        self._thread.start()
        await self._loaded

    async def stop(self) -> None:
        """Read no more."""
        self._stopping.set()
        if self._thread.ident is not None:
            await self._loop.run_in_executor(None, self._thread.join)
        for _, waiter in self._waiting:
            waiter.cancel()

    async def reached(self, end_offset: Offset, within_s: float) -> None:
        """Wait until everything below was taken; TimeoutError."""
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
                self._read_until_trouble()
            except KafkaException as trouble:
                logger.warning("reading %s failed: %s", self._topic, trouble)
                self._stopping.wait(RETRY_S)

    def _read_until_trouble(self) -> None:
        consumer = Consumer(
            {
                **client_settings(self._kafka),
                "group.id": "schema-registry-reader",  # commits nothing, joins nothing
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,  # the end is told by an empty answer
                "fetch.error.backoff.ms": 50,
            }
        )
        try:
            start = self.end_offset or OFFSET_BEGINNING
            consumer.assign([TopicPartition(self._topic, 0, start)])
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    rest = consumer.consume(BATCH_RECORDS_MAX, 0)
                    self._hand_over(self._understood([first, *rest]))
        finally:
            consumer.close()

    def _understood(self, messages: Sequence[Message]) -> Batch[_Item]:
        items: list[_Item] = []
        end_offset, is_end = self.end_offset, False
        for message in messages:
            error = message.error()
            offset = message.offset()
            if error is None and offset is not None:
                _, timestamp = message.timestamp()
                item = self._understand(message.key(), message.value(), Millis(max(timestamp, 0)))
                if item is not None:
                    items.append(item)
                end_offset = max(end_offset, Offset(offset + 1))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so named
                is_end = True
                end_offset = max(end_offset, Offset(offset or 0))
            elif error is not None and not error.retriable():
                raise KafkaException(error)
        return Batch(items, end_offset, is_end)

    def _hand_over(self, batch: Batch[_Item]) -> None:
        taken = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._take, batch, taken)
        except RuntimeError:  # the loop is closed: so is the process
            self._stopping.set()
            return
        while not taken.wait(POLL_S) and not self._stopping.is_set():
            pass

    def _take(self, batch: Batch[_Item], taken: threading.Event) -> None:
        self.end_offset = max(self.end_offset, batch.end_offset)
        self._on_items(batch.items)
        if batch.is_end and not self._loaded.done():
            self._loaded.set_result(None)
        for end_offset, waiter in self._waiting:
            if end_offset <= self.end_offset and not waiter.done():
                waiter.set_result(None)
        taken.set()


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
    """Make a topic of one partition if it is not there; the id of the cluster. Blocks."""
    admin = AdminClient(client_settings(kafka))
    cluster = admin.list_topics(timeout=ORDER_S)
    if topic not in cluster.topics:
        wanted = NewTopic(
            topic, num_partitions=1, replication_factor=replication_factor, config=config
        )
        _settle(admin.create_topics([wanted])[topic])
    elif len(cluster.topics[topic].partitions) != 1:
        raise CannotWrite(f"the topic {topic} must have exactly one partition")
    return str(cluster.cluster_id)


def _settle(future: Any) -> None:
    """Wait for an order to the cluster; somebody else having done it is fine."""
    try:
        future.result(ORDER_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
