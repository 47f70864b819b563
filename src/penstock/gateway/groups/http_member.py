"""One HTTP member of a real group: it joins as any consumer does, and lives while it is used.

The member's positions are those of its current generation: they start at the committed offsets, and
a rebalance starts them there again. Events of a generation that ended while they were fetched are
not returned.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.errors import Malformed, Refused
from penstock.gateway.errors import bad_request
from penstock.gateway.events import RenderedEvent
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.consumer_protocol import (
    ASSIGNOR,
    PROTOCOL_TYPE,
    assign_ranges,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.gateway.kafka.fetch import FetchLimits
from penstock.gateway.kafka.group_admin import CommittingMember, leave_group
from penstock.gateway.kafka.topic_admin import describe_topics
from penstock.gateway.visible_records import visible_records
from penstock.link.fetch_range import OffsetOutOfRange
from penstock.link.group_member import GroupGeneration, GroupMember, MemberSettings
from penstock.link.offsets import EARLIEST, LATEST, Isolation, committed_offsets, list_offsets
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.classic_groups import LeavingMember

logger: Final = logging.getLogger(__name__)

SESSION_MS_MIN: Final = 6_000  # what brokers allow; a shorter silence is watched here
SESSION_MS_MAX: Final = 300_000
REBALANCE_MS: Final = 30_000
_HEARTBEATS: Final = 4  # in a session
_RETRY_S: Final = 0.5
_PARTITION_BYTES_MIN: Final = 64 << 10


class Subscription(NamedTuple):
    """What a member reads, and how long it may be silent."""

    group: str
    member: str
    topics: tuple[str, ...]
    pattern: str | None
    session_ms: int
    reset: str  # earliest | latest
    is_static: bool


class HttpMember:
    """A member; `is_used` while a request of it is served."""

    def __init__(self, node: GatewayNode, subscription: Subscription) -> None:
        self.subscription: Final = subscription
        self.positions: dict[TopicPartition, Offset] = {}
        self.generation: GroupGeneration | None = None
        self.requests: int = 0
        self.used_at_s: float = asyncio.get_running_loop().time()
        self._node = node
        self._assigned = asyncio.Event()
        self._reading = asyncio.Lock()
        self._topics: tuple[str, ...] = subscription.topics
        session_ms = min(max(subscription.session_ms, SESSION_MS_MIN), SESSION_MS_MAX)
        settings = MemberSettings(
            subscription.group,
            PROTOCOL_TYPE,
            ASSIGNOR,
            session_ms=session_ms,
            rebalance_ms=REBALANCE_MS,
            heartbeat_ms=session_ms // _HEARTBEATS,
            instance_id=subscription.member if subscription.is_static else None,
        )
        self._member = GroupMember(
            node.connect(),
            settings,
            metadata=lambda: write_subscription(self._topics),
            assign=self._assign,
            on_joined=self._on_joined,
            on_lost=self._on_lost,
        )

    async def start(self) -> None:
        """Start to join."""
        if self.subscription.pattern is not None:
            pattern = read_pattern(self.subscription.pattern)
            known = await self._node.run(describe_topics())
            self._topics = tuple(
                topic.name
                for topic in known
                if not topic.is_internal and pattern.fullmatch(topic.name)
            )
        self._member.start()

    @property
    def committer(self) -> CommittingMember | None:
        """How its commits are made; None while it has no assignment."""
        generation = self.generation
        if generation is None:
            return None
        instance_id = self.subscription.member if self.subscription.is_static else None
        return CommittingMember(generation.generation, generation.member_id, instance_id)

    async def assignment(self, within_s: float) -> Sequence[TopicPartition] | None:
        """Its partitions, when it has joined; None if that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await self._assigned.wait()
        except TimeoutError:
            return None
        return sorted(self.positions)

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
                    await asyncio.sleep(min(0.1, left_s))

    async def _read(self, bytes_max: int, wait_ms: int) -> list[RenderedEvent]:
        generation, positions = self.generation, dict(self.positions)
        if not positions:
            return []
        size_bytes = max(bytes_max, _PARTITION_BYTES_MIN)
        limits = FetchLimits(wait_ms, size_bytes, size_bytes)
        try:
            fetched = await self._node.fetch(positions, limits)
        except OffsetOutOfRange as gone:
            starts = await self._resets([gone.partition])
            if self.generation is generation:
                self.positions.update(starts)
            return []
        rendered: list[RenderedEvent] = []
        moved: dict[TopicPartition, Offset] = {}
        left = bytes_max
        for partition, batches in fetched.items():
            if left <= 0:
                break
            start = positions[partition]
            records, end = visible_records(batches.batches, batches.aborted, start, bytes_max=left)
            rendered += await self._node.render(partition, records)
            left -= sum(len(record.value or b"") for record in records)
            moved[partition] = end
        if self.generation is not generation:
            return []
        self.positions.update(moved)
        self._node.counts["events_fetched"] += len(rendered)
        return rendered

    async def leave(self, *, taken_over: bool = False) -> None:
        """Leave the group at once; a static member whose name goes on does not leave."""
        generation = self.generation
        await self._member.leave()
        if not self.subscription.is_static or taken_over or generation is None:
            return
        leaving = LeavingMember(generation.member_id, self.subscription.member)
        try:
            await self._node.run(leave_group(self.subscription.group, [leaving]))
        except (OSError, Refused, Malformed):
            return  # its session ends by itself

    async def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As the leader: the partitions of all members."""
        topics = {
            topic.name: len(topic.partitions) for topic in await self._node.run(describe_topics())
        }
        wanted = {member: read_subscription(packed) for member, packed in members.items()}
        assigned = assign_ranges(wanted, topics)
        return {member: write_assignment(partitions) for member, partitions in assigned.items()}

    async def _on_joined(self, generation: GroupGeneration) -> None:
        """Find the positions; tried again until they are known or the generation ends."""
        while True:
            try:
                positions = await self._positions(read_assignment(generation.assignment))
            except (OSError, Refused, Malformed) as failure:
                logger.warning("group %s: %s", self.subscription.group, failure)
                await asyncio.sleep(_RETRY_S)
            else:
                self.generation, self.positions = generation, positions
                self._assigned.set()
                return

    async def _positions(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Offset]:
        committed = (
            await self._node.run(committed_offsets(self.subscription.group, partitions))
            if partitions
            else {}
        )
        missing = [partition for partition in partitions if partition not in committed]
        positions = {partition: row.offset for partition, row in committed.items()}
        positions |= await self._resets(missing)
        return positions

    async def _on_lost(self, _reason: str) -> None:
        self._assigned.clear()
        self.generation, self.positions = None, {}

    async def _resets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Where a partition without a committed offset is read from."""
        if not partitions:
            return {}
        name = LATEST if self.subscription.reset == "latest" else EARLIEST
        times = dict.fromkeys(partitions, name)
        rows = await self._node.run(list_offsets(times, isolation=Isolation.READ_COMMITTED))
        return {partition: row.offset for partition, row in rows.items()}


def read_pattern(text: str) -> re.Pattern[str]:
    """A pattern of topic names; it must match the whole name."""
    try:
        return re.compile(text)
    except re.error as error:
        raise bad_request(f"pattern {text!r} is not a regular expression: {error}") from None
