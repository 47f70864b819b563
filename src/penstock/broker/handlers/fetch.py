"""Fetch: slices of logs, or a wait for them.

A fetch reads every partition it asks for, in order, until `max_bytes` are gathered; the first batch
that is found goes out whole, however large. When too little is there it waits, and reads again when
it is woken. Records leave as views of the page cache; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.broker.fetch_sessions import NO_SESSION, Asked, Wanted
from penstock.broker.handler import Answer, Answered, Context, Handler, Packed, RequestReader
from penstock.broker.long_poll import LongPoll
from penstock.broker.partition import Partition
from penstock.broker.quotas import Kind
from penstock.errors import ErrorCode, Refused
from penstock.log.partition_log import PartitionLog
from penstock.model import LeaderEpoch, Offset
from penstock.protocol.fields import NO_TOPIC_ID, TopicKey
from penstock.protocol.kio_codec import request_reader
from penstock.protocol.messages.fetch import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    EpochEnd,
    FetchRequest,
    PartitionAnswer,
    TopicAnswer,
    from_entity,
    pack_fetch,
    read_fetch_request,
)

FETCH: Final = 1
READ_COMMITTED: Final = 1
SESSIONS_FROM: Final = 7
WAIT_S_MAX: Final = 600.0
NOTHING: Final = memoryview(b"")
_NONE: Final[Sequence[tuple[int, int]]] = ()  # aborted transactions


def fetch(context: Context, request: FetchRequest) -> Answer:
    """Answer at once if enough is there, an error is due, or the client does not wait."""
    by_id = context.api_version >= TOPIC_IDS_FROM
    wanted = _wanted(request)
    if context.api_version < SESSIONS_FROM:
        asked = Asked(wanted, None, False)
    else:
        try:
            asked = context.broker.fetch_sessions.ask(
                request.session_id,
                request.session_epoch,
                wanted,
                [(topic, index) for topic, indexes in request.forgotten for index in indexes],
                by_id=by_id,
                now=context.broker.steady_clock(),
            )
        except Refused as refusal:
            return pack_fetch(context.api_version, [], error_code=refusal.code)
    attempt = _Attempt(context, request, asked)
    wait_s = min(request.max_wait_ms / 1000, WAIT_S_MAX)
    may_wait = wait_s > 0 and request.min_bytes > 0 and len(asked.wanted) > 0
    if not (may_wait and attempt.is_at_end()):
        attempt.read()
        if not may_wait or attempt.failed or attempt.size_bytes >= request.min_bytes:
            return attempt.answer()
    return LongPoll(
        attempt.partitions,
        committed_only=attempt.committed_only,
        missing_bytes=request.min_bytes - attempt.size_bytes,
        wait_s=wait_s,
        read=partial(_read_again, attempt),
    ).deferred


def _read_again(attempt: _Attempt) -> Answered:
    attempt.read()
    return attempt.answer()


class _Attempt:
    """One fetch and what its latest reading found."""

    __slots__ = (
        "_asked",
        "_context",
        "_found",
        "_max_bytes",
        "committed_only",
        "failed",
        "partitions",
        "size_bytes",
    )

    def __init__(self, context: Context, request: FetchRequest, asked: Asked) -> None:
        self._context = context
        self._asked = asked
        self._max_bytes = _max_bytes(context, request.max_bytes)
        self.committed_only = request.isolation_level == READ_COMMITTED
        self._found: list[tuple[Wanted, PartitionAnswer]] = []
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self.failed = False

    def is_at_end(self) -> bool:
        """Whether there is nothing to read and nothing to refuse: found out at little cost."""
        self.partitions = []
        for wanted in self._asked.wanted:
            try:
                partition = self._find(wanted)
            except Refused:
                return False
            log = partition.log
            end_offset = log.last_stable_offset if self.committed_only else log.high_watermark
            if not end_offset <= wanted.fetch_offset <= log.end_offset:
                return False
            if wanted.last_fetched_epoch not in (-1, partition.leader_epoch):
                return False
            self.partitions.append(partition)
        return True

    def _find(self, wanted: Wanted) -> Partition:
        """The partition, if this broker leads it in the epoch that the client believes in."""
        table = self._context.broker.partitions
        partition = wanted.partition
        if partition is None or wanted.generation != table.generation:
            partition = wanted.partition = _find(self._context, wanted)
            wanted.generation = table.generation
        epoch = wanted.current_leader_epoch
        if not partition.is_leader or epoch not in (-1, partition.leader_epoch):
            partition.check_leader(epoch)
        return partition

    def read(self) -> None:
        """Gather from every partition, from the start."""
        self._found = found = []
        self.partitions = []
        self.size_bytes = 0
        self.failed = False
        for wanted in self._asked.wanted:
            try:
                answer = self._read_partition(wanted)
            except Refused as refusal:
                self.failed = True
                answer = PartitionAnswer(wanted.index, refusal.code)
            found.append((wanted, answer))

    def _read_partition(self, wanted: Wanted) -> PartitionAnswer:
        partition = self._find(wanted)
        self.partitions.append(partition)
        log = partition.log
        start_offset, high_watermark = log.start_offset, log.high_watermark
        stable_offset = log.last_stable_offset
        diverging = None if wanted.last_fetched_epoch < 0 else _diverging(partition, wanted)
        if diverging is not None:
            self.failed = True  # news that must not wait
            return PartitionAnswer(
                wanted.index,
                0,
                high_watermark,
                stable_offset,
                start_offset,
                diverging_epoch=diverging,
            )
        offset = wanted.fetch_offset
        if not start_offset <= offset <= log.end_offset:
            raise Refused(ErrorCode.offset_out_of_range, "no such offset here")
        end_offset = stable_offset if self.committed_only else high_watermark
        records, aborted = NOTHING, _NONE if self.committed_only else None
        if offset < end_offset:
            records, aborted = self._read_log(log, wanted, end_offset)
        return PartitionAnswer(
            wanted.index, 0, high_watermark, stable_offset, start_offset, records, aborted
        )

    def _read_log(
        self, log: PartitionLog, wanted: Wanted, end_offset: Offset
    ) -> tuple[memoryview, Sequence[tuple[int, int]] | None]:
        """What there is room for, and the aborted transactions in it: the client skips those."""
        is_first = self.size_bytes == 0
        room = min(wanted.max_bytes, self._max_bytes - self.size_bytes)
        if room <= 0 and not is_first:
            return NOTHING, _NONE if self.committed_only else None
        offset = Offset(wanted.fetch_offset)
        found = log.read(
            offset, max_bytes=max(room, 0), end_offset=end_offset, whole_first=is_first
        )
        self.size_bytes += len(found.view)
        if not self.committed_only:
            return found.view, None
        return found.view, [
            (aborted.producer_id, aborted.first_offset)
            for aborted in log.aborted_in(found, offset, end_offset)
        ]

    def answer(self) -> Packed:
        """The response to what was found: everything, or only news in a session."""
        context, session = self._context, self._asked.session
        by_topic: dict[TopicKey, list[PartitionAnswer]] = {}
        for wanted, answer in self._found:
            if session is not None:
                is_news = _is_news(wanted, answer)
                if self._asked.is_incremental and not is_news:
                    continue
                if answer.records:
                    session.serve_last(wanted)
            answers = by_topic.get(wanted.topic)
            if answers is None:
                answers = by_topic[wanted.topic] = []
            answers.append(answer)
        if context.broker.quotas.limits_bytes:
            context.throttle_ms = context.broker.quotas.charge(
                Kind.FETCH_BYTES, context.principal, context.client_id, self.size_bytes
            )
        return pack_fetch(
            context.api_version,
            [_topic_answer(topic, answers) for topic, answers in by_topic.items()],
            throttle_ms=context.throttle_ms,
            session_id=NO_SESSION if session is None else session.session_id,
        )


def _topic_answer(topic: TopicKey, answers: list[PartitionAnswer]) -> TopicAnswer:
    if isinstance(topic, str):
        return TopicAnswer(topic, answers, NO_TOPIC_ID)
    return TopicAnswer("", answers, topic)


def _is_news(wanted: Wanted, answer: PartitionAnswer) -> bool:
    moved = wanted.is_news(answer.high_watermark, answer.log_start_offset)
    if answer.error_code:
        wanted.told_high_watermark = -1  # so that the first answer after the error is news
        return True
    return bool(moved or answer.records or answer.diverging_epoch)


def _max_bytes(context: Context, asked: int) -> int:
    broker = context.broker
    most = min(asked, broker.settings.fetch_bytes_max)
    if not broker.quotas.limits_bytes:
        return most
    burst = broker.quotas.burst(Kind.FETCH_BYTES, context.principal, context.client_id)
    return most if burst is None else min(most, burst)


def _find(context: Context, wanted: Wanted) -> Partition:
    partitions = context.broker.partitions
    if isinstance(wanted.topic, bytes):
        found = partitions.find_by_id(wanted.topic, wanted.index)
        if found is None and wanted.topic not in partitions.topics_by_id:
            raise Refused(ErrorCode.unknown_topic_id, "no topic has this id")
    else:
        found = partitions.find(wanted.topic, wanted.index)
    if found is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, "this broker has no such partition")
    return found


def _diverging(partition: Partition, wanted: Wanted) -> EpochEnd | None:
    """Where the client's history parts from ours, if it says what it last saw and it does."""
    log = partition.log
    end = log.epochs.end_offset_for(LeaderEpoch(wanted.last_fetched_epoch), log.end_offset)
    if end.end_offset < 0:
        raise Refused(ErrorCode.offset_out_of_range, "that leader epoch is unknown here")
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return EpochEnd(end.epoch, end.end_offset)
    return None


def _wanted(request: FetchRequest) -> list[Wanted]:
    return [Wanted(topic, asked) for topic, partitions in request.topics for asked in partitions]


def _reader(version: int) -> RequestReader:
    if version >= FLEXIBLE_FROM:
        return partial(read_fetch_request, version=version)
    return partial(_read_old, request_reader(FETCH, version))


def _read_old(read: RequestReader, frame: memoryview, position: int) -> tuple[FetchRequest, int]:
    entity, reached = read(frame, position)
    return from_entity(entity), reached


HANDLERS = (Handler(FETCH, versions=(4, 18), handle=fetch, read=_reader),)
