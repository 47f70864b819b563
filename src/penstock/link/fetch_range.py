"""Fetch a range of a partition's offsets as raw batches, in chunks; the next is always in flight.

A chunk is whole batches, exactly as the leader stores them: the first may begin before the range
and the last may end after it, so the reader cuts by offset. Gaps of compaction are skipped. Follows
the leader when it moves; a range that is no longer in the log, or a topic that was deleted and
created again, is refused, never skipped.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.fetch_request import FetchLimits, FetchPlace, fetch_request, read_rows
from penstock.link.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.link.operation import FAILURES, Emit, Pause, Receive, Send, Steps
from penstock.link.routing import PartitionRoute, Routes, StreamOperation
from penstock.model import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.protocol.batch import HEADER_BYTES, check_stored_batch, iterate_headers, read_header
from penstock.protocol.messages.fetch import FetchedAbort, FetchedPartition

_EMPTY_RESPONSES_MAX: Final = 3  # though the log is longer: then the rest of the range is a gap
_ID_REFRESHES_MAX: Final = 4  # with about 50, 100 and 200 ms between: metadata may lag


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a range is fetched."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    chunk_bytes: int = 8 << 20  # a larger batch still comes whole
    wait_ms: int = 500  # how long the broker may wait for more bytes
    stall_ms: int = 60_000  # without progress for this long the range counts as missing
    checks_crc: bool = False  # `columns` checks it when it opens batches


DEFAULT_FETCH: Final = FetchSettings()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches, and the state of the partition when the leader sent them."""

    records: memoryview
    aborted: tuple[FetchedAbort, ...]  # transactions whose records are to be skipped
    start_offset: Offset  # as requested
    end_offset: Offset  # the next to request
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class OffsetOutOfRange(Refused):
    """The range is not, or no longer, in the log."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, *, start_offset: Offset, end_offset: Offset
    ) -> None:
        if offset < start_offset:
            reason = f"it starts at {start_offset}: retention or a deletion removed this offset"
        else:
            reason = f"it ends at {end_offset}: the topic was created again, or lost records"
        super().__init__(
            ErrorCode.offset_out_of_range, f"offset {offset} is not in {partition}; {reason}"
        )
        self.partition = partition
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class TopicRecreated(Refused):
    """The range belongs to a deleted topic; another one has its name now."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.invalid_topic_exception,
            f"topic {topic} was deleted and created again: its offsets belong to the deleted one",
        )


def fetch_range(
    partition: TopicPartition,
    start: Offset,
    end: Offset,
    *,
    topic_id: TopicId | None = None,
    settings: FetchSettings = DEFAULT_FETCH,
) -> StreamOperation[Chunk]:
    """The batches with the offsets from `start` to before `end`, in order.

    With a topic id, a topic created again under the same name is refused: TopicRecreated.
    """
    return StreamOperation(
        lambda routes: _RangeReader(routes, partition, start, end, topic_id, settings).steps()
    )


class _Empty(NamedTuple):
    """A response without a whole batch."""

    available: Offset  # the log reaches up to here; -1: unknown
    is_gap: bool  # no bytes, though the log reaches beyond the range
    throttle_ms: int  # how long the broker wants the client to pause


class _RangeReader:
    """One range that is being fetched. `_offset` is the next to request."""

    def __init__(
        self,
        routes: Routes,
        partition: TopicPartition,
        start: Offset,
        end: Offset,
        topic_id: TopicId | None,
        settings: FetchSettings,
    ) -> None:
        self._routes = routes
        self._partition = partition
        self._offset = start
        self._end = end
        self._topic_id = topic_id
        self._settings = settings
        self._chunk_bytes = settings.chunk_bytes
        self._ticket: Any = None  # the next chunk, if it is in flight
        self._empty_responses = 0
        self._progress_at = routes.clock()

    def steps(self) -> Steps[None]:
        what = f"fetch {self._partition} from offset {self._offset}"
        while self._offset < self._end:
            fetched = yield from self._routes.with_retries(what, self._attempt, self._invalidate)
            if isinstance(fetched, _Empty):
                self._on_empty_response(fetched)
                yield Pause(fetched.throttle_ms)
                continue
            if self._offset < self._end:
                yield from self._send_early()
            if len(fetched.records):
                yield Emit(fetched)
                self._progress_at = self._routes.clock()  # time in the consumer is no stall
            del fetched  # else its memory is kept until the next one has arrived

    def _invalidate(self) -> None:
        self._ticket = None
        self._routes.invalidate_topics([self._partition.topic])

    def _send_early(self) -> Steps[None]:
        try:
            self._ticket = yield from self._send()
        except FAILURES:
            self._ticket = None  # the next attempt reports the failure, or retries

    def _attempt(self) -> Steps[Chunk | _Empty]:
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            ticket = yield from self._send()
        response = yield Receive(ticket)
        row = read_rows(response, [self._place(NO_EPOCH)]).get(self._partition)
        if row is None:
            return _Empty(NO_OFFSET, False, response.throttle_time_ms)
        code = row.error_code
        if code is ErrorCode.offset_out_of_range:
            raise (yield from offset_out_of_range(self._routes, self._partition, self._offset))
        if code is not ErrorCode.none:
            raise Refused(code, f"fetch {self._partition} at offset {self._offset}: {code.name}")
        try:
            return self._take(row, response.throttle_time_ms)
        except Malformed as error:
            raise Malformed(
                f"{self._partition} at offset {self._offset}: {error.reason}", error.position
            ) from error

    def _send(self) -> Steps[Any]:
        route = yield from self._route()
        limits = FetchLimits(self._settings.wait_ms, self._chunk_bytes, self._chunk_bytes)
        isolation_level = int(self._settings.isolation)
        request = fetch_request([self._place(route.leader_epoch)], limits, isolation_level)
        return (yield Send(route.address, request))

    def _route(self) -> Steps[PartitionRoute]:
        """The leader of the partition of this topic id. Cached metadata may be of the topic before
        or after it: only a fresh response proves that the topic was deleted.
        """
        topic = self._partition.topic
        for refresh in range(_ID_REFRESHES_MAX + 1):
            if refresh > 1:
                yield Pause(self._routes.backoff_ms(refresh - 1))
            if refresh:
                self._routes.invalidate_topics([topic])
            route = (yield from self._routes.routes_to([self._partition]))[self._partition]
            if self._topic_id is None:
                self._topic_id = route.topic_id
            if route.topic_id == self._topic_id:
                return route
        raise TopicRecreated(topic)

    def _place(self, leader_epoch: LeaderEpoch) -> FetchPlace:
        return FetchPlace(self._partition, self._offset, leader_epoch, self._topic_id)

    def _take(self, row: FetchedPartition, throttle_ms: int) -> Chunk | _Empty:
        start = self._offset
        received = memoryview(row.records or b"")
        records, following = self._whole_batches(received)
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        available = row.last_stable_offset if committed else row.high_watermark
        if following == start:
            is_gap = available >= self._end and not len(received)
            return _Empty(Offset(available), is_gap, throttle_ms)
        self._offset = min(following, self._end)
        self._empty_responses = 0
        return Chunk(
            records,
            tuple(row.aborted_transactions or ()),
            start,
            self._offset,
            Offset(row.high_watermark),
            Offset(row.last_stable_offset),
            Offset(row.log_start_offset),
        )

    def _whole_batches(self, records: memoryview) -> tuple[memoryview, Offset]:
        """The batches of the range, and the offset after them."""
        first = last = 0
        following = self._offset
        for position, header in iterate_headers(records):
            if header.base_offset >= self._end:
                following = self._end  # a gap up to the end of the range
                break
            if last > first and header.base_offset < following:
                raise Malformed(f"offset {header.base_offset} comes after {following}", position)
            if self._settings.checks_crc:
                check_stored_batch(records, position, header=header)
            last = position + header.size_bytes
            if header.end_offset <= self._offset:
                first = last
            else:
                following = header.end_offset
        if not last and len(records):
            self._request_more(records)
        return records[first:last], following

    def _request_more(self, records: memoryview) -> None:
        """The first batch was cut: request all of it."""
        self._chunk_bytes *= 2
        if len(records) >= HEADER_BYTES:
            self._chunk_bytes = max(self._chunk_bytes, read_header(records).size_bytes)

    def _on_empty_response(self, empty: _Empty) -> None:
        self._empty_responses += empty.is_gap
        if self._empty_responses >= _EMPTY_RESPONSES_MAX:
            self._offset = self._end  # compaction left nothing up to the end
        elif self._routes.clock() - self._progress_at > self._settings.stall_ms:
            raise TimeoutError(
                f"{self._partition} has {_kind(self._settings.isolation)} offsets only up to"
                f" {empty.available}, and {self._end} did not arrive in time"
            )


def offset_out_of_range(
    routes: Routes,
    partition: TopicPartition,
    offset: Offset,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> Steps[Refused]:
    """The refusal, with the offsets that the log has."""
    earliest = yield from list_offsets({partition: EARLIEST})(routes)
    latest = yield from list_offsets({partition: LATEST}, isolation=isolation)(routes)
    return OffsetOutOfRange(
        partition,
        offset,
        start_offset=earliest[partition].offset,
        end_offset=latest[partition].offset,
    )


def _kind(isolation: Isolation) -> str:
    return "committed" if isolation is Isolation.READ_COMMITTED else "replicated"
