"""A member of a consumer group, on behalf of an HTTP client: assignments, and commits.

A member of a classic group like any Kafka client's, so both can share a group. Partitions are
assigned by the range assignor. `on_assigned` and `on_revoked` alternate. Commits carry the member's
generation: one that has lost its partitions cannot move the group's offsets.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from penstock.errors import ErrorCode, Malformed, Refused
from penstock.gateway.errors import GatewayError
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
from penstock.gateway.kafka.group_admin import CommittingMember, OffsetWithText, commit_as
from penstock.gateway.kafka.topic_admin import describe_topics
from penstock.link.group_member import GroupGeneration, GroupMember, MemberSettings
from penstock.model import Offset, TopicPartition

REBALANCE_MS: Final = 30_000
HEARTBEATS_PER_SESSION: Final = 3

OnAssigned = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class HttpGroupMember:
    """Joins a group and stays in it until `leave`."""

    def __init__(
        self,
        node: GatewayNode,
        group: str,
        topics: Sequence[str],
        *,
        session_ms: int,
        on_assigned: OnAssigned,
        on_revoked: Callable[[], Awaitable[None]],
    ) -> None:
        self._node = node
        self._group = group
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._generation: GroupGeneration | None = None  # until `on_revoked` has returned
        settings = MemberSettings(
            group,
            PROTOCOL_TYPE,
            ASSIGNOR,
            session_ms=session_ms,
            rebalance_ms=REBALANCE_MS,
            heartbeat_ms=session_ms // HEARTBEATS_PER_SESSION,
        )
        self._member = GroupMember(
            node.connect(),
            settings,
            metadata=lambda: write_subscription(topics),
            assign=self._assign,
            on_joined=self._joined,
            on_lost=self._lost,
        )

    @property
    def id(self) -> str:
        """As the broker names it; empty while there is no assignment."""
        return "" if self._generation is None else self._generation.member_id

    def start(self) -> None:
        """Start to join."""
        self._member.start()

    async def leave(self) -> None:
        """Leave the group, so that the others get the partitions."""
        await self._member.leave()

    async def commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit in the current generation; Refused if there is none, or no longer."""
        committer = self.committer
        if committer is None:
            raise Refused(ErrorCode.rebalance_in_progress, "the member has no assignment now")
        rows = {each: OffsetWithText(offset, "") for each, offset in offsets.items()}
        await self._node.run(commit_as(self._group, committer, rows))

    @property
    def committer(self) -> CommittingMember | None:
        """On whose behalf its commits are made; None while it has no assignment."""
        generation = self._generation
        if generation is None:
            return None
        return CommittingMember(generation.generation, generation.member_id)

    async def _assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Called if this member leads the group: what each member is to read."""
        topics_of = {member: _topics(content) for member, content in members.items()}
        counts: dict[str, int] = {}
        for topic in sorted({topic for topics in topics_of.values() for topic in topics}):
            try:
                (described,) = await self._node.run(describe_topics([topic]))
            except GatewayError:
                continue  # it does not exist: no member can read it
            counts[topic] = len(described.partitions)
        assigned = assign_ranges(topics_of, counts)
        return {member: write_assignment(rows) for member, rows in assigned.items()}

    async def _joined(self, generation: GroupGeneration) -> None:
        self._generation = generation
        await self._on_assigned(tuple(sorted(read_assignment(generation.assignment))))

    async def _lost(self, _reason: str) -> None:
        await self._on_revoked()
        self._generation = None


def _topics(subscription: bytes) -> tuple[str, ...]:
    try:
        return read_subscription(subscription)
    except Malformed:
        return ()  # another member's: it gets nothing, and the others are not held up
