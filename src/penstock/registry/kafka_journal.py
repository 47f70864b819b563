"""`_schemas` through a Kafka client: read continuously by every node, written under a claim.

Every write is one transaction of one transactional id. A node that claims the id ends what its
predecessor left open, and Kafka itself refuses the predecessor from then on. So two nodes that both
believe to be primary cannot both write. A `KafkaJournal` is one claim.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar

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

from penstock.machine import Applies, Deferred, JournalRecord, TransactionMark
from penstock.model import Millis, Offset
from penstock.registry.store.codec import read_event
from penstock.registry.store.events import Event
from penstock.registry.topic_reader import (
    CannotWriteError,
    TopicReader,
    client_settings,
    ensure_topic,
)

ResultT = TypeVar("ResultT")

TRANSACTION_S: Final = 10.0
CLAIM_S: Final = 10.0
READ_BACK_S: Final = 10.0
COMMITS_MAX: Final = 3  # attempts to commit a transaction


class OutcomeUnknownError(Exception):
    """Perhaps it was written: the next claim finds out."""


class SchemaTopicSettings(NamedTuple):
    """Where the log is."""

    kafka: Mapping[str, str]  # how to connect: `bootstrap.servers`, and logins if any
    topic: str = "_schemas"
    transactional_id: str = "schema-registry"
    replication_factor: int = -1  # the brokers' default
    transaction_ms: int = 10_000


class SchemaTopic:
    """The log, seen from the event loop. `on_events` is called there with what was read."""

    def __init__(
        self, settings: SchemaTopicSettings, on_events: Callable[[Sequence[Event]], None]
    ) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._reader: TopicReader[Event] = TopicReader(
            settings.kafka, settings.topic, read_event, on_events
        )
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="schemas-writer")
        self._journal: KafkaJournal | None = None
        self._end_request: asyncio.Task[Offset] | None = None
        self._admin: AdminClient | None = None
        self.cluster_id: str = ""  # of the brokers, once connected

    @property
    def end_offset(self) -> Offset:
        """Exclusive: everything below was read."""
        return self._reader.end_offset

    async def start(self) -> None:
        """Create the topic if it does not exist, and read it to its end."""
        await self.run(self._ensure_topic)
        await self._reader.start()

    async def stop(self) -> None:
        """Stop reading and writing."""
        await self._reader.stop()
        await self.release()
        self._writer.shutdown(wait=False)

    async def claim(self) -> "KafkaJournal":
        """Become the only writer, fencing the one before."""
        await self.release()
        producer = await self.run(self._new_producer)
        self._journal = KafkaJournal(self, producer, self._settings.topic)
        return self._journal

    async def release(self) -> None:
        """Write no more."""
        journal, self._journal = self._journal, None
        if journal is not None:
            await self.run(journal.close)

    async def written_end(self) -> Offset:
        """Where the log ends now, whichever node wrote it; concurrent callers share a request."""
        if self._end_request is None or self._end_request.done():
            self._end_request = asyncio.create_task(self.run(self._request_end))
        return await asyncio.shield(self._end_request)

    async def reached(self, end_offset: Offset, within_s: float = READ_BACK_S) -> None:
        """Wait until everything below was read and applied; TimeoutError."""
        await self._reader.reached(end_offset, within_s)

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run something in the thread that writes."""
        return await self._loop.run_in_executor(self._writer, work)

    # In the writer's thread.

    def _ensure_topic(self) -> None:
        settings = self._settings
        self.cluster_id = ensure_topic(
            settings.kafka,
            settings.topic,
            settings.replication_factor,
            {"cleanup.policy": "compact"},
        )

    def _request_end(self) -> Offset:
        if self._admin is None:
            self._admin = AdminClient(client_settings(self._settings.kafka))
        partition = TopicPartition(self._settings.topic, 0)
        futures = self._admin.list_offsets(
            {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]  # theirs has none
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=TRANSACTION_S,
        )
        try:
            return Offset(futures[partition].result().offset)
        except KafkaException as error:
            raise CannotWriteError(error.args[0].str()) from None

    def _new_producer(self) -> Producer:
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
        except KafkaException as error:
            raise CannotWriteError(error.args[0].str()) from None
        return producer


class KafkaJournal:
    """The journal port over the topic, for one claim: applied when it was read back."""

    def __init__(self, topic: SchemaTopic, producer: Producer, topic_name: str) -> None:
        self._topic = topic
        self._producer: Producer | None = producer
        self._topic_name = topic_name
        self._writing: asyncio.Task[None] | None = None

    @property
    def applies(self) -> Literal[Applies.ON_READ_BACK]:
        """Other nodes may write, and the outcome of a write may be unknown."""
        return Applies.ON_READ_BACK

    def append(
        self,
        records: Sequence[JournalRecord],
        now: Millis,
        mark: TransactionMark | None = None,
    ) -> Deferred[Offset]:
        """Write all records in one transaction, or none; resolved when they were read back.

        CannotWriteError: nothing was written. OutcomeUnknownError: perhaps it was. TimeoutError: it
        was, and could not be read back.
        """
        assert mark is None
        written: Deferred[Offset] = Deferred()
        self._writing = asyncio.create_task(self._write(records, written))
        return written

    async def _write(self, records: Sequence[JournalRecord], written: Deferred[Offset]) -> None:
        try:
            end_offset = await self._topic.run(partial(self._append, records))
            await self._topic.reached(end_offset)
        except Exception as error:  # noqa: BLE001 - the callers get it
            written.resolve(error)
        else:
            written.resolve(end_offset)

    # In the writer's thread.

    def close(self) -> None:
        """Give up the claim."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _append(self, records: Sequence[JournalRecord]) -> Offset:
        producer = self._producer
        if producer is None:
            raise CannotWriteError("this node is not the primary")
        offsets: list[int] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)

        try:
            producer.begin_transaction()
            for record in records:
                producer.produce(
                    self._topic_name,
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
        for attempt in range(1, COMMITS_MAX + 1):
            try:
                producer.commit_transaction(TRANSACTION_S)
            except KafkaException as failure:
                error = failure.args[0]
                if not error.retriable() or attempt == COMMITS_MAX:
                    self._give_up(producer, error)
            else:
                return

    def _give_up(self, producer: Producer, error: KafkaError) -> None:
        """Leave no open transaction, and raise what is known of the outcome."""
        if error.fatal():
            self.close()
            raise CannotWriteError(f"another node took over ({error.str()})")
        if error.txn_requires_abort():
            try:
                producer.abort_transaction(TRANSACTION_S)
            except KafkaException as failure:
                self.close()
                if failure.args[0].fatal():
                    raise CannotWriteError("another node took over") from None
                raise OutcomeUnknownError(failure.args[0].str()) from None
            raise CannotWriteError(error.str())
        self.close()
        raise OutcomeUnknownError(error.str())
