"""Fetch sessions: the partitions that a consumer fetches, so that it need not repeat them.

A client with the id of a session uses it. Its partitions are in the order in which they are served:
one that returned records goes to the end, so that none starves behind a busy one. The number of
sessions is limited: a new one replaces one that has been idle for long, or is not given, and the
client is served without a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.broker.partition import Partition
    from penstock.model import Millis
    from penstock.protocol.fields import TopicKey
    from penstock.protocol.messages.fetch import FetchPartition

NO_SESSION: Final = 0
OPEN_EPOCH: Final = 0  # the client requests a session
CLOSE_EPOCH: Final = -1  # the client wants no session
_LAST_EPOCH: Final = 2**31 - 1


class FetchPosition:
    """One partition that a client fetches, and what the last response said of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "generation",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, requested: FetchPartition) -> None:
        self.topic: TopicKey = topic
        self.index: int = requested.partition
        self.current_leader_epoch: int = requested.current_leader_epoch
        self.fetch_offset: int = requested.fetch_offset
        self.last_fetched_epoch: int = requested.last_fetched_epoch
        self.max_bytes: int = requested.partition_max_bytes
        self.partition: Partition | None = None  # as looked up when last read
        self.generation: int = -1  # of the table in which it was looked up
        self.sent_high_watermark: int = -1
        self.sent_start_offset: int = -1

    def update(self, newer: FetchPosition) -> None:
        """The client changed what it requests of this partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch

    def has_changed(self, high_watermark: int, start_offset: int) -> bool:
        """Whether a response must include this partition without records; remembers the values."""
        sent = (self.sent_high_watermark, self.sent_start_offset)
        self.sent_high_watermark, self.sent_start_offset = high_watermark, start_offset
        return sent != (high_watermark, start_offset)


class FetchSession:
    """The partitions of one client."""

    __slots__ = ("by_id", "epoch", "positions", "session_id", "used_at")

    def __init__(self, session_id: int, *, by_id: bool, now: Millis) -> None:
        self.session_id: int = session_id
        self.by_id: bool = by_id
        self.epoch: int = 1  # of the next incremental request
        self.used_at: Millis = now
        self.positions: dict[tuple[TopicKey, int], FetchPosition] = {}

    def change(
        self, positions: Iterable[FetchPosition], removed: Iterable[tuple[TopicKey, int]]
    ) -> None:
        """Add, change and remove partitions."""
        for position in positions:
            key = (position.topic, position.index)
            known = self.positions.get(key)
            if known is None:
                self.positions[key] = position
            else:
                known.update(position)
        for key in removed:
            self.positions.pop(key, None)

    def serve_last(self, position: FetchPosition) -> None:
        """This one returned records: the others come first the next time."""
        key = (position.topic, position.index)
        if self.positions.pop(key, None) is not None:
            self.positions[key] = position


class FetchPlan(NamedTuple):
    """What one fetch is about: the partitions, and their session, if any."""

    positions: list[FetchPosition]
    session: FetchSession | None
    is_incremental: bool


class FetchSessions:
    """The sessions of this broker, least recently used first."""

    def __init__(self, *, sessions_max: int, idle_ms: Millis, new_id: Callable[[], int]) -> None:
        self._sessions: dict[int, FetchSession] = {}
        self._sessions_max = sessions_max
        self._idle_ms = idle_ms
        self._new_id = new_id
        self.evicted: int = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(
        self,
        session_id: int,
        epoch: int,
        positions: list[FetchPosition],
        removed: Iterable[tuple[TopicKey, int]],
        *,
        by_id: bool,
        now: Millis,
    ) -> FetchPlan:
        """Apply a request to its session. Refused: the client must start over with a full one."""
        if epoch in (CLOSE_EPOCH, OPEN_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == CLOSE_EPOCH:
                return FetchPlan(positions, None, False)
            return FetchPlan(positions, self._open(positions, by_id=by_id, now=now), False)
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(ErrorCode.fetch_session_id_not_found, "no such fetch session")
        if session.by_id != by_id:
            raise Refused(
                ErrorCode.fetch_session_topic_id_error, "topic names and topic ids are mixed"
            )
        if session.epoch != epoch:
            raise Refused(
                ErrorCode.invalid_fetch_session_epoch, f"the session is at {session.epoch}"
            )
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)  # now the most recent
        session.change(positions, removed)
        return FetchPlan(list(session.positions.values()), session, True)

    def _open(
        self, positions: list[FetchPosition], *, by_id: bool, now: Millis
    ) -> FetchSession | None:
        if not positions or not self._has_capacity(now):
            return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, by_id=by_id, now=now)
        session.change(positions, ())
        self._sessions[session_id] = session
        return session

    def _has_capacity(self, now: Millis) -> bool:
        """Evicts the least recently used session, if that has been idle for long."""
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_at < self._idle_ms:
            return False
        del self._sessions[oldest.session_id]
        self.evicted += 1
        return True
