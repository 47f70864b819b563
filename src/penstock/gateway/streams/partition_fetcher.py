"""One fetch for all streams that read a partition at one offset.

`request` asks for the block that begins at an offset; the reader is called when it arrives. What
is requested at the end of a partition waits in one long poll per leader; the rest is fetched
without waiting, over a second connection, because a broker serves a connection in order. An event
that is appended to an idle partition arrives immediately; while events keep coming they are
gathered, for at most `GATHER_S`. Fetches are retried until the broker is back: a request fails only
if its topic does not exist any more or may not be read.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.gateway.streams.block_cache import Block
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_request import FetchLimits, FetchPlace, fetch_request, read_rows
from penstock.link.offsets import EARLIEST, LATEST, list_offsets, partitions_of
from penstock.link.operation import FAILURES, send
from penstock.link.settings import Address
from penstock.model import Offset, TopicId, TopicPartition
from penstock.protocol.messages.fetch import READ_COMMITTED, FetchedPartition

END_WAIT_MS: Final = 50  # a stream that reaches the end waits this long to join the long poll
GATHER_S: Final = 0.005  # between two polls at the end that bring events
PLACES_MAX: Final = 500  # partitions in one request
_RESPONSE_BYTES_MAX: Final = 4 << 20
_PARTITION_BYTES_MAX: Final = 512 << 10
_EMPTY_MAX: Final = 3  # though the log is longer: compaction left nothing up to its end
_TOPICS_MAX: Final = 10_000  # whose ids are cached; then all are dropped
_SECOND_MS: Final = 1000
_NOT_LED_MS: Final = 100

Place: TypeAlias = tuple[TopicPartition, Offset]
RowRenderer: TypeAlias = Callable[[Place, FetchedPartition], Awaitable[Block]]


class Gap(NamedTuple):
    """A position that is not, or no longer, in the log, and where reading goes on."""

    partition: TopicPartition
    offset: Offset
    resumes_at: Offset
    latest: Offset


class FetchReader(Protocol):
    """Receives what was fetched."""

    def is_read(self, partition: TopicPartition) -> bool:
        """Whether any stream reads this partition at present."""

    def on_block(self, block: Block) -> None:
        """A block that was requested."""

    def on_log_start(self, partition: TopicPartition, offset: Offset) -> None:
        """Events before this offset are not in the log."""

    def on_recreated(self, partition: TopicPartition) -> None:
        """The topic was deleted and created again: its events so far are of the old one."""

    def on_gap(self, gap: Gap) -> None:
        """A position that was requested is not in the log."""

    def on_failed(self, partition: TopicPartition, failure: Exception) -> None:
        """A partition cannot be read."""


class _Queue(Enum):
    """How a block is fetched."""

    BEHIND = 0  # without waiting
    END = END_WAIT_MS  # when something is appended


class PartitionFetcher:
    """Fetches blocks for streams. `requested` has every place until its block has arrived."""

    def __init__(
        self, connect: Callable[[], AsyncCluster], render: RowRenderer, reader: FetchReader
    ) -> None:
        self._clusters = {queue: connect() for queue in _Queue}
        self._routes = self._clusters[_Queue.BEHIND].routes
        self._render = render
        self._reader = reader
        self.requested: dict[Place, None] = {}
        self.fetches: int = 0
        self._loops: dict[tuple[_Queue, Address], _FetchLoop] = {}
        self._ends: dict[TopicPartition, Offset] = {}
        self._topic_ids: dict[str, TopicId | None] = {}
        self._empty: Counter[Place] = Counter()
        self._resolving: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop fetching."""
        loops = [loop.task for loop in self._loops.values()]
        tasks = (*loops, *self._resolving.values(), *self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for cluster in self._clusters.values():
            await cluster.close()

    def request(self, partition: TopicPartition, offset: Offset) -> None:
        """Fetch the block at an offset, unless it is requested already."""
        place = (partition, offset)
        if place not in self.requested:
            self.requested[place] = None
            self._route(place)

    def drop(self, partition: TopicPartition) -> None:
        """Drop requests for a partition that no stream reads."""
        for place in [place for place in self.requested if place[0] == partition]:
            self._done(place)
        self._ends.pop(partition, None)

    def _done(self, place: Place) -> None:
        self.requested.pop(place, None)
        self._empty.pop(place, None)

    # Routing.

    def _route(self, place: Place) -> None:
        """Give a place to the leader's loop; finds the leader first if it is not known."""
        (name, index), offset = place
        topic = self._routes.topics.get(name)
        leader = None if topic is None else topic.partitions.get(index)
        if topic is None or leader is None or leader.address is None:
            if name not in self._resolving:
                self._resolving[name] = asyncio.create_task(self._resolve(name))
            return
        if len(self._topic_ids) > _TOPICS_MAX:
            self._topic_ids.clear()
        if self._topic_ids.setdefault(name, topic.topic_id) != topic.topic_id:
            self._on_recreated(name, topic.topic_id)
            return
        known_end = self._ends.get(place[0])
        is_at_end = known_end is not None and offset >= known_end
        is_gap = self._empty[place] >= _EMPTY_MAX
        queue = _Queue.END if is_at_end or is_gap else _Queue.BEHIND
        row = FetchPlace(place[0], offset, leader.leader_epoch, topic.topic_id)
        self._loop(queue, leader.address).add(place, row)

    def _loop(self, queue: _Queue, address: Address) -> "_FetchLoop":
        loop = self._loops.get((queue, address))
        if loop is None:
            cluster = self._clusters[queue]
            loop = self._loops[queue, address] = _FetchLoop(self, cluster, address, queue.value)
        return loop

    async def _resolve(self, topic: str) -> None:
        """Find the leaders of a topic, however long it takes, and route its places again."""
        cluster = self._clusters[_Queue.BEHIND]
        failure: Exception | None = None
        while self._requested_of(topic):
            try:
                await cluster.run(partitions_of([topic]))
                if self._is_led(topic):
                    break
                await asyncio.sleep(_NOT_LED_MS / _SECOND_MS)
            except (OSError, Malformed):
                await asyncio.sleep(self._routes.backoff_ms(10) / _SECOND_MS)
            except Refused as refusal:
                failure = refusal
                break
        del self._resolving[topic]
        for place in self._requested_of(topic):
            if failure is None:
                self._route(place)
            else:
                self._fail(place, failure)

    def _is_led(self, topic: str) -> bool:
        """Whether the partitions that are requested have leaders; one that does not exist fails."""
        leaders = self._routes.topics[topic].partitions
        for place in self._requested_of(topic):
            leader = leaders.get(place[0].partition)
            if leader is None:
                code = ErrorCode.unknown_topic_or_partition
                self._fail(place, Refused(code, f"{place[0]} does not exist any more"))
            elif leader.address is None:
                return False
        return True

    def _requested_of(self, topic: str) -> list[Place]:
        return [place for place in self.requested if place[0].topic == topic]

    def _on_recreated(self, topic: str, topic_id: TopicId | None) -> None:
        """Offsets of a deleted topic mean nothing in the one that has its name now."""
        self._topic_ids[topic] = topic_id
        for place in self._requested_of(topic):
            self._reader.on_recreated(place[0])
            self._start(self._report_gap(place, is_recreated=True))

    # Responses.

    def on_lost(self, rows: Iterable[FetchPlace]) -> None:
        """A request had no response: the leaders may have moved."""
        places = [(row.partition, row.offset) for row in rows]
        self._routes.invalidate_topics({partition.topic for partition, _ in places})
        for place in places:
            if place in self.requested:
                self._route(place)

    def on_row(self, place: Place, row: FetchedPartition | None) -> None:
        """The part of a response that is about one place."""
        if place not in self.requested:
            return
        if row is None:
            self._route(place)
            return
        match row.error_code:
            case ErrorCode.none:
                self._ends[place[0]] = Offset(row.last_stable_offset)
                self._reader.on_log_start(place[0], Offset(row.log_start_offset))
                if row.records is not None and len(row.records):
                    self._start(self._take(place, row))
                else:
                    self._on_empty(place)
            case ErrorCode.offset_out_of_range:
                self._start(self._report_gap(place))
            case code if code.retriable:
                self._start(self._route_later(place))
            case code:
                self._fail(place, Refused(code, f"fetch {place[0]}: {code.name}"))

    def _on_empty(self, place: Place) -> None:
        if place[1] < self._ends[place[0]]:
            self._empty[place] += 1
        self._route(place)

    async def _take(self, place: Place, row: FetchedPartition) -> None:
        try:
            block = await self._render(place, row)
        except Malformed as failure:
            self._fail(place, failure)
            return
        if place not in self.requested:
            return
        if block.end_offset == block.start_offset:  # the first batch was cut off
            self._on_empty(place)
            return
        self._done(place)
        self._reader.on_block(block)

    async def _route_later(self, place: Place) -> None:
        await asyncio.sleep(self._routes.backoff_ms(1) / _SECOND_MS)
        self._routes.invalidate_topics([place[0].topic])
        if place in self.requested:
            self._route(place)

    async def _report_gap(self, place: Place, *, is_recreated: bool = False) -> None:
        partition, offset = place
        cluster = self._clusters[_Queue.BEHIND]
        try:
            earliest = (await cluster.run(list_offsets({partition: EARLIEST})))[partition].offset
            latest = (await cluster.run(list_offsets({partition: LATEST})))[partition].offset
        except FAILURES:
            await self._route_later(place)
            return
        if place not in self.requested:
            return
        if earliest <= offset <= latest and not is_recreated:
            self._route(place)
            return
        self._done(place)
        self._reader.on_gap(Gap(partition, offset, earliest, latest))

    def _fail(self, place: Place, failure: Exception) -> None:
        if place in self.requested:
            self._done(place)
            self._reader.on_failed(place[0], failure)

    def is_needed(self, place: Place) -> bool:
        """Whether a place is still to be fetched; one that no stream reads is dropped."""
        if place in self.requested and not self._reader.is_read(place[0]):
            self._done(place)
        return place in self.requested

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _FetchLoop:
    """The places at one leader, fetched round by round: one offset of each partition in a round."""

    def __init__(
        self, fetcher: PartitionFetcher, cluster: AsyncCluster, address: Address, wait_ms: int
    ) -> None:
        self._fetcher = fetcher
        self._cluster = cluster
        self._address = address
        self._wait_ms = wait_ms
        self._waiting: dict[Place, FetchPlace] = {}
        self._added = asyncio.Event()
        self._failures = 0
        self._next_s = 0.0  # not before this time
        self.task: Final = asyncio.create_task(
            self._run(), name=f"fetches of streams from {address}"
        )

    def add(self, place: Place, row: FetchPlace) -> None:
        """Fetch this in a round soon; those that have waited longest come first."""
        self._waiting[place] = row
        self._added.set()

    async def _run(self) -> None:
        while True:
            await self._added.wait()
            rows = self._next_round()
            if rows:
                await self._fetch(rows)

    def _next_round(self) -> dict[TopicPartition, FetchPlace]:
        rows: dict[TopicPartition, FetchPlace] = {}
        for place, row in list(self._waiting.items()):
            if place[0] in rows or len(rows) >= PLACES_MAX:
                continue
            del self._waiting[place]
            if self._fetcher.is_needed(place):
                rows[place[0]] = row
        if not self._waiting:
            self._added.clear()
        return rows

    async def _fetch(self, rows: dict[TopicPartition, FetchPlace]) -> None:
        wait_s = self._next_s - asyncio.get_running_loop().time()
        if self._wait_ms and wait_s > 0:
            await asyncio.sleep(wait_s)
        places = list(rows.values())
        limits = FetchLimits(self._wait_ms, _RESPONSE_BYTES_MAX, _PARTITION_BYTES_MAX)
        request = fetch_request(places, limits, READ_COMMITTED)
        self._fetcher.fetches += 1
        try:
            response = await self._cluster.run(lambda _routes: send(self._address, request))
            answered = read_rows(response, places)
        except FAILURES:
            self._failures += 1
            pause_ms = self._cluster.routes.backoff_ms(self._failures)
            await asyncio.sleep(pause_ms / _SECOND_MS)
            self._fetcher.on_lost(places)
            return
        self._failures = 0
        self._next_s = asyncio.get_running_loop().time() + GATHER_S
        for partition, row in rows.items():
            self._fetcher.on_row((partition, row.offset), answered.get(partition))
        if response.throttle_time_ms:
            await asyncio.sleep(response.throttle_time_ms / _SECOND_MS)
