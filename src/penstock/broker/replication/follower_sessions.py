"""Fetch sessions of followers: what this broker, as the leader, has for each of them.

A session keeps a list of the partitions that have something new, so a fetch costs what happened,
not how many partitions there are. A fetch with nothing to send waits; an append ends the wait in
the same turn of the loop, and so does the session's next fetch: a follower need not wait for a
response to fetch from other partitions. A high watermark alone ends no wait. It goes with the next
response: else every append would cost each follower two fetches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.broker.partition_lookup import current_leader, endpoints_of, find_leader
from penstock.errors import ErrorCode, Malformed, Refused
from penstock.machine import Deferred
from penstock.model import NO_OFFSET, LeaderEpoch, NodeId, Offset
from penstock.protocol.batch import check_stored_batch, iterate_headers
from penstock.protocol.messages.fetch import (
    DivergingEpoch,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker import Broker
    from penstock.broker.handler import Answer
    from penstock.broker.partition import Partition
    from penstock.model import Millis
    from penstock.protocol.fields import LeaderAndEpoch, TopicKey
    from penstock.protocol.messages.fetch import FetchingReplica, FetchPartition, FetchRequest

OPEN_EPOCH: Final = 0  # the follower requests a new session
CLOSE_EPOCH: Final = -1  # and here it wants none
NO_SESSION: Final = 0
IDLE_MS: Final = 30_000  # then a follower is gone
_LAST_EPOCH: Final = 2**31 - 1
_NO_RECORDS: Final = memoryview(b"")


class FollowerPosition:
    """One partition of a session: where the follower's log ends, and what was sent last."""

    __slots__ = (
        "_session",
        "fetch_offset",
        "index",
        "is_answered",
        "is_counted",
        "last_epoch",
        "leader_epoch",
        "max_bytes",
        "must_check",
        "partition",
        "sent",
        "sent_start",
        "start_offset",
        "topic",
    )

    def __init__(self, session: FollowerSession, topic: TopicKey, index: int) -> None:
        self._session = session
        self.topic: TopicKey = topic
        self.index: int = index
        self.leader_epoch: int
        self.fetch_offset: Offset
        self.start_offset: Offset  # of the follower's log
        self.last_epoch: LeaderEpoch  # of the follower's last batch
        self.max_bytes: int
        self.is_counted: bool  # whether the partition knows the offset
        self.is_answered: bool = False  # with records or an error: it fetches again when ready
        self.must_check: bool = False  # it was sent records from here and could not append them
        self.fetch_offset = Offset(-1)
        self.leader_epoch = -1
        self.partition: Partition | None = None  # while it is led here
        self.sent: tuple[int, int] | None = None  # high watermark and log start, since it fetched
        self.sent_start: int = NO_OFFSET  # log start, in this session

    def update(self, requested: FetchPartition) -> None:
        """The follower fetches from another offset, or in another leader epoch."""
        again = requested.current_leader_epoch, requested.fetch_offset
        self.must_check = self.is_answered and again == (self.leader_epoch, self.fetch_offset)
        self.leader_epoch = requested.current_leader_epoch
        self.fetch_offset = Offset(requested.fetch_offset)
        self.start_offset = Offset(requested.log_start_offset)
        self.last_epoch = LeaderEpoch(requested.last_fetched_epoch)
        self.max_bytes = requested.partition_max_bytes
        self.is_counted = self.is_answered = False

    def is_urgent(self, row: FetchedPartition) -> bool:
        """Whether it says more than a high watermark."""
        return self.is_answered or row.log_start_offset != self.sent_start

    def note_sent(self, row: FetchedPartition) -> None:
        """A response with this row leaves."""
        self.sent = row.high_watermark, row.log_start_offset
        self.sent_start = row.log_start_offset

    def attach(self, partition: Partition) -> None:
        """Listen to the partition."""
        if self.partition is not partition:
            self.detach()
            self.partition = partition
        if self not in partition.followers:
            partition.followers.append(self)

    def detach(self) -> None:
        """Listen no more."""
        if self.partition is not None and self in self.partition.followers:
            self.partition.followers.remove(self)
        self.partition = None

    # Implements `partition_ports.FollowerListener`.

    def on_appended(self) -> None:
        if not self.is_answered:
            self._session.add_ready(self, wake=True)

    def on_high_watermark(self) -> None:
        if not self.is_answered:
            self._session.add_ready(self, wake=False)

    def on_start_moved(self) -> None:
        if not self.is_answered:
            self._session.add_ready(self, wake=True)

    def on_unavailable(self) -> None:
        self.partition = None
        self.is_counted = False
        if not self.is_answered:
            self._session.add_ready(self, wake=True)


class FollowerSession:
    """What one follower fetches from this broker."""

    def __init__(self, broker: Broker, session_id: int, replica: FetchingReplica) -> None:
        self._broker = broker
        self.session_id: int = session_id
        self.epoch: int = 1  # of the next fetch
        self.used_at: Millis = broker.steady_clock()
        self._replica_id = NodeId(replica.replica_id)
        self._broker_epoch = replica.replica_epoch
        self._positions: dict[tuple[TopicKey, int], FollowerPosition] = {}
        self._ready: dict[FollowerPosition, None] = {}  # in the order in which they are served
        self._wait: _Wait | None = None
        self._max_bytes = 0

    def fetch(self, request: FetchRequest) -> Answer[FetchResponse]:
        """Apply a fetch; its response, now or when there is something new."""
        self.end_wait()
        self._max_bytes = request.max_bytes
        for topic, requested in request.topics:
            for each in requested:
                self._update(topic, each)
        for topic, indexes in request.removed_topics:
            for index in indexes:
                self._remove((topic, index))
        has_waited = request.max_wait_ms <= 0
        rows = self._read(has_waited)
        if rows or has_waited:
            return self._respond(rows)
        self._wait = _Wait(request.max_wait_ms / 1000, lambda: self._respond(self._read(True)))
        return self._wait.deferred

    def add_ready(self, position: FollowerPosition, *, wake: bool) -> None:
        """The partition has something new; `wake` ends a waiting fetch."""
        self._ready[position] = None
        if wake and self._wait is not None:
            self._wait.end_soon()

    def end_wait(self) -> None:
        """Respond to a waiting fetch with what there is."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait.end()

    def close(self) -> None:
        """Another session replaces this one."""
        self.end_wait()
        for position in self._positions.values():
            position.detach()

    def _update(self, topic: TopicKey, requested: FetchPartition) -> None:
        key = topic, requested.partition
        position = self._positions.get(key)
        if position is None:
            position = self._positions[key] = FollowerPosition(self, topic, requested.partition)
        position.update(requested)
        self._ready[position] = None

    def _remove(self, key: tuple[TopicKey, int]) -> None:
        position = self._positions.pop(key, None)
        if position is not None:
            position.detach()
            self._ready.pop(position, None)

    # Reading.

    def _read(self, has_waited: bool) -> list[tuple[TopicKey, FetchedPartition]]:
        """What there is to send; nothing but high watermarks only if the fetch has waited."""
        rows: list[tuple[FollowerPosition, FetchedPartition]] = []
        must_respond = has_waited
        size_bytes = 0
        ready, self._ready = self._ready, {}
        left = iter(ready)
        for position in left:
            row = self._read_position(position, self._max_bytes - size_bytes, size_bytes == 0)
            if row is None:
                continue
            rows.append((position, row))
            must_respond = must_respond or position.is_urgent(row)
            size_bytes += len(row.records or b"")
            if size_bytes >= self._max_bytes:
                break
        self._ready = {**dict.fromkeys(left), **self._ready}
        if not must_respond:
            self._ready.update(dict.fromkeys(position for position, _ in rows))
            return []
        for position, row in rows:
            position.note_sent(row)
        return [(position.topic, row) for position, row in rows]

    def _read_position(
        self, position: FollowerPosition, max_bytes: int, is_first: bool
    ) -> FetchedPartition | None:
        """What the response says of a partition; None: nothing new."""
        try:
            partition = find_leader(
                self._broker, position.topic, position.index, position.leader_epoch
            )
            if self._replica_id not in partition.leadership.replicas:
                raise self._not_a_replica(position)
            diverging = self._count(position, partition)
        except Refused as refusal:
            return self._refused(position, refusal)
        log = partition.log
        if diverging is not None:
            position.is_answered = True
            return FetchedPartition(
                position.index, ErrorCode.none, *_offsets(partition), diverging_epoch=diverging
            )
        records = _NO_RECORDS
        if position.fetch_offset < log.end_offset:
            try:
                records = log.read(
                    position.fetch_offset,
                    max_bytes=max(0, min(position.max_bytes, max_bytes)),
                    end_offset=log.end_offset,
                    whole_first=is_first,
                ).view
                if position.must_check:
                    _check(records)
            except Refused as refusal:
                partition.on_unreadable(refusal)
                return self._refused(position, refusal)
            if not records:  # the response is full: it is served by the next one
                self._ready[position] = None
        if not records and position.sent == (log.high_watermark, log.start_offset):
            return None
        position.is_answered = len(records) > 0
        return FetchedPartition(position.index, ErrorCode.none, *_offsets(partition), records)

    def _not_a_replica(self, position: FollowerPosition) -> Refused:
        """With an epoch that this leader is in, one of both does not know the replicas yet."""
        knows_epoch = position.leader_epoch >= 0
        code = ErrorCode.unknown_leader_epoch if knows_epoch else ErrorCode.not_leader_or_follower
        return Refused(code, f"broker {self._replica_id} has no replica of this partition")

    def _count(self, position: FollowerPosition, partition: Partition) -> DivergingEpoch | None:
        """Tell the partition how far the follower is, if its history is the same."""
        if position.is_counted:
            return None
        offset, log = position.fetch_offset, partition.log
        if position.last_epoch >= 0:
            diverging = partition.log.find_divergence(position.last_epoch, offset)
            if diverging is not None:
                return DivergingEpoch(*diverging)
        if not log.start_offset <= offset <= log.end_offset:
            raise Refused(
                ErrorCode.offset_out_of_range,
                f"the log has offsets {log.start_offset} to {log.end_offset}",
            )
        position.attach(partition)
        position.is_counted = True
        position.sent = None
        partition.on_replica_fetch(
            self._replica_id,
            offset,
            start_offset=position.start_offset,
            broker_epoch=self._broker_epoch,
            now=self._broker.steady_clock(),
        )
        self._broker.in_sync_changes.on_replica_fetch(partition)
        return None

    def _refused(self, position: FollowerPosition, refusal: Refused) -> FetchedPartition:
        """An error, said once: the follower fetches the partition again when it is ready to."""
        position.detach()
        position.is_answered = True
        topic = self._broker.partitions.topic(position.topic)
        partition = None if topic is None else topic.partitions.get(position.index)
        offsets = (-1, -1, -1) if partition is None else _offsets(partition)
        return FetchedPartition(
            position.index, refusal.code, *offsets, current_leader=current_leader(refusal)
        )

    def _respond(self, rows: list[tuple[TopicKey, FetchedPartition]]) -> FetchResponse:
        by_topic: dict[TopicKey, list[FetchedPartition]] = {}
        leaders: list[LeaderAndEpoch] = []
        for topic, row in rows:
            by_topic.setdefault(topic, []).append(row)
            if row.current_leader is not None:
                leaders.append(row.current_leader)
        return FetchResponse(
            ErrorCode.none,
            self.session_id,
            [FetchedTopic(*each) for each in by_topic.items()],
            endpoints_of(self._broker.cluster, leaders) if leaders else (),
        )


class _Wait:
    """A fetch that waits, until it is ended."""

    def __init__(self, wait_s: float, read: Callable[[], FetchResponse]) -> None:
        self._loop = asyncio.get_running_loop()
        self._read = read
        self._is_ended = self._is_scheduled = False
        self._deadline = self._loop.call_later(wait_s, self.end)
        self.deferred: Deferred[FetchResponse] = Deferred(self._cancel)

    def end_soon(self) -> None:
        """After this turn of the loop, which may bring more."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self.end)

    def end(self) -> None:
        """Respond with what there is."""
        if not self._is_ended:
            self._cancel()
            self.deferred.resolve(self._read())

    def _cancel(self) -> None:
        self._is_ended = True
        self._deadline.cancel()


class FollowerSessions:
    """The sessions of all followers, one for each."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._sessions: dict[NodeId, FollowerSession] = {}

    def fetch(self, broker: Broker, request: FetchRequest) -> Answer[FetchResponse]:
        """A follower's fetch. An error of its session makes the follower start over."""
        replica, epoch = request.replica, request.session_epoch
        replica_id, now = NodeId(replica.replica_id), broker.steady_clock()
        if replica_id not in broker.cluster.state.brokers:  # or not known here yet
            return FetchResponse(ErrorCode.broker_id_not_registered)
        self._close_idle(now)
        session = self._sessions.get(replica_id)
        if epoch in (OPEN_EPOCH, CLOSE_EPOCH):
            if session is not None:
                session.close()
            session_id = NO_SESSION if epoch == CLOSE_EPOCH else self._new_id()
            session = FollowerSession(broker, session_id, replica)
            self._sessions[replica_id] = session
        elif session is None or session.session_id != request.session_id:
            return FetchResponse(ErrorCode.fetch_session_id_not_found)
        elif session.epoch != epoch:
            return FetchResponse(ErrorCode.invalid_fetch_session_epoch)
        else:
            session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_at = now
        return session.fetch(request)

    def _close_idle(self, now: Millis) -> None:
        """A follower that is alive fetches all the time."""
        for replica_id, session in tuple(self._sessions.items()):
            if now - session.used_at > IDLE_MS:
                del self._sessions[replica_id]
                session.close()


def _check(records: memoryview) -> None:
    """Refused when a batch is not as it was written: no follower appends it."""
    try:
        for position, header in iterate_headers(records):
            if position + header.size_bytes <= len(records):
                check_stored_batch(records, position, header=header)
    except Malformed as malformed:
        raise Refused(ErrorCode.corrupt_message, f"the log is damaged: {malformed}") from malformed


def _offsets(partition: Partition) -> tuple[Offset, Offset, Offset]:
    log = partition.log
    return log.high_watermark, log.last_stable_offset, log.start_offset
