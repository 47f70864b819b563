"""What all routes of the gateway share: the cluster, the schemas, the limits, and who is running.

One per process. `start` connects nothing: the first request does, so that the gateway serves its
health checks while the cluster is away. `stop` ends what clients left behind.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.client.registry import Registry
from penstock.gateway.cluster_pool import ClusterPool
from penstock.gateway.events import EventRenderer, RenderedEvent, needs_schema
from penstock.gateway.settings import GatewaySettings
from penstock.gateway.topic_watch import TopicWatch
from penstock.gateway.visible_records import VisibleRecords, opened_bytes_max, visible_records
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_once import CommittedBatches, fetch_partitions
from penstock.link.fetch_request import FetchLimits
from penstock.link.routing import Operation
from penstock.link.settings import LinkSettings, link_settings
from penstock.link.topic_admin import describe_topics
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.fetch import FetchedAbort
from penstock.protocol.records import Record

if TYPE_CHECKING:
    from penstock.link.offsets import CommittingMember

logger: Final = logging.getLogger(__name__)

RETRY_MS: Final = 5_000  # how long an operation retries; then the client is asked to
REGISTRY_S: Final = 10.0
THREADS_MAX: Final = 8
_POLL_MS: Final = 100  # between fetches where no connection is left to wait on
_INLINE_BYTES_MAX: Final = 256 << 10  # more than this is opened and rendered in a thread
OPERATIONS: Final = ("events_fetched", "events_quarantined", "records_written")
T = TypeVar("T")


class GatewayNode:
    """The gateway of one process."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings: Final = settings
        self.bootstrap: Final = settings.kafka["bootstrap.servers"]
        self.cluster: Final = self.connect()
        self.schemas: Final = Registry(
            settings.registry_url, client="penstock-gateway", timeout_s=REGISTRY_S, attempts=2
        )
        self.renderer: Final = EventRenderer(self.schemas)
        self.counts: Final = dict.fromkeys(OPERATIONS, 0)  # published as metrics
        self.is_stopping: bool = False
        self.topic_watch: Final = TopicWatch(lambda: self.run(describe_topics()))
        wait_ms = settings.wait_ms_max + RETRY_MS
        self._waiting = ClusterPool(lambda: self.connect(request_timeout_ms=wait_ms))
        self._threads = ThreadPoolExecutor(THREADS_MAX, "gateway")
        self._closing: list[Callable[[], Awaitable[None]]] = []
        # Members that are not in `Members`, by group and id: those of streams.
        self.stream_members: Final[
            dict[tuple[str, str], Callable[[], CommittingMember | None]]
        ] = {}
        self.on_stop(self._waiting.close)

    def connect(self, **changes: int) -> AsyncCluster:
        """Connections of their own to the cluster, for what must not wait behind other requests."""
        return AsyncCluster(self.bootstrap, self.link_settings(**changes))

    def link_settings(self, **changes: int) -> LinkSettings:
        """How brokers are reached."""
        known = link_settings(self.settings.kafka)
        values = {"client_id": "penstock-gateway", "retry_timeout_ms": RETRY_MS, **changes}
        return LinkSettings(**{name: getattr(known, name) for name in _FIELDS} | values)

    async def run(self, operation: Operation[T]) -> T:
        """Perform an operation on the cluster."""
        return await self.cluster.run(operation)

    async def fetch(
        self, positions: Mapping[TopicPartition, Offset], limits: FetchLimits
    ) -> dict[TopicPartition, CommittedBatches]:
        """Committed batches from these positions; returns at once if there are any."""
        fetched = await self.run(fetch_partitions(positions, limits._replace(wait_ms=0)))
        if limits.wait_ms == 0 or any(len(each.batches) for each in fetched.values()):
            return fetched
        if self._waiting.is_exhausted:
            await asyncio.sleep(min(limits.wait_ms, _POLL_MS) / 1000)
            return fetched
        async with self._waiting.borrow() as cluster:
            return await cluster.run(fetch_partitions(positions, limits))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that may block; as many at a time as there are threads, the rest waits."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def open(
        self, batches: memoryview, aborted: Sequence[FetchedAbort], start: Offset, bytes_max: int
    ) -> VisibleRecords:
        """The records that a reader sees. Malformed if they are not records."""
        work = partial(visible_records, batches, aborted, start, bytes_max=bytes_max)
        if opened_bytes_max(batches) <= _INLINE_BYTES_MAX:
            return work()
        return await self.in_thread(work)

    async def render(
        self, partition: TopicPartition, records: Sequence[Record]
    ) -> Sequence[RenderedEvent]:
        """Records as JSON events."""
        size_bytes = sum(len(record.value or b"") for record in records)
        if size_bytes <= _INLINE_BYTES_MAX and not any(map(needs_schema, records)):
            return self.renderer.render(partition, records)
        return await self.in_thread(lambda: self.renderer.render(partition, records))

    def on_stop(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call this when the gateway stops; the last one added is called first."""
        self._closing.append(close)

    async def stop(self) -> None:
        """End streams and members, then the connections."""
        self.is_stopping = True
        while self._closing:
            close = self._closing.pop()
            await close()
        await self.cluster.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.schemas.close()


_FIELDS: Final = tuple(LinkSettings.__dataclass_fields__)
