"""Fetch sessions: what a consumer watches, kept here so that it need not say it again every time.

A session belongs to whoever knows its id. Its partitions stay in the order in which they are
served: one that gave records goes to the end, so that none starves behind a busy one. The cache is
bounded: a new session takes the place of one that has been idle for long, or is not given, in which
case the client is served without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from penstock.broker.partition import Partition
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis
from penstock.protocol.fields import TopicKey
from penstock.protocol.messages.fetch import WantedPartition

NO_SESSION: Final = 0
OPEN_EPOCH: Final = 0  # the client wants a session
CLOSE_EPOCH: Final = -1  # the client wants none
_EPOCH_LAST: Final = 2**31 - 1


class Wanted:
    """One partition that a client fetches, and what it was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "generation",
        "index",
        "last_fetched_epoch",
        "max_bytes",
        "partition",
        "told_high_watermark",
        "told_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, asked: WantedPartition) -> None:
        self.topic = topic
        (
            self.index,
            self.current_leader_epoch,
            self.fetch_offset,
            self.last_fetched_epoch,
            _,
            self.max_bytes,
        ) = asked
        self.partition: Partition | None = None  # found when last read
        self.generation = -1  # of the table that it was found in
        self.told_high_watermark = -1
        self.told_start_offset = -1

    def ask(self, newer: Wanted) -> None:
        """The client changed what it wants of this partition."""
        self.fetch_offset = newer.fetch_offset
        self.max_bytes = newer.max_bytes
        self.current_leader_epoch = newer.current_leader_epoch
        self.last_fetched_epoch = newer.last_fetched_epoch

    def is_news(self, high_watermark: int, start_offset: int) -> bool:
        """Whether the client must hear of this partition though it has no records; notes it."""
        told = (self.told_high_watermark, self.told_start_offset)
        self.told_high_watermark, self.told_start_offset = high_watermark, start_offset
        return told != (high_watermark, start_offset)


class Session:
    """One client's watch list."""

    __slots__ = ("by_id", "epoch", "session_id", "used_at", "wanted")

    def __init__(self, session_id: int, *, by_id: bool, now: Millis) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1  # what the next incremental request must say
        self.used_at = now
        self.wanted: dict[tuple[TopicKey, int], Wanted] = {}

    def change(self, wanted: Iterable[Wanted], forgotten: Iterable[tuple[TopicKey, int]]) -> None:
        """Add, change and drop partitions."""
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = self.wanted.get(key)
            if known is None:
                self.wanted[key] = partition
            else:
                known.ask(partition)
        for key in forgotten:
            self.wanted.pop(key, None)

    def serve_last(self, wanted: Wanted) -> None:
        """This one gave records: let the others go first next time."""
        key = (wanted.topic, wanted.index)
        if self.wanted.pop(key, None) is not None:
            self.wanted[key] = wanted


class Asked(NamedTuple):
    """What one fetch is about: the partitions, and the session they belong to, if any."""

    wanted: list[Wanted]
    session: Session | None
    is_incremental: bool


class FetchSessions:
    """The sessions of this broker, least recently used first."""

    def __init__(self, *, sessions_max: int, idle_ms: Millis, mint_id: Callable[[], int]) -> None:
        self._sessions: dict[int, Session] = {}
        self._sessions_max = sessions_max
        self._idle_ms = idle_ms
        self._mint_id = mint_id
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def ask(
        self,
        session_id: int,
        epoch: int,
        wanted: list[Wanted],
        forgotten: Iterable[tuple[TopicKey, int]],
        *,
        by_id: bool,
        now: Millis,
    ) -> Asked:
        """Take a fetch in. Refused: the client must start over with a full one."""
        if epoch in (CLOSE_EPOCH, OPEN_EPOCH):
            self._sessions.pop(session_id, None)
            if epoch == CLOSE_EPOCH:
                return Asked(wanted, None, False)
            return Asked(wanted, self._open(wanted, by_id=by_id, now=now), False)
        session = self._sessions.get(session_id)
        if session is None:
            raise Refused(ErrorCode.fetch_session_id_not_found, "no such fetch session")
        if session.by_id != by_id:
            raise Refused(ErrorCode.fetch_session_topic_id_error, "names and ids are mixed")
        if session.epoch != epoch:
            raise Refused(
                ErrorCode.invalid_fetch_session_epoch, f"the session is at {session.epoch}"
            )
        session.epoch = 1 if epoch == _EPOCH_LAST else epoch + 1
        session.used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)  # now the most recent
        session.change(wanted, forgotten)
        return Asked(list(session.wanted.values()), session, True)

    def _open(self, wanted: list[Wanted], *, by_id: bool, now: Millis) -> Session | None:
        if not wanted or not self._make_room(now):
            return None
        session_id = self._mint_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._mint_id()
        session = Session(session_id, by_id=by_id, now=now)
        session.change(wanted, ())
        self._sessions[session_id] = session
        return session

    def _make_room(self, now: Millis) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_at < self._idle_ms:
            return False
        del self._sessions[oldest.session_id]
        self.evicted += 1
        return True
