"""Fetches raw batches of a member's partitions over `link`, opened as pages of columns.

librdkafka stays the member: it holds the assignment, sends heartbeats and commits, with all its
partitions paused. This thread fetches from every leader, one request at a time each, opens what
comes and queues it, as far as the flow control allows. A page that arrives after its partition was
revoked or sought is dropped.

No Python object is made per record.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from penstock.client.fetched_rows import PageRows
from penstock.client.flow_control import FlowControl
from penstock.client.kafka_errors import BrokerError
from penstock.columns.open_batches import RecordParts, open_pages
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_once import WAIT_MS, FetchedBatches, fetch_once
from penstock.link.offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    committed_offsets,
    list_offsets,
)
from penstock.link.operation import FAILURES
from penstock.link.settings import Address, LinkSettings
from penstock.model import Offset, TopicPartition

logger: Final = logging.getLogger(__name__)

FETCH_BYTES_MIN: Final = 64 << 10
FETCH_BYTES_MAX: Final = 16 << 20
_IDLE_S: Final = 0.5
_RECORD_BYTES: Final = 100.0  # before anything is known of the records
_PARTS: Final = RecordParts(values=False, value_spans=True)
_OFFSET_TIMES: Final = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), EARLIEST),
    **dict.fromkeys(("latest", "largest", "end"), LATEST),
}
_Positions = dict[TopicPartition, Offset | None]  # None: where the group committed


@dataclass(frozen=True, slots=True)
class FetchSource:
    """Whose partitions are fetched, and how."""

    bootstrap: str
    link: LinkSettings
    group: str
    isolation: Isolation
    reset: str  # where to start without a committed offset, as librdkafka spells it
    bytes_min: int = 1  # a broker waits until it has so many, for so long
    wait_ms: int = WAIT_MS


class ColumnFetcher:
    """The pages of one member's partitions. Methods are called with `changed` held.

    `changed` also guards the flow control; `on_failure` gets what ends reading.
    """

    def __init__(
        self,
        source: FetchSource,
        flow: FlowControl,
        changed: threading.Condition,
        on_failure: Callable[[BrokerError], None],
    ) -> None:
        self._source = source
        self._flow = flow
        self._changed = changed
        self._on_failure = on_failure
        self._positions: _Positions = {}  # the next to request; served last comes last
        self._in_flight: set[TopicPartition] = set()
        self._queue: deque[PageRows] = deque()
        self._record_bytes = _RECORD_BYTES  # on the wire, of a record lately
        self._failures = 0  # in a row
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="column-fetch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop fetching and wait for the thread. Called without `changed`."""
        with self._changed:
            self._stopping = True
            self._wake()
        self._thread.join()

    @property
    def is_empty(self) -> bool:
        """Whether no row is queued."""
        return not self._queue

    def assign(self, positions: Mapping[TopicPartition, Offset | None]) -> None:
        """Fetch these too, or from another offset."""
        self._positions.update(positions)
        self._wake()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these, and drop what is queued of them."""
        for partition in partitions:
            self._positions.pop(partition, None)
        self.drop(set(partitions))

    def drop(self, partitions: set[TopicPartition]) -> None:
        """Remove the queued rows of these partitions."""
        dropped = [part for part in self._queue if part.partition in partitions]
        if dropped:
            kept = (part for part in self._queue if part.partition not in partitions)
            self._queue = deque(kept)
            size_bytes = sum(part.size_bytes for part in dropped)
            records = sum(part.rows for part in dropped)
            self._flow.on_removed(records, size_bytes, dropped=True)

    def release(self) -> dict[TopicPartition, Offset]:
        """Stop fetching everything; where each partition is to be continued, if that is known."""
        unread = {part.partition: part.span.first for part in reversed(self._queue)}
        known = {
            partition: offset for partition, offset in self._positions.items() if offset is not None
        }
        size_bytes = sum(part.size_bytes for part in self._queue)
        self._flow.on_discarded(sum(part.rows for part in self._queue), size_bytes)
        self._queue.clear()
        self._positions.clear()
        return known | unread

    def take(self, records_max: int) -> list[PageRows]:
        """Up to `records_max` rows of one topic: that of the oldest page."""
        taken: list[PageRows] = []
        others: deque[PageRows] = deque()
        left = records_max
        while self._queue and left:
            part = self._queue.popleft()
            if taken and part.partition.topic != taken[0].partition.topic:
                others.append(part)
                continue
            if part.rows > left:
                part, rest = part.split(left)
                self._queue.appendleft(rest)
            taken.append(part)
            left -= part.rows
        self._queue.extendleft(reversed(others))
        size_bytes = sum(part.size_bytes for part in taken)
        self._flow.on_removed(sum(part.rows for part in taken), size_bytes)
        self._wake()
        return taken

    def put_back(self, parts: Iterable[PageRows]) -> None:
        """Queue rows again, before the others."""
        returned = list(parts)
        self._queue.extendleft(reversed(returned))
        size_bytes = sum(part.size_bytes for part in returned)
        self._flow.on_returned(sum(part.rows for part in returned), size_bytes)

    def _wake(self) -> None:
        if self._loop is not None and self._woken is not None:
            self._loop.call_soon_threadsafe(self._woken.set)

    # On the thread.

    def _run(self) -> None:
        asyncio.run(self._fetch_all())

    async def _fetch_all(self) -> None:
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        tasks: dict[Address | None, asyncio.Task[None]] = {}  # None: looks offsets up
        async with AsyncCluster(self._source.bootstrap, self._source.link) as cluster:
            try:
                while not self._stopping:
                    self._woken.clear()
                    await self._start_fetches(cluster, tasks)
                    await self._wait(tasks)
            finally:
                for task in tasks.values():
                    task.cancel()
                await asyncio.gather(*tasks.values(), return_exceptions=True)
                with self._changed:
                    self._loop = None  # a closed loop cannot be woken

    async def _wait(self, tasks: dict[Address | None, "asyncio.Task[None]"]) -> None:
        assert self._woken is not None, "set when the loop starts"
        woken = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait(
                {*tasks.values(), woken}, timeout=_IDLE_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            woken.cancel()
        for key in [key for key, task in tasks.items() if task.done()]:
            tasks.pop(key).result()  # a bug ends the thread with its trace

    async def _start_fetches(
        self, cluster: AsyncCluster, tasks: dict[Address | None, "asyncio.Task[None]"]
    ) -> None:
        with self._changed:
            fetchable = self._flow.fetchable() - self._in_flight
            offsets = {
                partition: at for partition, at in self._positions.items() if partition in fetchable
            }
            bytes_max = self._bytes_max()
        unknown = [partition for partition, offset in offsets.items() if offset is None]
        if unknown and None not in tasks:
            tasks[None] = asyncio.create_task(self._look_up(cluster, unknown))
        known = {partition: offset for partition, offset in offsets.items() if offset is not None}
        if not known:
            return
        try:
            by_leader = await cluster.run(lambda routes: routes.by_leader(known))
        except FAILURES as failure:
            await self._recover(cluster, failure, known, "reading")
            return
        for address, partitions in by_leader.items():
            if address not in tasks:
                own = {
                    partition: known[partition] for partition in known if partition in partitions
                }
                share = max(FETCH_BYTES_MIN, bytes_max // len(by_leader))
                self._in_flight.update(own)
                tasks[address] = asyncio.create_task(self._fetch(cluster, address, own, share))

    def _bytes_max(self) -> int:
        """About what the queue can take."""
        by_records = int(self._flow.capacity_records * self._record_bytes)
        limit_bytes = min(self._flow.capacity_bytes, by_records, FETCH_BYTES_MAX)
        return max(FETCH_BYTES_MIN, limit_bytes)

    async def _fetch(
        self,
        cluster: AsyncCluster,
        address: Address,
        offsets: Mapping[TopicPartition, Offset],
        bytes_max: int,
    ) -> None:
        source = self._source
        fetch = fetch_once(
            address,
            offsets,
            isolation=source.isolation,
            bytes_max=bytes_max,
            bytes_min=source.bytes_min,
            wait_ms=source.wait_ms,
        )
        try:
            rows = await cluster.run(fetch)
            for partition, batches in rows.items():
                self._accept(partition, batches)
            self._failures = 0
        except FAILURES as failure:
            await self._recover(cluster, failure, offsets, "reading")
        finally:
            self._in_flight.difference_update(offsets)

    def _accept(self, partition: TopicPartition, batches: FetchedBatches) -> None:
        """Queue what was fetched. Raises Refused with the broker's code, or Malformed."""
        if batches.code is ErrorCode.offset_out_of_range:
            logger.info("%s has no offset %d", partition, batches.start_offset)
            self._advance(partition, batches.start_offset, None, ())
            return
        if batches.code is not ErrorCode.none:
            raise Refused(batches.code, f"fetch {partition}: {batches.code.name}")
        if batches.end_offset == batches.start_offset:
            return
        if batches.record_count:
            latest = len(batches.records) / batches.record_count
            self._record_bytes += (latest - self._record_bytes) / 4
        committed_only = self._source.isolation is Isolation.READ_COMMITTED
        try:
            pages = [
                PageRows(partition, page, 0, len(page))
                for page in open_pages(
                    batches.records,
                    start_offset=batches.start_offset,
                    parts=_PARTS,
                    aborted=batches.aborted if committed_only else None,
                )
                if len(page)
            ]
        except Malformed as error:
            reason = f"{partition} from offset {batches.start_offset} on: {error.reason}"
            raise Malformed(reason, error.position) from error
        self._advance(partition, batches.start_offset, batches.end_offset, pages)

    def _advance(
        self,
        partition: TopicPartition,
        start: Offset,
        end: Offset | None,
        pages: Iterable[PageRows],
    ) -> None:
        with self._changed:
            if self._positions.get(partition) != start:
                return  # revoked or sought meanwhile
            del self._positions[partition]
            self._positions[partition] = end
            for page in pages:
                self._queue.append(page)
                self._flow.on_fetched(page.rows, page.size_bytes)
            self._changed.notify_all()

    async def _look_up(self, cluster: AsyncCluster, partitions: list[TopicPartition]) -> None:
        """Where to start: after what the group committed, or where the settings say.

        An offset that is no longer in the log counts as none.
        """
        source = self._source
        try:
            committed = await cluster.run(committed_offsets(source.group, partitions))
            starts = await cluster.run(list_offsets(dict.fromkeys(partitions, EARLIEST)))
            ends = await cluster.run(list_offsets(dict.fromkeys(partitions, LATEST)))
        except FAILURES as failure:
            await self._recover(cluster, failure, partitions, "looking up offsets")
            return
        for partition in partitions:
            start, end = starts[partition].offset, ends[partition].offset
            row = committed.get(partition)
            if row is not None and start <= row.offset <= end:
                offset = row.offset
            elif source.reset in _OFFSET_TIMES:
                offset = start if _OFFSET_TIMES[source.reset] == EARLIEST else end
            else:
                code = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - names of its own begin so
                reason = f"{partition} has no committed offset in its log"
                self._on_failure(BrokerError(KafkaError(code, reason), f"reading {partition}"))
                continue
            with self._changed:
                if partition in self._positions and self._positions[partition] is None:
                    self._positions[partition] = offset

    async def _recover(
        self,
        cluster: AsyncCluster,
        failure: Exception,
        partitions: Iterable[TopicPartition],
        doing: str,
    ) -> None:
        """After what may pass: fresh metadata and a pause. Anything else ends reading."""
        if isinstance(failure, Malformed):
            code, is_temporary = int(ErrorCode.corrupt_message), False
        elif isinstance(failure, Refused):
            code, is_temporary = int(failure.code), failure.code.retriable
        else:
            code, is_temporary = KafkaError._TRANSPORT, True  # noqa: SLF001 - as above
        if not is_temporary:
            self._on_failure(BrokerError(KafkaError(code, str(failure)), doing))
        logger.debug("%s: %s", doing, failure)
        cluster.routes.invalidate_topics({partition.topic for partition in partitions})
        self._failures += 1
        await asyncio.sleep(cluster.routes.backoff_ms(self._failures) / 1000)


def fetch_source(bootstrap: str, link: LinkSettings, settings: Mapping[str, Any]) -> FetchSource:
    """What librdkafka's settings of a consumer say about fetching."""
    isolation = str(settings.get("isolation.level", "read_committed"))
    return FetchSource(
        bootstrap,
        link,
        str(settings["group.id"]),
        Isolation[isolation.upper()],
        str(settings.get("auto.offset.reset", "largest")),
        int(settings.get("fetch.min.bytes", 1)),
        int(settings.get("fetch.wait.max.ms", WAIT_MS)),
    )
