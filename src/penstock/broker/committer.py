"""How far a partition is committed: one committer per leadership, replaced with it. Pure.

Each method returns the high watermark that follows from what happened, or NO_NEWS. It may be lower
than the partition's: a high watermark never moves back, and the partition sees to that.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from penstock.model import NodeId, Offset

NO_NEWS: Final = Offset(-1)


class Committer(Protocol):
    """Decides what is committed."""

    @property
    def waits_for_flush(self) -> bool:
        """Whether so much is unflushed that nothing more is committed before a flush."""

    def on_appended(self, end_offset: Offset) -> Offset:
        """The leader's log ends at `end_offset` now."""

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """Everything below is on the leader's disk."""

    def on_replica_fetch(self, replica: NodeId, end_offset: Offset) -> Offset:
        """A follower has everything below."""


class LocalCommitter:
    """The only in-sync replica: appended is committed."""

    __slots__ = ()

    waits_for_flush = False

    def on_appended(self, end_offset: Offset) -> Offset:
        """At once."""
        return end_offset

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """Commits nothing that was not committed."""
        return NO_NEWS

    def on_replica_fetch(self, replica: NodeId, end_offset: Offset) -> Offset:
        """Others are not asked."""
        return NO_NEWS


class FlushCommitter:
    """The only in-sync replica, under `flush.messages`: committed while fewer are unflushed."""

    __slots__ = ("_end_offset", "_flush_messages", "_flushed_offset")

    def __init__(self, flush_messages: int, flushed_offset: Offset) -> None:
        self._flush_messages = flush_messages
        self._flushed_offset = self._end_offset = flushed_offset

    @property
    def waits_for_flush(self) -> bool:
        """Whether `flush.messages` or more are not on disk."""
        return self._end_offset - self._flushed_offset >= self._flush_messages

    def on_appended(self, end_offset: Offset) -> Offset:
        """All of it, unless a flush is due first."""
        self._end_offset = end_offset
        return NO_NEWS if self.waits_for_flush else end_offset

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """What was appended meanwhile may be due for the next flush."""
        self._flushed_offset = max(self._flushed_offset, flushed_offset)
        return flushed_offset if self.waits_for_flush else self._end_offset

    def on_replica_fetch(self, replica: NodeId, end_offset: Offset) -> Offset:
        """Others are not asked."""
        return NO_NEWS


class InSyncCommitter:
    """A leader with followers in sync: committed is what each of them has, and the leader too."""

    __slots__ = ("_end_offsets", "_leader", "_leader_offset")

    def __init__(self, leader: Committer, followers: Iterable[NodeId]) -> None:
        self._leader = leader
        self._leader_offset = NO_NEWS
        self._end_offsets = dict.fromkeys(followers, NO_NEWS)

    @property
    def waits_for_flush(self) -> bool:
        """Whether the leader's own disk is waited for."""
        return self._leader.waits_for_flush

    def on_appended(self, end_offset: Offset) -> Offset:
        """The followers have still to fetch it."""
        return self._leader_moved(self._leader.on_appended(end_offset))

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """The leader's part may have been the last."""
        return self._leader_moved(self._leader.on_flushed(flushed_offset))

    def on_replica_fetch(self, replica: NodeId, end_offset: Offset) -> Offset:
        """A fetch at an offset says that everything below has arrived."""
        if replica in self._end_offsets:
            self._end_offsets[replica] = max(self._end_offsets[replica], end_offset)
        return self._committed()

    def _leader_moved(self, offset: Offset) -> Offset:
        self._leader_offset = max(self._leader_offset, offset)
        return self._committed()

    def _committed(self) -> Offset:
        return min(self._leader_offset, *self._end_offsets.values())
