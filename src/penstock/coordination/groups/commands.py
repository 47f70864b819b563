"""The commands of a group coordinator and its replies. A refusal is a `Refused` instead of a reply.

The shell brings what must be random (`new_member_id`), and the topics as it knows them.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.coordination.groups.codec_consumer import Assignment
from penstock.coordination.groups.state import NO_TOPICS, TopicCatalogue
from penstock.errors import ErrorCode
from penstock.machine import CallerId, TransactionMark


class Join(NamedTuple):
    """Become or stay a member of a classic group; replied to when the rebalance completes."""

    caller: CallerId
    group_id: str
    member_id: str
    instance_id: str | None
    new_member_id: str  # for a member that has none yet
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_member_id: bool  # version 4+: the first join only fetches an id
    can_skip_assignment: bool  # version 9+
    topics: TopicCatalogue = NO_TOPICS


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """The reply to a join."""

    code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class Sync(NamedTuple):
    """Request the assignment; the leader sends that of all. Replied to when the leader did."""

    caller: CallerId
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None  # None: the client is too old to send it
    protocol: str | None
    assignments: Mapping[str, bytes]
    topics: TopicCatalogue = NO_TOPICS


class SyncReply(NamedTuple):
    """The reply to a sync."""

    protocol_type: str | None
    protocol: str | None
    assignment: bytes


class Heartbeat(NamedTuple):
    """A member of a classic group is alive."""

    caller: CallerId
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


class Leave(NamedTuple):
    """Members of a classic group leave: (member id, instance id) each."""

    caller: CallerId
    group_id: str
    members: tuple[tuple[str, str | None], ...]


class LeaveReply(NamedTuple):
    """The reply to a leave: an error code for each."""

    members: tuple[tuple[str, str | None, ErrorCode], ...]


class ConsumerHeartbeat(NamedTuple):
    """A member of a consumer-protocol group joins, stays, changes or leaves. None: unchanged."""

    caller: CallerId
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Mapping[UUID, tuple[int, ...]] | None
    client_id: str
    client_host: str
    topics: TopicCatalogue
    session_timeout_ms: int = 45_000  # the group's setting
    heartbeat_interval_ms: int = 5_000  # the group's setting


class ConsumerHeartbeatReply(NamedTuple):
    """The reply to a consumer-protocol heartbeat. No assignment: unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


class OffsetToCommit(NamedTuple):
    """One partition of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: UUID


class CommitOffsets(NamedTuple):
    """Store offsets, now or (with a mark) when the producer's transaction commits."""

    caller: CallerId
    group_id: str
    generation: int  # or the member epoch
    member_id: str
    instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    mark: TransactionMark | None = None
    knows_epochs: bool = True  # OffsetCommit 9+: knows STALE_MEMBER_EPOCH
    is_monotonic: bool = False  # the group's setting


class CommitReply(NamedTuple):
    """The reply to a commit: an error code for each offset, in order."""

    codes: tuple[ErrorCode, ...]


class FetchOffsets(NamedTuple):
    """Read offsets. None partitions: all."""

    caller: CallerId
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None
    require_stable: bool
    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """One partition of the reply."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    code: ErrorCode


class FetchOffsetsReply(NamedTuple):
    """The reply to an offset fetch."""

    offsets: tuple[FetchedOffset, ...]


class DeleteOffsets(NamedTuple):
    """Delete offsets of topics that no member of the group is subscribed to."""

    caller: CallerId
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeleteGroup(NamedTuple):
    """Delete a group that has no members, with its offsets."""

    caller: CallerId
    group_id: str


class DropTopics(NamedTuple):
    """Topics were deleted: delete their offsets."""

    caller: CallerId
    topics: frozenset[str]


class Done(NamedTuple):
    """The reply to a command that was accepted."""


class ListGroups(NamedTuple):
    """Every group, with state and type."""

    caller: CallerId


class ListedGroup(NamedTuple):
    """One group of the list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class ListReply(NamedTuple):
    """The reply to a list."""

    groups: tuple[ListedGroup, ...]


class DescribeGroup(NamedTuple):
    """A group with its members, whatever its protocol."""

    caller: CallerId
    group_id: str


Command: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | ConsumerHeartbeat
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroup
    | DropTopics
    | ListGroups
    | DescribeGroup
)
