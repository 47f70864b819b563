"""`_schemas` through a Kafka client: what is there is read on and on, and written by one at a time.

Invariant: what is written is visible here once `append` has returned and `applied` has been waited
for; nobody writes who was fenced. Every write is one transaction of one transactional id: who takes
over the id ends what its predecessor left open, and Kafka itself refuses the predecessor from then
on. So two nodes that both believe to be primary cannot both write.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    AdminClient,
    OffsetSpec,
)

from penstock.machine import JournalRecord
from penstock.model import Offset
from penstock.registry.store.codec import read_event
from penstock.registry.store.events import Event
from penstock.registry.topic_reader import CannotWrite, TopicReader, client_settings, ensure_topic

_Made = TypeVar("_Made")

TRANSACTION_S: Final = 10.0
CLAIM_S: Final = 10.0
APPLY_S: Final = 10.0


class OutcomeUnknown(Exception):
    """Perhaps it was written: the next claim settles it."""


class LogSettings(NamedTuple):
    """Where the log is."""

    kafka: Mapping[str, str]  # how the cluster is reached: `bootstrap.servers`, and logins if any
    topic: str = "_schemas"
    transactional_id: str = "schema-registry"
    replication_factor: int = -1  # the brokers' default
    transaction_ms: int = 10_000


class SchemaLog:
    """The log, seen from the event loop. `on_events` is called there with what was read."""

    def __init__(self, settings: LogSettings, on_events: Callable[[Sequence[Event]], None]) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._reader: TopicReader[Event] = TopicReader(
            settings.kafka, settings.topic, read_event, on_events
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="schemas-writer")
        self._producer: Producer | None = None
        self._asking_end: asyncio.Task[Offset] | None = None
        self._admin: AdminClient | None = None
        self.cluster_id: str = ""  # of the brokers, once they were reached

    @property
    def end_offset(self) -> Offset:
        """Exclusive: everything below was applied."""
        return self._reader.end_offset

    async def start(self) -> None:
        """Make the topic if it is not there, and read it to its end."""
        await self._run(self._ensure_topic)
        await self._reader.start()

    async def stop(self) -> None:
        """Stop reading and writing."""
        await self._reader.stop()
        await self._run(self._drop_producer)
        self._writer.shutdown(wait=False)

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
        await self._reader.reached(end_offset, within_s)

    async def _run(self, work: Callable[[], _Made]) -> _Made:
        return await self._loop.run_in_executor(self._writer, work)

    # All in the writer's thread

    def _ensure_topic(self) -> None:
        settings = self._settings
        self.cluster_id = ensure_topic(
            settings.kafka,
            settings.topic,
            settings.replication_factor,
            {"cleanup.policy": "compact"},
        )

    def _ask_end(self) -> Offset:
        if self._admin is None:
            self._admin = AdminClient(client_settings(self._settings.kafka))
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
                **client_settings(self._settings.kafka),
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
