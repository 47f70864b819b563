"""The lag of every group, projected from committed offsets and sampled end offsets.

Counts up to the last stable offset, because a consumer of committed records cannot read more, and
from the first batch that is not a marker, because a consumer never reads those. Commits nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import Malformed, Refused
from penstock.link.aio import AsyncCluster
from penstock.link.fetch_range import FetchSettings, fetch_range
from penstock.link.offsets import Isolation, committed_offsets, end_offsets
from penstock.model import Millis, Offset, TopicPartition
from penstock.monitor.cluster_requests import list_groups
from penstock.monitor.lag_clock import OffsetSamples, age_s
from penstock.protocol.batch import iterate_headers

GROUPS_AT_ONCE: Final = 8
READS_MAX: Final = 64  # of batch headers, in one round
NEAR_END: Final = 64  # so close to the end, only markers may be left
_PROTOCOLS: Final = frozenset(("consumer", ""))  # others have no offsets
UnreadKey: TypeAlias = tuple[TopicPartition, Offset]  # a partition, and where a group is in it
_PEEK: Final = FetchSettings(chunk_bytes=1, wait_ms=0, stall_ms=2000)


class Lag(NamedTuple):
    """How far a group is behind in a topic."""

    records: int
    oldest_at: Millis | None  # when the first record that it has not read was appended

    def seconds(self, now: Millis) -> float:
        """The age of that record; 0 at the end."""
        return 0.0 if self.oldest_at is None else age_s(self.oldest_at, now)

    def add(self, other: "Lag") -> "Lag":
        """The lag in both of two partitions."""
        known = [each for each in (self.oldest_at, other.oldest_at) if each is not None]
        return Lag(self.records + other.records, min(known, default=None))


NO_LAG: Final = Lag(0, None)


class GroupPartitionLag(NamedTuple):
    """How far a group is behind in a partition."""

    committed: Offset
    end: Offset
    lag: Lag


class FirstUnread(NamedTuple):
    """The first batch that is not a marker, at or after an offset."""

    offset: Offset  # of the batch; or, without one, everything before is markers
    timestamp: Millis | None  # of the batch; None: there was none


@dataclass(slots=True)
class GroupLag:
    """The result of the last round, and what the next one needs."""

    cluster: AsyncCluster
    clock: Callable[[], Millis]
    by_group_and_topic: dict[tuple[str, str], Lag] = field(default_factory=dict)
    by_group: dict[str, dict[TopicPartition, GroupPartitionLag]] = field(default_factory=dict)
    listeners: list[Callable[[], None]] = field(default_factory=list)  # called after each round
    updated_at: Millis = Millis(0)
    _samples: defaultdict[TopicPartition, OffsetSamples] = field(
        default_factory=lambda: defaultdict(OffsetSamples)
    )
    _unread: dict[UnreadKey, FirstUnread] = field(default_factory=dict)
    _unreadable: set[UnreadKey] = field(default_factory=set)  # at the last try

    async def refresh(self) -> None:
        """One round. OSError, Refused or Malformed if the cluster cannot be asked."""
        groups = [
            group.group_id
            for group in await self.cluster.run(list_groups())
            if group.protocol_type in _PROTOCOLS
        ]
        committed = await self._committed(groups)
        partitions = {each for offsets in committed.values() for each in offsets}
        ends = await self._ends(partitions)
        now = self.clock()
        for partition in set(self._samples) - partitions:
            del self._samples[partition]
        for partition, end_offset in ends.items():
            self._samples[partition].add(end_offset, now)
        await self._find_unread(committed, ends)
        rows: defaultdict[tuple[str, str], Lag] = defaultdict(lambda: NO_LAG)
        by_group: dict[str, dict[TopicPartition, GroupPartitionLag]] = {}
        for group, offsets in committed.items():
            by_group[group] = {}
            for partition, offset in offsets.items():
                if partition in ends:
                    lag = self._lag(partition, offset, ends[partition])
                    key = group, partition.topic
                    rows[key] = rows[key].add(lag)
                    by_group[group][partition] = GroupPartitionLag(offset, ends[partition], lag)
        self.by_group_and_topic, self.by_group, self.updated_at = dict(rows), by_group, now
        for listener in self.listeners:
            listener()

    async def _committed(self, groups: list[str]) -> dict[str, dict[TopicPartition, Offset]]:
        turns = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def of_group(group: str) -> dict[TopicPartition, Offset]:
            async with turns:
                try:
                    rows = await self.cluster.run(committed_offsets(group, require_stable=False))
                except Refused:  # deleted meanwhile, or its coordinator moves
                    return {}
                return {partition: row.offset for partition, row in rows.items()}

        return dict(zip(groups, await asyncio.gather(*map(of_group, groups)), strict=True))

    async def _ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The last stable offsets; a topic that is gone is left out."""
        try:
            return await self._stable(partitions)
        except Refused:
            by_topic: defaultdict[str, list[TopicPartition]] = defaultdict(list)
            for partition in partitions:
                by_topic[partition.topic].append(partition)
            ends: dict[TopicPartition, Offset] = {}
            for of_topic in by_topic.values():
                try:
                    ends |= await self._stable(of_topic)
                except Refused:
                    continue
            return ends

    async def _stable(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        requested = list(partitions)
        if not requested:
            return {}
        return await self.cluster.run(end_offsets(requested, isolation=Isolation.READ_COMMITTED))

    async def _find_unread(
        self,
        committed: Mapping[str, Mapping[TopicPartition, Offset]],
        ends: Mapping[TopicPartition, Offset],
    ) -> None:
        """Read batch headers where samples are not enough, within the limit of a round.

        What is known is kept for as long as a group stays there, however far the partition grows.
        First come offsets below all samples, last those that could not be read the last time.
        """
        known, self._unread = self._unread, {}
        wanted: dict[UnreadKey, tuple[bool, bool]] = {}  # with its place in the order
        for key in {item for offsets in committed.values() for item in offsets.items()}:
            partition, offset = key
            end = ends.get(partition)
            if end is None or offset >= end:
                continue
            is_unknown = self._samples[partition].written_at(offset) is None
            if not is_unknown and end - offset > NEAR_END:
                continue
            first = known.get(key)
            if first is not None:
                self._unread[key] = first
            if first is None or (first.timestamp is None and first.offset < end):
                wanted[key] = key in self._unreadable, not is_unknown
        self._unreadable &= wanted.keys()
        for key in sorted(wanted, key=wanted.__getitem__)[:READS_MAX]:
            partition, offset = key
            begin = self._unread[key].offset if key in self._unread else offset
            first = await self._first_unread(partition, begin, ends[partition])
            if first is None:
                self._unreadable.add(key)
            else:
                self._unread[key] = first
                self._unreadable.discard(key)

    def _lag(self, partition: TopicPartition, offset: Offset, end: Offset) -> Lag:
        first = self._unread.get((partition, offset))
        if first is not None:
            offset = first.offset
        if offset >= end:
            return NO_LAG
        samples = self._samples[partition]
        written_at = samples.written_at(offset)
        if written_at is None:  # appended before the oldest sample, whatever its timestamp says
            written_at = samples.oldest_at
            if first is not None and first.timestamp is not None and first.timestamp >= 0:
                written_at = min(written_at, first.timestamp)
        return Lag(end - offset, written_at)

    async def _first_unread(
        self, partition: TopicPartition, offset: Offset, end: Offset
    ) -> FirstUnread | None:
        """None if it could not be read: retention may have removed it."""
        try:
            async with aclosing(
                self.cluster.stream(fetch_range(partition, offset, end, settings=_PEEK))
            ) as chunks:
                async for chunk in chunks:
                    for _, header in iterate_headers(chunk.records):
                        if not header.is_control:
                            first = max(offset, Offset(header.base_offset))
                            return FirstUnread(first, Millis(header.max_timestamp))
        except (OSError, Refused, Malformed):
            return None
        return FirstUnread(end, None)
