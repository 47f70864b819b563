"""`_schemas` through a Kafka client: a thread that reads it from its beginning, one that writes.

Invariant: what is written is visible here once `append` has returned and `applied` has been waited
for; nobody writes who was fenced. Every write is one transaction of one transactional id: who takes
over the id ends what its predecessor left open, and Kafka itself refuses the predecessor from then
on. So two nodes that both believe to be primary cannot both write.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from penstock.machine import JournalRecord
from penstock.model import Millis, Offset
from penstock.registry.store.codec import read_event
from penstock.registry.store.model import Event

_Made = TypeVar("_Made")
logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
BATCH_RECORDS_MAX: Final = 2000
TRANSACTION_S: Final = 10.0
CLAIM_S: Final = 10.0
APPLY_S: Final = 10.0
RETRY_S: Final = 1.0


class CannotWrite(Exception):
    """Nothing was written: the cluster refused it, or another node took over."""


class OutcomeUnknown(Exception):
    """Perhaps it was written: the next claim settles it."""


class LogSettings(NamedTuple):
    """Where the log is."""

    bootstrap: str
    topic: str = "_schemas"
    transactional_id: str = "schema-registry"
    replication_factor: int = -1  # the brokers' default
    transaction_ms: int = 10_000


class Applied(NamedTuple):
    """What the reader found: events in order, where they end, and whether that is the end."""

    events: Sequence[Event]
    end_offset: Offset
    is_end: bool


class SchemaLog:
    """The log, seen from the event loop. `on_applied` is called there with what was read."""

    def __init__(self, settings: LogSettings, on_applied: Callable[[Applied], None]) -> None:
        self._settings = settings
        self._on_applied = on_applied
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read_on, name="schemas-reader", daemon=True)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="schemas-writer")
        self._producer: Producer | None = None
        self._asking_end: asyncio.Task[Offset] | None = None
        self._admin: AdminClient | None = None
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._loaded: asyncio.Future[None] = self._loop.create_future()
        self.cluster_id: str = ""  # of the brokers, once they were reached
        self.end_offset = Offset(0)  # exclusive: everything below was applied

    async def start(self) -> None:
        """Make the topic if it is not there, and read it to its end."""
        await self._run(self._ensure_topic)
        self._reader.start()
        await self._loaded

    async def stop(self) -> None:
        """Stop both threads."""
        self._stopping.set()
        if self._reader.ident is not None:
            await self._loop.run_in_executor(None, self._reader.join)
        await self._run(self._drop_producer)
        self._writer.shutdown(wait=False)
        for _, waiter in self._waiting:
            waiter.cancel()

    async def claim(self) -> None:
        """Become the only one who may write, fencing whoever was before."""
        await self._run(self._claim)

    async def release(self) -> None:
        """Write no more."""
        await self._run(self._drop_producer)

    async def append(self, records: Sequence[JournalRecord]) -> Offset:
        """Write all or none; where they end. CannotWrite or OutcomeUnknown."""
        return await self._run(partial(self._append, records))

    async def written_end(self) -> Offset:
        """Where the log ends now, whoever wrote it; one question for all who ask meanwhile."""
        if self._asking_end is None or self._asking_end.done():
            self._asking_end = asyncio.create_task(self._run(self._ask_end))
        return await asyncio.shield(self._asking_end)

    async def applied(self, end_offset: Offset, within_s: float = APPLY_S) -> None:
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

    async def _run(self, work: Callable[[], _Made]) -> _Made:
        return await self._loop.run_in_executor(self._writer, work)

    # Reading

    def _read_on(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_until_trouble()
            except KafkaException as trouble:
                logger.warning("reading %s failed: %s", self._settings.topic, trouble)
                self._stopping.wait(RETRY_S)

    def _read_until_trouble(self) -> None:
        consumer = Consumer(
            {
                **client_settings(self._settings),
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
            consumer.assign([TopicPartition(self._settings.topic, 0, start)])
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    rest = consumer.consume(BATCH_RECORDS_MAX, 0)
                    self._hand_over(_understood([first, *rest], self.end_offset))
        finally:
            consumer.close()

    def _hand_over(self, found: Applied) -> None:
        """One batch at a time: a long log must not pile up in front of the loop."""
        done = threading.Event()
        try:
            self._loop.call_soon_threadsafe(self._take, found, done)
        except RuntimeError:  # the loop is closed: so is the process
            self._stopping.set()
            return
        while not done.wait(POLL_S) and not self._stopping.is_set():
            pass

    def _take(self, found: Applied, done: threading.Event) -> None:
        self.end_offset = max(self.end_offset, found.end_offset)
        self._on_applied(found)
        if found.is_end and not self._loaded.done():
            self._loaded.set_result(None)
        for end_offset, waiter in self._waiting:
            if end_offset <= self.end_offset and not waiter.done():
                waiter.set_result(None)
        done.set()

    # Writing, all in the writer's thread

    def _ensure_topic(self) -> None:
        settings = self._settings
        admin = AdminClient(client_settings(settings))
        cluster = admin.list_topics(timeout=TRANSACTION_S)
        self.cluster_id, topics = str(cluster.cluster_id), cluster.topics
        if settings.topic not in topics:
            topic = NewTopic(
                settings.topic,
                num_partitions=1,
                replication_factor=settings.replication_factor,
                config={"cleanup.policy": "compact"},
            )
            _settle(admin.create_topics([topic])[settings.topic])
        elif len(topics[settings.topic].partitions) != 1:
            raise CannotWrite(f"the topic {settings.topic} must have exactly one partition")

    def _ask_end(self) -> Offset:
        if self._admin is None:
            self._admin = AdminClient(client_settings(self._settings))
        place = TopicPartition(self._settings.topic, 0)
        asked = self._admin.list_offsets(
            {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]  # theirs has none
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=TRANSACTION_S,
        )
        try:
            return Offset(asked[place].result().offset)
        except KafkaException as failure:
            raise CannotWrite(failure.args[0].str()) from None

    def _claim(self) -> None:
        self._drop_producer()
        producer = Producer(
            {
                **client_settings(self._settings),
                "transactional.id": self._settings.transactional_id,
                "transaction.timeout.ms": self._settings.transaction_ms,
                "linger.ms": 0,
                "compression.type": "none",
            }
        )
        try:
            producer.init_transactions(CLAIM_S)
        except KafkaException as failure:
            raise CannotWrite(failure.args[0].str()) from None
        self._producer = producer

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _append(self, records: Sequence[JournalRecord]) -> Offset:
        producer = self._producer
        if producer is None:
            raise CannotWrite("this node is not the primary")
        offsets: list[int] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)

        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    self._settings.topic,
                    key=record.key,
                    value=record.value,
                    partition=0,
                    on_delivery=on_delivery,
                )
        except KafkaException as failure:
            self._give_up(producer, failure.args[0])
        self._commit(producer)
        assert len(offsets) == len(records)
        return Offset(max(offsets) + 1)

    def _commit(self, producer: Producer) -> None:
        for attempt in range(3):
            try:
                producer.commit_transaction(TRANSACTION_S)
            except KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or attempt == 2:
                    self._give_up(producer, error)
            else:
                return

    def _give_up(self, producer: Producer, error: KafkaError) -> None:
        """Leave nothing half-written, and say what is known."""
        if error.fatal():
            self._drop_producer()
            raise CannotWrite(f"another node took over ({error.str()})")
        if error.txn_requires_abort():
            try:
                producer.abort_transaction(TRANSACTION_S)
            except KafkaException as failure:
                self._drop_producer()
                if failure.args[0].fatal():
                    raise CannotWrite("another node took over") from None
                raise OutcomeUnknown(failure.args[0].str()) from None
            raise CannotWrite(error.str())
        self._drop_producer()
        raise OutcomeUnknown(error.str())


def client_settings(settings: LogSettings) -> dict[str, Any]:
    """What reader and writer share."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "penstock-registry",
        "log_level": 2,
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1000,
        "error_cb": lambda error: None,
    }


def _settle(future: Any) -> None:
    """Wait for an order to the cluster; somebody else having done it is fine."""
    try:
        future.result(TRANSACTION_S)
    except KafkaException as failure:
        if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _understood(messages: Sequence[Message], end_offset: Offset) -> Applied:
    events: list[Event] = []
    is_end = False
    for message in messages:
        error = message.error()
        offset = message.offset()
        if error is None and offset is not None:
            _, timestamp = message.timestamp()
            key, value = message.key(), message.value()
            event = read_event(key, value, Millis(max(timestamp, 0)))
            if event is not None:
                events.append(event)
            end_offset = max(end_offset, Offset(offset + 1))
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - so named
            is_end = True
            end_offset = max(end_offset, Offset(offset or 0))
        elif error is not None and not error.retriable():
            raise KafkaException(error)
    return Applied(events, end_offset, is_end)
