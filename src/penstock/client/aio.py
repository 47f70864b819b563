"""The same producer and consumer for asyncio programs.

    async with AsyncConsumer("127.0.0.1:9092", "orders", "billing", registry=registry) as consumer:
        async for event in consumer:
            ...

Thin: what waits does so on a thread, never on the event loop. Take the arguments and the meaning
of everything from `Producer`, `Consumer` and `Registry`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.client.consumer import ARROW_RECORDS_MAX, Consumer
from penstock.client.delivery import Deliveries, Placed
from penstock.client.event import Event
from penstock.client.poll_thread import BATCH_MAX
from penstock.client.producer import Producer
from penstock.client.registry import Registry
from penstock.closing import AsyncClosing
from penstock.schemas.model import SchemaText
from penstock.serde.frame import SchemaKey
from penstock.serde.schema_source import KnownSchema, Registration

if TYPE_CHECKING:
    from penstock.client.event_batch import EventBatch

_TAKE_S: Final = 0.5
_Answer = TypeVar("_Answer")


class AsyncRegistry:
    """A registry that is asked on threads; its caches are those of the one it wraps."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def schema(self, key: SchemaKey) -> KnownSchema:
        """The schema that a frame names."""
        return await asyncio.to_thread(self.registry.schema, key)

    async def latest(self, subject: str) -> KnownSchema:
        """The latest version of a subject."""
        return await asyncio.to_thread(self.registry.latest, subject)

    async def register(
        self, subject: str, source: SchemaText, *, normalize: bool = False
    ) -> Registration:
        """The id of a schema under a subject; registers it if it is new there."""
        ask = partial(self.registry.register, subject, source, normalize=normalize)
        return await asyncio.to_thread(ask)


class AsyncProducer(AsyncClosing):
    """`Producer` for asyncio: `placed = await producer.send(...)`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.producer = Producer(*arguments, **settings)

    async def send(self, value: Any, **more: Any) -> Placed:
        """Send one event and wait until it is there."""
        sent = await asyncio.to_thread(partial(self.producer.send, value, **more))
        return await asyncio.wrap_future(sent)

    async def send_many(self, values: Any, *, keys: Any = None) -> Deliveries:
        """Send many events, dicts or an Arrow batch, and wait until all are there."""

        def send() -> Deliveries:
            deliveries = self.producer.send_many(values, keys=keys)
            deliveries.wait()
            return deliveries

        return await asyncio.to_thread(send)

    @asynccontextmanager
    async def transaction(self, consumer: "AsyncConsumer | None" = None) -> AsyncIterator[None]:
        """All or nothing: `async with producer.transaction(): …`, with a consumer's offsets or not.

        What is sent inside is seen by others when the block ends.
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

    async def close(self) -> None:
        """Deliver what is under way, and stop."""
        await asyncio.to_thread(self.producer.close)


class AsyncConsumer(AsyncClosing):
    """`Consumer` for asyncio: `async for event in consumer`."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.consumer = Consumer(*arguments, **settings)
        # A consumer is for one thread, and one at a time is what this gives it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="consumer")

    async def take(self, records_max: int = BATCH_MAX, wait_s: float | None = 1.0) -> list[Event]:
        """Some events now, or none when the time is over. The next call says they are done."""
        return await self.run(partial(self.consumer.take, records_max, wait_s))

    async def batches(self, *, records_max: int = BATCH_MAX) -> AsyncIterator[list[Event]]:
        """Events in lists. Asking for the next list says that this one is done."""
        while True:
            batch = await self.take(records_max, _TAKE_S)
            if batch:
                yield batch

    async def arrow_batches(
        self, columns: Sequence[str] | None = None, *, records_max: int = ARROW_RECORDS_MAX
    ) -> "AsyncIterator[EventBatch]":
        """Events as Arrow batches, of one topic each. Asking for the next one says it is done."""
        take = partial(self.consumer.take_arrow, columns, records_max=records_max, wait_s=_TAKE_S)
        while True:
            batch = await self.run(take)
            if batch is not None:
                yield batch

    async def __aiter__(self) -> AsyncIterator[Event]:
        # One at a time, so that asking for the next says that just this one is done.
        async for batch in self.batches(records_max=1):
            yield batch[0]

    async def commit(self) -> None:
        """Commit all that was handed over so far, and wait for it."""
        await self.run(self.consumer.commit)

    async def close(self) -> None:
        """Leave the group."""
        await self.run(self.consumer.close)
        self._thread.shutdown()

    async def run(self, step: Callable[[], _Answer]) -> _Answer:
        """Do something on the consumer's own thread: `await consumer.run(consumer.consumer.…)`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)
