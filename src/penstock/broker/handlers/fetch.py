"""Fetch: slices of logs, or a wait for them.

A fetch reads every partition of the request, in order, until `max_bytes` are gathered; the first
batch is returned whole, however large. When there is too little to read it waits, and reads again
when it is woken. Records leave as views of the page cache; nothing is copied.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.fetch_sessions import NO_SESSION, FetchPlan, FetchPosition
from penstock.broker.handler import Answer, Context, Handler
from penstock.broker.long_poll import LongPoll
from penstock.broker.partition_lookup import current_leader, endpoints_of, find_partition
from penstock.broker.permissions import AnyOf, Operation, on_cluster, on_each_topic
from penstock.broker.quorum.metadata_fetch import fetch_metadata, is_metadata_fetch
from penstock.broker.quotas import QuotaKind
from penstock.errors import ErrorCode, Refused
from penstock.model import LeaderEpoch, Offset
from penstock.protocol.messages.fetch import (
    FETCH,
    READ_COMMITTED,
    SESSIONS_FROM,
    TOPIC_IDS_FROM,
    DivergingEpoch,
    FetchedAbort,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    FetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.broker.partition import Partition
    from penstock.log.partition_log import PartitionLog
    from penstock.protocol.fields import TopicKey

WAIT_S_MAX: Final = 600.0
NO_RECORDS: Final = memoryview(b"")
_NONE_ABORTED: Final[Sequence[FetchedAbort]] = ()


def fetch(context: Context, request: FetchRequest) -> Answer[FetchResponse]:
    """Respond now if there is enough to read, or an error, or the client does not wait."""
    if request.replica.replica_id >= 0:
        if is_metadata_fetch(request):
            return fetch_metadata(context, request)
        return context.broker.follower_sessions.fetch(context.broker, request)
    positions = [
        FetchPosition(topic, row) for topic, partitions in request.topics for row in partitions
    ]
    if context.api_version < SESSIONS_FROM:
        plan = FetchPlan(positions, None, False)
    else:
        try:
            plan = context.broker.fetch_sessions.plan(
                request.session_id,
                request.session_epoch,
                positions,
                [(topic, index) for topic, rows in request.removed_topics for index in rows],
                by_id=context.api_version >= TOPIC_IDS_FROM,
                now=context.broker.steady_clock(),
            )
        except Refused as refusal:
            return FetchResponse(refusal.code)
    attempt = _Attempt(context, request, plan)
    wait_s = min(request.max_wait_ms / 1000, WAIT_S_MAX)
    may_wait = wait_s > 0 and request.min_bytes > 0 and len(plan.positions) > 0
    if not (may_wait and attempt.is_at_end()):
        attempt.read()
        if not may_wait or attempt.must_respond or attempt.size_bytes >= request.min_bytes:
            return attempt.respond()
    return LongPoll(
        attempt.partitions,
        committed_only=attempt.committed_only,
        missing_bytes=request.min_bytes - attempt.size_bytes,
        wait_s=wait_s,
        read=partial(_read_again, attempt),
    ).deferred


def _read_again(attempt: _Attempt) -> FetchResponse:
    attempt.read()
    return attempt.respond()


class _Attempt:
    """One fetch, and the results of its latest reading."""

    __slots__ = (
        "_context",
        "_max_bytes",
        "_plan",
        "_results",
        "committed_only",
        "must_respond",
        "partitions",
        "size_bytes",
    )

    def __init__(self, context: Context, request: FetchRequest, plan: FetchPlan) -> None:
        self._context = context
        self._plan = plan
        self._max_bytes = _max_bytes(context, request.max_bytes)
        self._results: list[tuple[FetchPosition, FetchedPartition]] = []
        self.committed_only = request.isolation_level == READ_COMMITTED
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self.must_respond = False  # an error, or a diverging log

    def is_at_end(self) -> bool:
        """Whether there is nothing to read and nothing to refuse: a cheap check."""
        self.partitions = []
        for position in self._plan.positions:
            try:
                partition = self._find(position)
            except Refused:
                return False
            log = partition.log
            end_offset = log.last_stable_offset if self.committed_only else log.high_watermark
            if not end_offset <= position.fetch_offset <= log.end_offset:
                return False
            if position.last_fetched_epoch not in (-1, partition.leader_epoch):
                return False
            self.partitions.append(partition)
        return True

    def _find(self, position: FetchPosition) -> Partition:
        """The partition, if this broker leads it in the epoch that the client knows."""
        broker = self._context.broker
        partition, generation = position.partition, broker.partitions.generation
        if partition is None or position.generation != generation:
            partition = find_partition(broker, position.topic, position.index)
            position.partition, position.generation = partition, generation
        epoch = position.current_leader_epoch
        if not partition.is_leader or epoch not in (-1, partition.leader_epoch):
            partition.check_leader(epoch)
        return partition

    def read(self) -> None:
        """Gather from every partition, from the start."""
        self._results = results = []
        self.partitions = []
        self.size_bytes = 0
        self.must_respond = False
        for position in self._plan.positions:
            try:
                result = self._read_partition(position)
            except Refused as refusal:
                self.must_respond = True
                result = FetchedPartition(
                    position.index, refusal.code, current_leader=current_leader(refusal)
                )
            results.append((position, result))

    def _read_partition(self, position: FetchPosition) -> FetchedPartition:
        partition = self._find(position)
        self.partitions.append(partition)
        log = partition.log
        start_offset, high_watermark = log.start_offset, log.high_watermark
        stable_offset = log.last_stable_offset
        diverging = None
        if position.last_fetched_epoch >= 0:
            diverging = partition.log.find_divergence(
                LeaderEpoch(position.last_fetched_epoch), Offset(position.fetch_offset)
            )
        if diverging is not None:
            self.must_respond = True
            return FetchedPartition(
                position.index,
                ErrorCode.none,
                high_watermark,
                stable_offset,
                start_offset,
                diverging_epoch=DivergingEpoch(*diverging),
            )
        offset = position.fetch_offset
        if not start_offset <= offset <= log.end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"the log has offsets {start_offset} to {log.end_offset}",
            )
        end_offset = stable_offset if self.committed_only else high_watermark
        records, aborted = NO_RECORDS, _NONE_ABORTED if self.committed_only else None
        if offset < end_offset:
            try:
                records, aborted = self._read_log(log, position, end_offset)
            except Refused as refusal:
                partition.on_unreadable(refusal)
                raise
        return FetchedPartition(
            position.index,
            ErrorCode.none,
            high_watermark,
            stable_offset,
            start_offset,
            records,
            aborted,
        )

    def _read_log(
        self, log: PartitionLog, position: FetchPosition, end_offset: Offset
    ) -> tuple[memoryview, Sequence[FetchedAbort] | None]:
        """As much as fits, and the aborted transactions in it, which the client skips."""
        is_first = self.size_bytes == 0
        max_bytes = min(position.max_bytes, self._max_bytes - self.size_bytes)
        if max_bytes <= 0 and not is_first:
            return NO_RECORDS, _NONE_ABORTED if self.committed_only else None
        offset = Offset(position.fetch_offset)
        chunk = log.read(
            offset, max_bytes=max(max_bytes, 0), end_offset=end_offset, whole_first=is_first
        )
        self.size_bytes += len(chunk.view)
        if not self.committed_only:
            return chunk.view, None
        return chunk.view, [
            FetchedAbort(aborted.producer_id, aborted.first_offset)
            for aborted in log.aborted_in(chunk, offset, end_offset)
        ]

    def respond(self) -> FetchResponse:
        """The response: every partition, or in a session those that changed."""
        context, plan = self._context, self._plan
        session = plan.session
        by_topic: dict[TopicKey, list[FetchedPartition]] = {}
        leaders = []
        for position, result in self._results:
            if session is not None:
                has_changed = _has_changed(position, result)
                if plan.is_incremental and not has_changed:
                    continue
                if result.records:
                    session.serve_last(position)
            rows = by_topic.get(position.topic)
            if rows is None:
                rows = by_topic[position.topic] = []
            rows.append(result)
            if result.records and position.partition is not None:
                position.partition.counts.sent_bytes += len(result.records)
            if result.current_leader is not None:
                leaders.append(result.current_leader)
        if context.broker.quotas.limits_bytes:
            context.throttle_ms = context.broker.quotas.charge(
                QuotaKind.FETCH_BYTES, context.principal, context.client_id, self.size_bytes
            )
        return FetchResponse(
            ErrorCode.none,
            NO_SESSION if session is None else session.session_id,
            [FetchedTopic(*row) for row in by_topic.items()],
            endpoints_of(context.broker.cluster, leaders) if leaders else (),
        )


def _has_changed(position: FetchPosition, result: FetchedPartition) -> bool:
    has_moved = position.has_changed(result.high_watermark, result.log_start_offset)
    if result.error_code:
        position.sent_high_watermark = -1  # so that the first result after the error is sent
        return True
    return bool(has_moved or result.records or result.diverging_epoch)


def _max_bytes(context: Context, requested: int) -> int:
    broker = context.broker
    max_bytes = min(requested, broker.settings.fetch_bytes_max)
    if not broker.quotas.limits_bytes:
        return max_bytes
    burst = broker.quotas.burst(QuotaKind.FETCH_BYTES, context.principal, context.client_id)
    return max_bytes if burst is None else min(max_bytes, burst)


HANDLERS = (
    Handler(
        FETCH,
        versions=(4, 18),
        handle=fetch,
        allow=AnyOf(on_cluster(Operation.CLUSTER_ACTION), on_each_topic(Operation.READ)),
        before_ready=is_metadata_fetch,
    ),
)
