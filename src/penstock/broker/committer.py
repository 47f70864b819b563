"""How far a partition is committed: one committer per leadership. Pure.

Each method returns the resulting high watermark, or UNCHANGED. It may be lower than the
partition's own, which never moves back: the partition ignores it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from penstock.model import Offset

if TYPE_CHECKING:
    from penstock.consensus.replica.leader import InSyncReplicas

UNCHANGED: Final = Offset(-1)


class Committer(Protocol):
    """Decides what is committed."""

    @property
    def waits_for_flush(self) -> bool:
        """Whether nothing more is committed before a flush."""

    def on_appended(self, end_offset: Offset) -> Offset:
        """The leader's log ends at `end_offset` now."""

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """Everything below is on the leader's disk."""


class LocalCommitter:
    """The only in-sync replica: appended is committed."""

    __slots__ = ()

    waits_for_flush = False

    def on_appended(self, end_offset: Offset) -> Offset:
        """All of it."""
        return end_offset

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """Commits nothing: everything is committed."""
        return UNCHANGED


class FlushCommitter:
    """The only in-sync replica, under `flush.messages`: commits while fewer are unflushed."""

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
        return UNCHANGED if self.waits_for_flush else end_offset

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """What was appended meanwhile may need the next flush."""
        self._flushed_offset = max(self._flushed_offset, flushed_offset)
        return flushed_offset if self.waits_for_flush else self._end_offset


class ReplicatedCommitter:
    """A leader with followers: commits what the in-sync replicas have."""

    __slots__ = ("_in_sync", "_local")

    def __init__(self, local: Committer, in_sync: InSyncReplicas) -> None:
        self._local = local
        self._in_sync = in_sync

    @property
    def waits_for_flush(self) -> bool:
        """Whether the leader waits for its own disk."""
        return self._local.waits_for_flush

    def on_appended(self, end_offset: Offset) -> Offset:
        """The followers have yet to fetch it."""
        return self._on_leader(self._local.on_appended(end_offset))

    def on_flushed(self, flushed_offset: Offset) -> Offset:
        """The leader may have been the last."""
        return self._on_leader(self._local.on_flushed(flushed_offset))

    def _on_leader(self, offset: Offset) -> Offset:
        return UNCHANGED if offset == UNCHANGED else self._in_sync.on_leader_end(offset)
