"""A member of a real group that reads when its client asks, and lives while it is used.

The member's positions are those of its current generation: they start at the committed offsets, and
a rebalance starts them there again. Events of a generation that ended while they were fetched are
not returned. Unreadable events are in quarantine before the position passes them.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.gateway.events import RenderedEvent, UnreadableRecord
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_membership import GroupMembership, Positions
from penstock.gateway.groups.group_quarantine import GroupQuarantine
from penstock.gateway.groups.group_subscription import GroupSubscription, UnreadablePolicy
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.fetch_request import FetchLimits
from penstock.link.offsets import CommittingMember
from penstock.model import Offset, TopicPartition

_PARTITION_BYTES_MIN: Final = 64 << 10
_NO_PARTITIONS_S: Final = 0.1  # between looks at an assignment that is empty


class PolledSubscription(NamedTuple):
    """What a member reads, and under which name."""

    name: str
    reads: GroupSubscription


class PolledMember:
    """A member; `requests` counts those of it that are being served."""

    def __init__(
        self,
        node: GatewayNode,
        quarantine: GroupQuarantine,
        subscription: PolledSubscription,
    ) -> None:
        self.subscription: Final = subscription
        self.positions: Positions | None = None  # None: no assignment at present
        self.requests: int = 0
        self.used_at_s: float = asyncio.get_running_loop().time()
        self._node = node
        self._quarantine = quarantine
        self._assigned = asyncio.Event()
        self._reading = asyncio.Lock()
        self._membership = GroupMembership(
            node,
            subscription.reads,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    async def start(self) -> None:
        """Start to join."""
        await self._membership.start()

    @property
    def committer(self) -> CommittingMember | None:
        """How its commits are made; None while it has no assignment."""
        return self._membership.committer

    async def assignment(self, within_s: float) -> Sequence[TopicPartition] | None:
        """Its partitions, when it has joined; None if that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await self._assigned.wait()
        except TimeoutError:
            return None
        return sorted(self.positions or ())

    async def events(self, bytes_max: int, wait_ms: int) -> list[RenderedEvent]:
        """The next events of its partitions; none if there are none within the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        async with self._reading:
            while True:
                left_s = max(0.0, deadline - loop.time())
                if await self.assignment(left_s) is None:
                    return []
                events = await self._read(bytes_max, int(left_s * 1000))
                if events or loop.time() >= deadline:
                    return events
                if not self.positions:
                    await asyncio.sleep(min(_NO_PARTITIONS_S, left_s))

    async def _read(self, bytes_max: int, wait_ms: int) -> list[RenderedEvent]:
        generation = self.positions  # a rebalance replaces them
        if not generation:
            return []
        positions = dict(generation)
        size_bytes = max(bytes_max, _PARTITION_BYTES_MIN)
        limits = FetchLimits(wait_ms, size_bytes, size_bytes)
        try:
            fetched = await self._node.fetch(positions, limits)
        except OffsetOutOfRange as gone:
            starts = await self._membership.reset_positions([gone.partition])
            if self.positions is generation:
                generation.update(starts)
            return []
        events: list[RenderedEvent] = []
        moved: dict[TopicPartition, Offset] = {}
        left = bytes_max
        for partition, batches in fetched.items():
            if left <= 0:
                break
            start = positions[partition]
            records, end = await self._node.open(batches.batches, batches.aborted, start, left)
            rendered = await self._node.render(partition, records)
            left -= sum(len(record.value or b"") for record in records)
            events += await self._readable(partition, rendered)
            moved[partition] = end
        if self.positions is not generation:
            return []
        generation.update(moved)
        self._node.counts["events_fetched"] += len(events)
        return events

    async def _readable(
        self, partition: TopicPartition, events: Sequence[RenderedEvent]
    ) -> Sequence[RenderedEvent]:
        """Those that the client gets; the others are in quarantine afterwards, or skipped."""
        on_unreadable = self.subscription.reads.on_unreadable
        unreadable: list[UnreadableRecord] = [
            event.unreadable for event in events if event.unreadable is not None
        ]
        if not unreadable or on_unreadable is UnreadablePolicy.RETURN:
            return events
        if on_unreadable is UnreadablePolicy.QUARANTINE:
            await self._quarantine.write(self.subscription.reads.group, partition, unreadable)
        return [event for event in events if event.unreadable is None]

    async def leave(self, *, taken_over: bool = False) -> None:
        """Leave the group immediately; a static member whose name goes on does not leave."""
        await self._membership.leave(taken_over=taken_over)

    def _on_assigned(self, positions: Positions) -> None:
        self.positions = positions
        self._assigned.set()

    async def _on_revoked(self) -> None:
        self._assigned.clear()
        self.positions = None
