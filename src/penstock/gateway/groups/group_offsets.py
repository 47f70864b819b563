"""Committed offsets of groups: read with their versions, committed by the rules, and the lag.

Check and commit of a group are serialized in this process, so versions are exact among commits
through it. Kafka has no compare-and-set: against another gateway or a Kafka client a commit between
check and commit is not seen.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from penstock.errors import ErrorCode, Refused
from penstock.gateway.errors import GatewayError, unavailable
from penstock.gateway.gateway_node import GatewayNode, wall_clock
from penstock.gateway.groups.commit_rules import (
    CommitConflict,
    VersionedOffset,
    WantedCommit,
    decide_commit,
    read_version,
    write_version,
)
from penstock.gateway.groups.living_members import Members
from penstock.gateway.kafka.group_admin import CommittingMember, OffsetWithText, commit_as
from penstock.link.offsets import Isolation, committed_offsets, end_offsets
from penstock.model import Offset, TopicPartition

_NO_MEMBER = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
    }
)


class GroupOffsets:
    """Offsets of all groups."""

    def __init__(self, node: GatewayNode, members: Members) -> None:
        self._node = node
        self._members = members
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def read(
        self, group: str, partitions: Sequence[TopicPartition] | None = None
    ) -> dict[TopicPartition, VersionedOffset]:
        """What a group has committed, with versions."""
        rows = await self._node.run(committed_offsets(group, partitions))
        return {
            partition: read_version(row.offset, row.metadata) for partition, row in rows.items()
        }

    async def commit(
        self, group: str, wanted: Sequence[WantedCommit], member: str | None, *, reset: bool
    ) -> dict[TopicPartition, VersionedOffset]:
        """Commit all or none; 409 lists every conflict."""
        lock = self._locks.get(group)
        if lock is None:
            lock = self._locks[group] = asyncio.Lock()
        async with lock:
            committer = CommittingMember() if member is None else self._committer(group, member)
            current = await self.read(group, [commit.partition for commit in wanted])
            decided = decide_commit(current, wanted, reset=reset, now=wall_clock())
            if isinstance(decided, list):
                raise _conflict(decided)
            rows = {
                partition: OffsetWithText(row.offset, write_version(row))
                for partition, row in decided.items()
            }
            try:
                await self._node.run(commit_as(group, committer, rows))
            except Refused as refusal:
                raise _refused(refusal, group, member) from None
            return decided

    async def lag(self, group: str) -> list[dict[str, Any]]:
        """How far each partition's committed offset is from the end, read committed."""
        committed = await self.read(group)
        if not committed:
            return []
        committed_only = Isolation.READ_COMMITTED
        ends = await self._node.run(end_offsets(committed, isolation=committed_only))
        return [
            {
                **offset_document(partition, row),
                "end_offset": ends[partition],
                "lag": max(0, ends[partition] - row.offset),
            }
            for partition, row in sorted(committed.items())
        ]

    def _committer(self, group: str, member: str) -> CommittingMember:
        of_stream = self._node.stream_members.get((group, member))
        if of_stream is None:
            committer = self._members.find(group, member).committer
        else:
            committer = of_stream()
        if committer is None:
            raise unavailable("the group is rebalancing; try again in a moment", "rebalancing")
        return committer


def offset_document(partition: TopicPartition, committed: VersionedOffset) -> dict[str, Any]:
    """A committed offset as JSON."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": committed.offset,
        "version": committed.version,
    }


def _conflict(conflicts: Sequence[CommitConflict]) -> GatewayError:
    rows = [
        {
            **offset_document(row.partition, row.current or VersionedOffset(Offset(-1), 0)),
            "reason": row.reason,
        }
        for row in conflicts
    ]
    message = (
        "nothing was committed: an offset would go back, or another commit came first. Read "
        "the current offsets and decide; ?reset=true allows to go back"
    )
    return GatewayError(409, "offset_conflict", message, details={"conflicts": rows})


def _refused(refusal: Refused, group: str, member: str | None) -> Exception:
    if refusal.code not in _NO_MEMBER:
        return refusal
    if member is None:
        return GatewayError(
            409,
            "group_has_members",
            f"group {group} has members: commit as one of them (member), or stop them first",
        )
    return unavailable("the group is rebalancing; try again in a moment", "rebalancing")
