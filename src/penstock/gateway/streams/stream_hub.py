"""All streams of the process: their limits, their positions, and the parts that serve them."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.gateway.errors import too_many
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.streams.block_cache import Block, BlockCache, BlockEvent
from penstock.gateway.streams.partition_fetcher import PartitionFetcher, Place
from penstock.gateway.streams.pump import Pump, PushStream
from penstock.gateway.streams.stream_request import (
    LogRange,
    StreamRequest,
    selected_partitions,
    start_offsets,
)
from penstock.gateway.topic_watch import Topics
from penstock.link.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.link.topic_admin import TopicDescription, describe_topics
from penstock.model import Millis, Offset, TopicPartition
from penstock.protocol.messages.fetch import FetchedPartition
from penstock.serde.errors import RegistryUnavailableError

TICK_S: Final = 1.0
RETRY_MIN_MS: Final = 1_000
RETRY_JITTER_MS: Final = 4_000
_REGISTRY_PAUSE_S: Final = 0.5
_DELETED_MS: Final = 1_500  # a topic that was read and is unknown for this long was deleted
_BLOCK_BYTES_MAX: Final = 1 << 20  # of one block's records


Offsets: TypeAlias = tuple[Offset, ...]


class StreamStart(NamedTuple):
    """Which partitions a stream reads, sorted, and from where."""

    partitions: tuple[TopicPartition, ...]
    offsets: tuple[Offset, ...]


class StreamEnd(NamedTuple):
    """Why a stream ends."""

    code: str
    message: str


STOPPING: Final = StreamEnd("stopping", "the gateway is stopping: connect again")


class HubStream(PushStream, Protocol):
    """A stream, as the hub sees it."""

    is_complete: bool  # reads all partitions of its topics, later ones too

    def tick(self, now_s: float, /) -> None:
        """Called every second: heartbeats, and positions that moved without events."""

    def end(self, reason: StreamEnd) -> None:
        """Say goodbye and close."""

    def in_flight_bytes(self) -> int:
        """What is in flight."""


class StreamHub:
    """Serves streams until `close`."""

    def __init__(self, node: GatewayNode) -> None:
        self._node = node
        self.in_flight_bytes_max: Final = node.settings.stream_in_flight_bytes_max
        self.cache: Final = BlockCache(node.settings.stream_cache_bytes_max)
        self.pump: Final = Pump(self.cache)
        self.fetcher: Final = PartitionFetcher(
            partial(node.connect, unknown_retry_ms=_DELETED_MS), self._render, self.pump
        )
        self.pump.start(self.fetcher)
        self.streams: dict[HubStream, None] = {}
        self._by_client: Counter[str] = Counter()
        self._ticking = asyncio.create_task(self._tick(), name="heartbeats of streams")
        node.topic_watch.add(self._add_new_partitions)
        node.on_stop(self.close)

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Count a stream of a client; GatewayError if it has too many."""
        streams_max = self._node.settings.streams_per_client_max
        if self._by_client[client] >= streams_max:
            message = f"{streams_max} streams are open from {client}: close some"
            raise too_many("too_many_streams", message, RETRY_JITTER_MS // 1000)
        self._by_client[client] += 1
        try:
            yield
        finally:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    @contextmanager
    def attached(self, stream: HubStream) -> Iterator[None]:
        """A stream is open."""
        self.streams[stream] = None
        try:
            yield
        finally:
            del self.streams[stream]
            self.pump.remove(stream)

    def in_flight_bytes(self) -> int:
        """Of all streams."""
        return sum(stream.in_flight_bytes() for stream in self.streams)

    def end_streams(self) -> None:
        """Ask all clients to connect again, to this process or another."""
        for stream in list(self.streams):
            stream.end(STOPPING)

    async def close(self) -> None:
        """End all streams."""
        self.end_streams()
        self._node.topic_watch.remove(self._add_new_partitions)
        self._ticking.cancel()
        self.pump.stop()
        await self.fetcher.close()

    # Positions.

    async def start_of(self, request: StreamRequest) -> StreamStart:
        """Where a stream starts; GatewayError, or what the cluster raised."""
        partitions = await self.partitions_of(request)
        return StreamStart(partitions, await self.offsets_of(request, partitions))

    async def partitions_of(self, request: StreamRequest) -> tuple[TopicPartition, ...]:
        """The partitions that a stream reads, from fresh metadata."""
        return selected_partitions(request, await self._existing(request.topics))

    async def _existing(self, topics: Sequence[str]) -> list[TopicPartition]:
        described = await self._node.run(describe_topics(topics))
        return [partition for topic in described for partition in _partitions(topic)]

    async def check_topics(self, topics: Sequence[str]) -> None:
        """GatewayError if one of the topics does not exist."""
        await self._existing(topics)

    async def offsets_of(
        self, request: StreamRequest, partitions: Sequence[TopicPartition]
    ) -> tuple[Offset, ...]:
        """Where the request's position is in these partitions."""
        return start_offsets(request, await self.ranges(partitions, request.timestamp))

    async def ranges(
        self, partitions: Sequence[TopicPartition], timestamp: Millis | None = None
    ) -> dict[TopicPartition, LogRange]:
        """The offsets that can be read."""
        run, committed = self._node.run, Isolation.READ_COMMITTED
        earliest = await run(list_offsets(dict.fromkeys(partitions, EARLIEST)))
        latest = await run(list_offsets(dict.fromkeys(partitions, LATEST), isolation=committed))
        if timestamp is None:
            return {
                each: LogRange(earliest[each].offset, latest[each].offset) for each in partitions
            }
        at = await run(list_offsets(dict.fromkeys(partitions, timestamp), isolation=committed))
        return {
            each: LogRange(earliest[each].offset, latest[each].offset, at[each].offset)
            for each in partitions
        }

    # Rendering.

    async def _render(self, place: Place, row: FetchedPartition) -> Block:
        """What a fetch brought, as a block; waits for the registry as long as it takes."""
        partition, start = place
        batches, aborted = memoryview(row.records or b""), row.aborted_transactions or ()
        records, end = await self._node.open(batches, aborted, start, _BLOCK_BYTES_MAX)
        while True:
            try:
                rendered = await self._node.render(partition, records)
                break
            except RegistryUnavailableError:
                await asyncio.sleep(_REGISTRY_PAUSE_S)
        events = [
            BlockEvent(Offset(record.offset), record.key, event.text, event.unreadable)
            for record, event in zip(records, rendered, strict=True)
        ]
        return Block(partition, start, end, events)

    # Time.

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = loop.time()
            for stream in list(self.streams):
                stream.tick(now_s)

    def _add_new_partitions(self, topics: Topics) -> None:
        """Streams of whole topics read partitions that were added meanwhile, from their start."""
        existing = {topic.name: _partitions(topic) for topic in topics}
        for stream in [stream for stream in self.streams if stream.is_complete]:
            subscription = stream.subscription
            offsets = dict(zip(subscription.partitions, stream.offsets, strict=True))
            for topic in {each.topic for each in subscription.partitions}:
                offsets = dict.fromkeys(existing.get(topic, ()), Offset(0)) | offsets
            if len(offsets) > len(stream.offsets):
                self.pump.remove(stream)
                stream.subscription = replace(subscription, partitions=tuple(sorted(offsets)))
                stream.offsets = tuple(offsets[each] for each in sorted(offsets))
                self.pump.add(stream)


def _partitions(topic: TopicDescription) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


def retry_ms() -> int:
    """When a client is to connect again: spread over some seconds."""
    return RETRY_MIN_MS + random.randrange(RETRY_JITTER_MS)
