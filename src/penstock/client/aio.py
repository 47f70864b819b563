"""The producer, consumer and registry for asyncio programs.

    async with AsyncConsumer("127.0.0.1:9092", "orders", "billing", registry=registry) as consumer:
        async for event in consumer:
            ...

The same methods and arguments as `Producer`, `Consumer` and `Registry`; what waits does so on a
thread, never on the event loop. A cancelled `take` loses nothing: its events come again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.client.consumer import ARROW_RECORDS_MAX, Consumer
from penstock.client.delivery import CLOSE_WAIT_S, Deliveries, RecordHeaders, RecordMetadata
from penstock.client.event import Event
from penstock.client.flow_control import FlowStats
from penstock.client.poll_thread import BATCH_MAX
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.client.registry_api import RequestStats
from penstock.client.single_flight import CacheStats
from penstock.closing import AsyncClosing
from penstock.model import TopicPartition
from penstock.schemas.model import ParsedSchema, Reference, SchemaText
from penstock.serde.frame import SchemaKey
from penstock.serde.schema_source import KnownSchema, Registration
from penstock.serde.serde_stats import SerdeStats

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.event_batch import EventBatch

_POLL_S: Final = 0.5  # the longest time that a step holds the consumer's thread
_Result = TypeVar("_Result")
_Parameters = ParamSpec("_Parameters")


def _with_parameters_of(
    source: Callable[Concatenate[Any, _Parameters], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _Parameters], None]]:
    """Declare that an `__init__` has the parameters of another one, and passes them on."""

    def declare(init: Callable[..., None]) -> Callable[Concatenate[Any, _Parameters], None]:
        return update_wrapper(init, source, assigned=("__annotations__",), updated=())

    return declare


class AsyncRegistry(AsyncClosing):
    """`Registry` for asyncio, over one that may be shared: its caches are used."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @property
    def url(self) -> str:
        """The first of its addresses."""
        return self.registry.url

    @property
    def request_stats(self) -> RequestStats:
        """How many requests were sent, how many failed, and how long they took."""
        return self.registry.request_stats

    @property
    def cache_stats(self) -> Mapping[str, CacheStats]:
        """By cache: `id_by_schema` for writers, `schema_by_id` for readers, `latest`."""
        return self.registry.cache_stats

    async def schema(self, key: SchemaKey) -> KnownSchema:
        """The schema that a frame names, by id or GUID."""
        return await asyncio.to_thread(self.registry.schema, key)

    async def latest(self, subject: str, *, fresh: bool = False) -> KnownSchema:
        """The latest version of a subject, cached for a minute unless `fresh`."""
        return await asyncio.to_thread(self.registry.latest, subject, fresh=fresh)

    async def version(self, subject: str, version: int) -> KnownSchema:
        """One version of a subject."""
        return await asyncio.to_thread(self.registry.version, subject, version)

    async def register(
        self, subject: str, source: SchemaText, *, normalize: bool = False
    ) -> Registration:
        """The id of a schema under a subject; registers it if it is new there."""
        register = self.registry.register
        return await asyncio.to_thread(register, subject, source, normalize=normalize)

    async def look_up(
        self, subject: str, source: SchemaText, *, normalize: bool = False
    ) -> Registration:
        """The id of a schema registered under a subject; raises UnknownSchemaError if it is not."""
        look_up = self.registry.look_up
        return await asyncio.to_thread(look_up, subject, source, normalize=normalize)

    async def parse(self, source: SchemaText) -> ParsedSchema:
        """Parse a schema of the program's own, with its references fetched from the registry."""
        return await asyncio.to_thread(self.registry.parse, source)

    async def register_reference(self, name: str, source: SchemaText) -> Reference:
        """Register what another schema imports, under the name it is imported by."""
        return await asyncio.to_thread(self.registry.register_reference, name, source)

    async def imports(self, source: SchemaText) -> Mapping[str, str]:
        """The texts of all that a schema refers to, directly or not."""
        return await asyncio.to_thread(self.registry.imports, source)

    async def close(self) -> None:
        """Close its connections; cached schemas can still be read."""
        await asyncio.to_thread(self.registry.close)


class AsyncProducer(AsyncClosing):
    """`Producer` for asyncio: `metadata = await producer.send(...)`."""

    @_with_parameters_of(Producer.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self.producer: Final = Producer(*args, **options)
        self.topic: Final = self.producer.topic

    async def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> RecordMetadata:
        """Send one event and wait until it is written; raises DeliveryError or EncodeError."""
        send = partial(
            self.producer.send, value, key=key, headers=headers, partition=partition,
            timestamp=timestamp,
        )  # fmt: skip
        return await asyncio.wrap_future(await asyncio.to_thread(send))

    async def send_many(
        self,
        values: "Iterable[Any] | pa.RecordBatch | pa.Table",
        *,
        keys: "Iterable[Any] | pa.Array[Any] | None" = None,
    ) -> Deliveries:
        """Send many events, dicts or an Arrow batch, and wait until all are delivered."""

        def send() -> Deliveries:
            deliveries = self.producer.send_many(values, keys=keys)
            deliveries.wait()
            return deliveries

        return await asyncio.to_thread(send)

    @asynccontextmanager
    async def transaction(self, consumer: "AsyncConsumer | None" = None) -> AsyncIterator[None]:
        """All or nothing: `async with producer.transaction(): …`, with a consumer's offsets or not.

        What is sent inside becomes visible when the block ends.
        """
        run = asyncio.to_thread if consumer is None else consumer.run
        transaction = self.producer.transaction(None if consumer is None else consumer.consumer)
        await run(transaction.__enter__)
        try:
            yield
        except BaseException as error:
            await run(partial(transaction.__exit__, type(error), error, error.__traceback__))
            raise
        await run(partial(transaction.__exit__, None, None, None))

    async def flush(self, timeout_s: float = CLOSE_WAIT_S) -> int:
        """Wait until no event is in flight; returns how many still are when the time is over."""
        return await asyncio.to_thread(self.producer.flush, timeout_s)

    async def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Deliver what is in flight, and stop."""
        await asyncio.to_thread(self.producer.close, timeout_s)


class AsyncConsumer(AsyncClosing):
    """`Consumer` for asyncio: `async for event in consumer`."""

    @_with_parameters_of(Consumer.__init__)
    def __init__(self, *args: Any, **options: Any) -> None:
        self.consumer: Final = Consumer(*args, **options)
        # A consumer is for one thread, and this is it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consumer")

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.events()

    async def events(self, *, idle_s: float | None = None) -> AsyncIterator[Event]:
        """Events one by one, without end, or until none came for `idle_s`.

        Taking the next one means that this one is handled.
        """
        async for batch in self.batches(records_max=self.consumer.events_per_step, idle_s=idle_s):
            for event in batch:
                yield event

    async def batches(
        self, *, records_max: int = BATCH_MAX, idle_s: float | None = None
    ) -> AsyncIterator[list[Event]]:
        """Events in lists. Taking the next list means that this one is handled."""
        take = partial(self.take, records_max)
        async for batch in _until_idle(take, idle_s):
            yield batch

    async def arrow_batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        records_max: int = ARROW_RECORDS_MAX,
        idle_s: float | None = None,
    ) -> "AsyncIterator[EventBatch]":
        """Events as Arrow batches, of one topic each. Taking the next means this one is handled."""

        async def take(wait_s: float) -> "EventBatch | None":
            return await self.take_arrow(columns, records_max=records_max, wait_s=wait_s)

        async for batch in _until_idle(take, idle_s):
            yield batch

    async def take(self, records_max: int = BATCH_MAX, wait_s: float | None = 1.0) -> list[Event]:
        """Some events as soon as there are any, or none after `wait_s`.

        The next call marks these events as handled.
        """
        return await self._take(partial(self.consumer.take, records_max, wait_s))

    async def take_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        records_max: int = ARROW_RECORDS_MAX,
        wait_s: float | None = 1.0,
    ) -> "EventBatch | None":
        """Some events as one Arrow batch, or None after `wait_s`. Otherwise as `take`."""
        take = partial(self.consumer.take_arrow, columns, records_max=records_max, wait_s=wait_s)
        return await self._take(take)

    async def commit(self) -> None:
        """Commit all events that were delivered, the current one included, and wait."""
        await self.run(self.consumer.commit)

    async def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`, also after rebalances."""
        await self.run(partial(self.consumer.pause, partitions))

    async def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetch these partitions again."""
        await self.run(partial(self.consumer.resume, partitions))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading a partition at an offset."""
        await self.run(partial(self.consumer.seek, partition, offset))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group assigned to this member."""
        return self.consumer.assignment

    @property
    def flow_stats(self) -> FlowStats:
        """How full the queue was, and how often fetching was paused."""
        return self.consumer.flow_stats

    @property
    def read_stats(self) -> list[tuple[str, SerdeStats]]:
        """By subject: how many events were read, how long it took, and which failed."""
        return self.consumer.read_stats

    @property
    def quarantined(self) -> int:
        """How many events were sent to quarantine."""
        return self.consumer.quarantined

    async def close(self) -> None:
        """Leave the group. Handled events are committed, the current one is not."""
        await self.run(self.consumer.close)
        self._thread.shutdown()

    async def run(self, step: Callable[[], _Result]) -> _Result:
        """Run something on the consumer's own thread: `await consumer.run(consumer.consumer.…)`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    async def _take(self, take: Callable[[], _Result]) -> _Result:
        taken: list[_Result] = []

        def step() -> _Result:
            taken.append(take())
            return taken[0]

        def undo() -> None:
            if taken:
                self.consumer.put_back_taken()

        try:
            return await self.run(step)
        except asyncio.CancelledError:
            self._thread.submit(undo)  # after the step, which cannot be interrupted
            raise


async def _until_idle(take: Callable[[float], Any], idle_s: float | None) -> AsyncIterator[Any]:
    """What each call takes, until nothing came for `idle_s`."""
    clock = asyncio.get_running_loop().time
    wait_s = _POLL_S if idle_s is None else min(_POLL_S, idle_s)
    idle_since_s = clock()
    while True:
        taken = await take(wait_s)
        if taken:
            yield taken
            idle_since_s = clock()
        elif idle_s is not None and clock() - idle_since_s >= idle_s:
            return
