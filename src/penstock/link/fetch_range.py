"""A range of one partition's offsets as raw batches, in chunks, the next one always under way.

Every chunk is whole batches back to back, exactly as the leader holds them: the first may begin
before the range and the last may end after it, so whoever opens them cuts by offset. Compaction's
gaps are passed over. Follows the leader when it moves; a range that is no longer there, or a topic
that was deleted and created again, is refused, never passed over.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.link.offsets import EARLIEST, LATEST, Isolation, list_offsets
from penstock.link.operation import FAILURES, Begin, Finish, Give, Pause, Request, Steps, plain
from penstock.link.routing import Located, Routes, StreamOperation
from penstock.model import NO_OFFSET, Offset, TopicId, TopicPartition
from penstock.protocol.api import Api
from penstock.protocol.batch import HEADER_BYTES, check_stored_batch, iterate_headers, read_header
from penstock.protocol.kio_codec import BodyReader
from penstock.protocol.messages.fetch_response import (
    LEAST_VERSION,
    TOPIC_IDS_FROM,
    Aborted,
    FetchAnswer,
    FetchedPartition,
    read_fetch_answer,
)

_EMPTY_ANSWERS_MAX: Final = 3  # with offsets to come: then there is nothing between
_ID_REFRESHES_MAX: Final = 4  # with about 50, 100 and 200 ms between: a broker may lag behind


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """How a range is read."""

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    chunk_bytes: int = 8 << 20  # a batch larger than this still comes whole
    wait_ms: int = 500  # how long the broker may wait for bytes that are not there yet
    stall_ms: int = 60_000  # without progress for so long, the range will not be there
    checks_crc: bool = False  # `columns` does it anyhow when it opens batches


USUAL_FETCH: Final = FetchSettings()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches, and what the leader said of the partition when it sent them."""

    records: memoryview
    aborted: tuple[Aborted, ...]  # transactions whose records here do not count
    start_offset: Offset  # asked for
    end_offset: Offset  # the next to ask for
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class OffsetGone(Refused):
    """The range asked for is not in the log (any longer)."""

    def __init__(
        self, partition: TopicPartition, offset: Offset, *, start_offset: Offset, end_offset: Offset
    ) -> None:
        if offset < start_offset:
            why = f"it starts at {start_offset}: retention or a deletion has passed this offset"
        else:
            why = f"it ends at {end_offset}: the topic was made again, or lost records"
        super().__init__(
            ErrorCode.offset_out_of_range, f"offset {offset} is not in {partition}; {why}"
        )
        self.partition = partition
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class TopicRecreated(Refused):
    """The range belongs to a topic that was deleted; another one has its name now."""

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
    settings: FetchSettings = USUAL_FETCH,
) -> StreamOperation[Chunk]:
    """The batches that hold the offsets from `start` to before `end`, in order.

    With a topic id, a topic created again under the same name is refused: TopicRecreated.
    """
    return StreamOperation(
        lambda routes: _Reading(routes, partition, start, end, topic_id, settings).steps()
    )


class _Empty(NamedTuple):
    """No whole batch came."""

    available: Offset  # there are offsets up to here; -1: that was not said
    is_gap: bool  # not a byte came, though the log goes on beyond the range
    throttle_ms: int  # how long the broker asks to be left alone


class _Reading:
    """One range being read. `_offset` is the next to ask for."""

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
        self._ticket: Any = None  # the next chunk, if it is under way
        self._empty_answers = 0
        self._progress_at = routes.clock()

    def steps(self) -> Steps[None]:
        what = f"fetch {self._partition} from offset {self._offset}"
        while self._offset < self._end:
            came = yield from self._routes.patiently(what, self._attempt, self._doubt)
            if isinstance(came, _Empty):
                self._bear(came)
                yield Pause(came.throttle_ms)
                continue
            if self._offset < self._end:
                yield from self._begin_early()
            if len(came.records):
                yield Give(came)
                self._progress_at = self._routes.clock()  # the reader's own time is no stall
            del came  # or its memory would be held until the next has come

    def _doubt(self) -> None:
        self._ticket = None
        self._routes.doubt_topics([self._partition.topic])

    def _begin_early(self) -> Steps[None]:
        try:
            self._ticket = yield from self._begin()
        except FAILURES:
            self._ticket = None  # the next attempt finds out why, and is patient

    def _attempt(self) -> Steps[Chunk | _Empty]:
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            ticket = yield from self._begin()
        answer = yield Finish(ticket)
        code, row = _only_row(answer, self._partition)
        if code is ErrorCode.offset_out_of_range:
            raise (yield from self._gone())
        if code is not ErrorCode.none:
            raise Refused(code, f"fetch {self._partition} at offset {self._offset}: {code.name}")
        if row is None:
            return _Empty(NO_OFFSET, False, answer.throttle_ms)
        try:
            return self._take(row, answer.throttle_ms)
        except Malformed as error:
            raise Malformed(
                f"{self._partition} at offset {self._offset}: {error.reason}", error.position
            ) from error

    def _begin(self) -> Steps[Any]:
        place = yield from self._located()
        return (yield Begin(place.address, self._request(place.leader_epoch)))

    def _located(self) -> Steps[Located]:
        """Where the partition of this topic id is led. Known metadata may be of the topic before
        or after it: only a fresh answer decides that the topic is gone.
        """
        topic = self._partition.topic
        for refresh in range(_ID_REFRESHES_MAX + 1):
            if refresh > 1:
                yield Pause(self._routes.backoff_ms(refresh - 1))
            if refresh:
                self._routes.doubt_topics([topic])
            place = (yield from self._routes.located([self._partition]))[self._partition]
            if self._topic_id is None:
                self._topic_id = place.topic_id
            if place.topic_id == self._topic_id:
                return place
        raise TopicRecreated(topic)

    def _request(self, leader_epoch: int) -> Request:
        name, index = self._partition
        wanted = {
            "partition": index,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": self._offset,
            "partition_max_bytes": self._chunk_bytes,
        }
        asked = plain(
            Api.FETCH,
            replica_id=-1,
            max_wait=self._settings.wait_ms,
            min_bytes=1,
            max_bytes=self._chunk_bytes,
            isolation_level=int(self._settings.isolation),
            session_epoch=-1,
            topics=[{"topic": name, "topic_id": self._topic_id, "partitions": [wanted]}],
        )
        last = asked.last if self._topic_id is not None else TOPIC_IDS_FROM - 1
        return Request(asked.api_key, asked.write, _fetch_reader, least=LEAST_VERSION, last=last)

    def _take(self, row: FetchedPartition, throttle_ms: int) -> Chunk | _Empty:
        start = self._offset
        records, following = self._whole_batches(row.records)
        committed = self._settings.isolation is Isolation.READ_COMMITTED
        available = row.last_stable_offset if committed else row.high_watermark
        if following == start:
            is_gap = available >= self._end and not len(row.records)
            return _Empty(Offset(available), is_gap, throttle_ms)
        self._offset = min(following, self._end)
        self._empty_answers = 0
        return Chunk(
            records,
            row.aborted,
            start,
            self._offset,
            Offset(row.high_watermark),
            Offset(row.last_stable_offset),
            Offset(row.log_start_offset),
        )

    def _whole_batches(self, records: memoryview) -> tuple[memoryview, Offset]:
        """The batches of the range, and the offset behind them."""
        first = last = 0
        following = self._offset
        for position, header in iterate_headers(records):
            if header.base_offset >= self._end:
                following = self._end  # a gap reaches to the end of the range
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
            self._make_room(records)
        return records[first:last], following

    def _make_room(self, records: memoryview) -> None:
        """The first batch was cut: ask for all of it."""
        self._chunk_bytes *= 2
        if len(records) >= HEADER_BYTES:
            self._chunk_bytes = max(self._chunk_bytes, read_header(records).size_bytes)

    def _bear(self, came: _Empty) -> None:
        """Make sense of an answer without records."""
        self._empty_answers += came.is_gap
        if self._empty_answers >= _EMPTY_ANSWERS_MAX:
            self._offset = self._end  # compaction has left nothing up to the end
        elif self._routes.clock() - self._progress_at > self._settings.stall_ms:
            raise TimeoutError(
                f"{self._partition} has {_kind(self._settings.isolation)} offsets up to"
                f" {came.available} only, {self._end} was waited for in vain"
            )

    def _gone(self) -> Steps[Refused]:
        """Tell what there is instead."""
        earliest = yield from list_offsets({self._partition: EARLIEST})(self._routes)
        latest = yield from list_offsets({self._partition: LATEST})(self._routes)
        return OffsetGone(
            self._partition,
            self._offset,
            start_offset=earliest[self._partition].offset,
            end_offset=latest[self._partition].offset,
        )


def _kind(isolation: Isolation) -> str:
    return "committed" if isolation is Isolation.READ_COMMITTED else "replicated"


def _only_row(
    answer: FetchAnswer, partition: TopicPartition
) -> tuple[ErrorCode, FetchedPartition | None]:
    if answer.error_code:
        return ErrorCode(answer.error_code), None
    for row in answer.partitions:
        if row.partition == partition.partition:
            return ErrorCode(row.error_code), row
    return ErrorCode.none, None


def _fetch_reader(version: int) -> BodyReader:
    return partial(read_fetch_answer, version=version)
