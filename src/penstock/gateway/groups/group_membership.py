"""Membership of a consumer group on behalf of an HTTP client.

A member of a classic group like any Kafka client's, so both can share a group. Partitions are
assigned by the range assignor. `on_assigned` and `on_revoked` alternate. Commits carry the member's
generation: one that has lost its partitions cannot move the group's offsets. The group rebalances
when the topics that a pattern matches, or their partitions, change.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.errors import Malformed
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_subscription import (
    SESSION_MS_MAX,
    SESSION_MS_MIN,
    GroupSubscription,
)
from penstock.gateway.topic_watch import Topics
from penstock.link.consumer_protocol import (
    ASSIGNOR,
    PROTOCOL_TYPE,
    assign_ranges,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from penstock.link.group_admin import leave_group
from penstock.link.group_member import GroupGeneration, GroupMember, MemberSettings
from penstock.link.offsets import (
    EARLIEST,
    LATEST,
    CommittingMember,
    Isolation,
    committed_offsets,
    list_offsets,
)
from penstock.link.operation import FAILURES
from penstock.link.topic_admin import describe_topics
from penstock.model import Offset, TopicPartition
from penstock.protocol.messages.classic_groups import LeavingMember

logger: Final = logging.getLogger(__name__)

REBALANCE_MS: Final = 30_000
_HEARTBEATS: Final = 4  # in a session, at least
_HEARTBEAT_MS_MAX: Final = 3_000  # a rebalance is noticed by the next heartbeat
_RETRY_S: Final = 0.5

Positions: TypeAlias = dict[TopicPartition, Offset]


class GroupMembership:
    """Joins a group and stays in it until `leave`."""

    def __init__(
        self,
        node: GatewayNode,
        subscription: GroupSubscription,
        *,
        on_assigned: Callable[[Positions], None],
        on_revoked: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._subscription = subscription
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._topics = subscription.topics
        # As the leader: the partitions of the topics that members read, when they were assigned.
        self._assigned_counts: dict[str, int] = {}
        self._generation: GroupGeneration | None = None  # until `on_revoked` has returned
        session_ms = min(max(subscription.session_ms, SESSION_MS_MIN), SESSION_MS_MAX)
        settings = MemberSettings(
            subscription.group,
            PROTOCOL_TYPE,
            ASSIGNOR,
            session_ms=session_ms,
            rebalance_ms=REBALANCE_MS,
            heartbeat_ms=min(session_ms // _HEARTBEATS, _HEARTBEAT_MS_MAX),
            instance_id=subscription.instance_id,
        )
        self._member = GroupMember(
            node.connect(),
            settings,
            metadata=lambda: write_subscription(self._topics),
            assign=self._assign,
            on_joined=self._joined,
            on_lost=self._lost,
        )

    @property
    def id(self) -> str:
        """As the broker names it; empty while there is no assignment."""
        return "" if self._generation is None else self._generation.member_id

    @property
    def committer(self) -> CommittingMember | None:
        """On whose behalf its commits are made; None while it has no assignment."""
        generation = self._generation
        if generation is None:
            return None
        instance_id = self._subscription.instance_id
        return CommittingMember(generation.generation, generation.member_id, instance_id)

    async def start(self) -> None:
        """Start to join."""
        pattern = self._subscription.pattern
        if pattern is not None:
            self._topics = pattern.matching(await self._node.run(describe_topics()))
        self._node.topic_watch.add(self._on_topics)
        self._member.start()

    async def leave(self, *, taken_over: bool = False) -> None:
        """Leave the group, so that the others get the partitions.

        A static member that is taken over does not leave: its name goes on.
        """
        self._node.topic_watch.remove(self._on_topics)
        generation, instance_id = self._generation, self._subscription.instance_id
        await self._member.leave()
        if instance_id is None or taken_over or generation is None:
            return
        leaving = LeavingMember(generation.member_id, instance_id)
        try:
            await self._node.run(leave_group(self._subscription.group, [leaving]))
        except FAILURES:
            return  # its session ends by itself

    async def reset_positions(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Where partitions are read from that have no committed offset in their logs."""
        if not partitions:
            return {}
        times = dict.fromkeys(partitions, LATEST if self._subscription.is_latest else EARLIEST)
        rows = await self._node.run(list_offsets(times, isolation=Isolation.READ_COMMITTED))
        return {partition: row.offset for partition, row in rows.items()}

    def _on_topics(self, topics: Topics) -> None:
        """Join again if there is something else to read or to assign."""
        pattern = self._subscription.pattern
        matching = self._topics if pattern is None else pattern.matching(topics)
        counts = {topic.name: len(topic.partitions) for topic in topics}
        is_changed = any(
            counts.get(name, 0) != known for name, known in self._assigned_counts.items()
        )
        if matching != self._topics or is_changed:
            self._topics = matching
            self._assigned_counts = {}
            self._member.rejoin()

    async def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Called if this member leads the group: what each member is to read."""
        topics_of = {member: _topics(content) for member, content in members.items()}
        counts = {
            topic.name: len(topic.partitions) for topic in await self._node.run(describe_topics())
        }
        read = {topic for topics in topics_of.values() for topic in topics}
        self._assigned_counts = {topic: counts.get(topic, 0) for topic in read}
        assigned = assign_ranges(topics_of, counts)
        return {member: write_assignment(rows) for member, rows in assigned.items()}

    async def _joined(self, generation: GroupGeneration) -> None:
        """Find the positions; tried again until they are known or the generation ends."""
        partitions = _partitions(generation.assignment)
        while True:
            try:
                positions = await self._positions(partitions)
                break
            except FAILURES as failure:
                logger.warning("group %s: %s", self._subscription.group, failure)
                await asyncio.sleep(_RETRY_S)
        self._generation = generation
        self._on_assigned(positions)

    async def _positions(self, partitions: Sequence[TopicPartition]) -> Positions:
        """The committed offsets, or where the subscription starts without one."""
        if not partitions:
            return {}
        committed = await self._node.run(committed_offsets(self._subscription.group, partitions))
        positions = {partition: row.offset for partition, row in committed.items()}
        missing = [partition for partition in partitions if partition not in committed]
        return positions | await self.reset_positions(missing)

    async def _lost(self, _reason: str) -> None:
        self._assigned_counts = {}
        if self._generation is not None:
            await self._on_revoked()
            self._generation = None


def _topics(subscription: bytes) -> tuple[str, ...]:
    try:
        return read_subscription(subscription)
    except Malformed:
        return ()  # another member's: it gets nothing, and the others are not held up


def _partitions(assignment: bytes) -> Sequence[TopicPartition]:
    try:
        return sorted(read_assignment(assignment))
    except Malformed as error:
        logger.warning("the leader of a group assigned what cannot be read: %s", error)
        return ()
