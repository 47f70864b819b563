"""What waits for a partition: for records to be committed, or to be deleted on all replicas."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from penstock.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from penstock.model import Offset

# Called with None when it has happened, else with the reason why it will not.
OnCommitted: TypeAlias = Callable[[Refused | None], None]


class _CommitWait(NamedTuple):
    end_offset: Offset
    call: OnCommitted
    needs_min_insync: bool


class PartitionWaits:
    """The waits of one partition. Those for commits come in the order of the log."""

    __slots__ = ("_commits", "_deletions")

    def __init__(self) -> None:
        self._commits: deque[_CommitWait] = deque()
        self._deletions: list[tuple[Offset, OnCommitted]] = []

    @property
    def has_deletions(self) -> bool:
        """Whether a deletion is waited for."""
        return bool(self._deletions)

    def add_commit(self, end_offset: Offset, call: OnCommitted, *, needs_min_insync: bool) -> None:
        """Wait for the high watermark."""
        self._commits.append(_CommitWait(end_offset, call, needs_min_insync))

    def add_deletion(self, offset: Offset, call: OnCommitted) -> None:
        """Wait until no replica that is in sync has a record below the offset."""
        self._deletions.append((offset, call))

    def on_committed(self, high_watermark: Offset) -> None:
        """Release what is committed."""
        commits = self._commits
        while commits and commits[0].end_offset <= high_watermark:
            commits.popleft().call(None)

    def on_deleted(self, least_start_offset: Offset) -> None:
        """Release what every replica that is in sync has deleted."""
        waiting = self._deletions
        self._deletions = [row for row in waiting if row[0] > least_start_offset]
        for offset, call in waiting:
            if offset <= least_start_offset:
                call(None)

    def on_too_few_in_sync(self) -> None:
        """Nothing is committed until more replicas are in sync: tell those that can act on it."""
        waiting = self._commits
        self._commits = deque(row for row in waiting if not row.needs_min_insync)
        refusal = Refused(
            ErrorCode.not_enough_replicas_after_append,
            "appended, but fewer replicas are in sync now than min.insync.replicas requires",
        )
        for row in waiting:
            if row.needs_min_insync:
                row.call(refusal)

    def refuse_all(self, refusal: Refused) -> None:
        """Nothing that is waited for will happen here."""
        commits, self._commits = self._commits, deque()
        deletions, self._deletions = self._deletions, []
        for row in commits:
            row.call(refusal)
        for _, call in deletions:
            call(refusal)


def disk_failed() -> Refused:
    """To writes whose outcome the disk does not let us know."""
    return Refused(ErrorCode.kafka_storage_error, "the disk failed")
