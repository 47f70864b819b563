"""Committed offsets of groups: read with their versions, committed by the rules, and the lag.

Check and commit of a group are serialized in this process, so versions are exact among commits
through it. Kafka has no compare-and-set: against another gateway or a Kafka client a commit between
check and commit is not seen.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from penstock.clock import wall_ms
from penstock.errors import ErrorCode, Refused
from penstock.gateway.errors import GatewayError, unavailable, unknown_partition
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.commit_rules import (
    CommitConflict,
    RequestedCommit,
    VersionedOffset,
    decide_commit,
    read_version,
    write_version,
)
from penstock.gateway.groups.group_membership import Positions
from penstock.gateway.groups.living_members import Members
from penstock.gateway.groups.reset_plan import PartitionBounds, ResetRow, plan_shift, plan_time
from penstock.link.group_admin import describe_group, list_groups
from penstock.link.offsets import (
    NO_MEMBER,
    CommittingMember,
    GroupOffset,
    Isolation,
    commit_as,
    committed_offsets,
    end_offsets,
    list_offsets,
    start_offsets,
)
from penstock.link.topic_admin import describe_topics, partition_count
from penstock.model import Millis, Offset, TopicPartition

_MEMBER_REFUSED = frozenset(
    {
        ErrorCode.unknown_member_id,
        ErrorCode.illegal_generation,
        ErrorCode.fenced_instance_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.stale_member_epoch,
    }
)


class ResetTo(NamedTuple):
    """Where a group is to read a topic from: earliest, latest, a time in ms, a shift in records."""

    kind: str
    number: int = 0


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
        self, group: str, requested: Sequence[RequestedCommit], member: str | None, *, reset: bool
    ) -> dict[TopicPartition, VersionedOffset]:
        """Commit all or none; 409 lists every conflict."""
        await self._check_partitions(requested)
        async with self._lock(group):
            current = await self.read(group, [commit.partition for commit in requested])
            return await self._commit(group, current, requested, member, reset=reset)

    async def advance(self, group: str, positions: Positions, member: str) -> None:
        """Commit what a member has processed; where more is committed already, that stays."""
        async with self._lock(group):
            current = await self.read(group, list(positions))
            requested = [
                RequestedCommit(partition, offset)
                for partition, offset in positions.items()
                if partition not in current or current[partition].offset < offset
            ]
            if requested:
                await self._commit(group, current, requested, member, reset=False)

    def _lock(self, group: str) -> asyncio.Lock:
        lock = self._locks.get(group)
        if lock is None:
            lock = self._locks[group] = asyncio.Lock()
        return lock

    async def _commit(
        self,
        group: str,
        current: Mapping[TopicPartition, VersionedOffset],
        requested: Sequence[RequestedCommit],
        member: str | None,
        *,
        reset: bool,
    ) -> dict[TopicPartition, VersionedOffset]:
        decided = _decided(current, requested, reset=reset)
        committer = NO_MEMBER if member is None else self._committer(group, member)
        rows = {
            partition: GroupOffset(row.offset, write_version(row))
            for partition, row in decided.items()
        }
        try:
            await self._node.run(commit_as(group, committer, rows))
        except Refused as refusal:
            raise _refused(refusal, group, member) from None
        return decided

    async def _check_partitions(self, requested: Sequence[RequestedCommit]) -> None:
        """Before a commit: the coordinator refuses partitions singly, and commits the rest."""
        topics = sorted({commit.partition.topic for commit in requested})
        described = await self._node.run(describe_topics(topics))
        counts = {topic.name: len(topic.partitions) for topic in described}
        for partition in sorted(commit.partition for commit in requested):
            if partition.partition >= counts[partition.topic]:
                raise unknown_partition(partition, counts[partition.topic])

    async def check(
        self, group: str, requested: Sequence[RequestedCommit], member: str | None, *, reset: bool
    ) -> list[ResetRow]:
        """What a commit would change; raises what it would raise."""
        await self._check_partitions(requested)
        if member is None:
            kinds = await self._node.run(list_groups())
            if group in kinds:
                described = await self._node.run(describe_group(group, kinds[group]))
                if described.members:
                    raise _has_members(group)
        else:
            self._committer(group, member)
        current = await self.read(group, [commit.partition for commit in requested])
        return [
            ResetRow(
                partition, current[partition].offset if partition in current else None, row.offset
            )
            for partition, row in sorted(_decided(current, requested, reset=reset).items())
        ]

    async def targets(
        self, group: str, topic: str, partitions: Sequence[int] | None, to: ResetTo
    ) -> dict[TopicPartition, Offset]:
        """Where a reset moves the group, in these partitions of a topic or in all."""
        run = self._node.run
        count = await run(partition_count(topic))
        numbers = range(count) if partitions is None else partitions
        places = [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]
        for place in places:
            if not 0 <= place.partition < count:
                raise unknown_partition(place, count)
        starts = await run(start_offsets(places))
        ends = await run(end_offsets(places, isolation=Isolation.READ_COMMITTED))
        bounds = {place: PartitionBounds(starts[place], ends[place]) for place in places}
        match to.kind:
            case "earliest":
                return starts
            case "latest":
                return ends
            case "shift":
                committed = await self.read(group, places)
                offsets = {place: row.offset for place, row in committed.items()}
                return plan_shift(offsets, bounds, to.number)
        times = dict.fromkeys(places, Millis(to.number))
        rows = await run(list_offsets(times, isolation=Isolation.READ_COMMITTED))
        return plan_time({place: row.offset for place, row in rows.items()}, bounds)

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
            raise _rebalancing()
        return committer


def _decided(
    current: Mapping[TopicPartition, VersionedOffset],
    requested: Sequence[RequestedCommit],
    *,
    reset: bool,
) -> dict[TopicPartition, VersionedOffset]:
    decided = decide_commit(current, requested, reset=reset, now=wall_ms())
    if isinstance(decided, list):
        raise _conflict(decided)
    return decided


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
    if refusal.code not in _MEMBER_REFUSED:
        return refusal
    if member is None:
        return _has_members(group)
    return _rebalancing()


def _has_members(group: str) -> GatewayError:
    message = f"group {group} has members: commit as one of them (member), or stop them first"
    return GatewayError(409, "group_has_members", message)


def _rebalancing() -> GatewayError:
    message = (
        "the member cannot commit now: its group is rebalancing, or unreadable events before its "
        "position are not in quarantine yet; try again in a moment"
    )
    return unavailable(message, "rebalancing")
