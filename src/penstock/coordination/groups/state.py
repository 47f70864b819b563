"""What a coordinator knows: its groups, their committed offsets, and open transactional commits.

Changed by `apply` only. Everything but sessions, waiting callers and timers can be rebuilt from the
log. A group exists if it has a record of its own, or offsets (then it is a *simple* one).
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from penstock.coordination.groups.codec_classic import StoredGroup, StoredMember
from penstock.coordination.groups.codec_consumer import (
    Assignment,
    MemberState,
    Owned,
    StoredCurrent,
    StoredRegex,
    StoredSubscription,
)
from penstock.coordination.groups.group_moves import ClassicState, ConsumerState
from penstock.coordination.groups.timers import Timers
from penstock.machine import CallerId

if TYPE_CHECKING:
    from penstock.model import ProducerId

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ClassicMember(NamedTuple):
    """A member of a classic group; replaced whole when anything changes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # in order of preference
    assignment: bytes = b""
    joining: CallerId | None = None  # waits for the reply to its join
    syncing: CallerId | None = None  # waits for its assignment
    is_new: bool = False  # has not been in a generation yet

    def metadata(self, protocol: str | None) -> bytes:
        """The member's metadata for the chosen protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class ClassicGroup:
    """A group of the classic protocol. A rebalance works on a copy and replaces it whole."""

    __slots__ = (
        "generation",
        "group_id",
        "has_new_members",
        "is_delayed",
        "leader",
        "members",
        "pending",
        "protocol",
        "protocol_type",
        "state",
        "state_since",
        "static",
        "subscribed_topics",
        "unsynced",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id: str = group_id
        self.state: ClassicState = ClassicState.EMPTY
        self.state_since: int = -1
        self.generation: int = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}  # in order of joining
        self.static: dict[str, str] = {}  # instance id -> member id
        self.pending: frozenset[str] = frozenset()  # ids given out that have not joined yet
        self.unsynced: frozenset[str] = frozenset()  # have not requested their assignment yet
        self.is_delayed: bool = False  # an empty group's first rebalance waits for more members
        self.has_new_members: bool = False  # a member joined during the initial delay
        self.subscribed_topics: frozenset[str] | None = None  # None: not a consumer's metadata

    def copy(self) -> "ClassicGroup":
        """A group that can be changed without changing this one."""
        twin = ClassicGroup(self.group_id)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.members = dict(self.members)
        twin.static = dict(self.static)
        return twin

    def stored(self) -> StoredGroup:
        """The group as its record keeps it."""
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_since,
            tuple(
                StoredMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    member.assignment,
                )
                for member in self.members.values()
            ),
        )


class TopicInfo(NamedTuple):
    """What an assignor needs to know of a topic."""

    topic_id: UUID
    partition_count: int


class TopicCatalogue(NamedTuple):
    """The topics of the cluster at one moment; `version` grows whenever they change."""

    version: int
    by_name: Mapping[str, TopicInfo]
    names: Mapping[UUID, str]


NO_TOPICS: Final = TopicCatalogue(0, {}, {})
NEVER_CHECKED: Final = TopicCatalogue(-1, {}, {})  # before a group was checked against any


class ConsumerMember(NamedTuple):
    """A member of a group of the consumer protocol: its subscription, and its assignment."""

    member_id: str
    subscription: StoredSubscription
    current: StoredCurrent


JOINING: Final = StoredCurrent(0, -1, MemberState.STABLE, {}, {})
NO_SUBSCRIPTION: Final = StoredSubscription(None, None, "", "", (), None, -1, None, None)
LEFT_TEMPORARILY: Final = -2  # the epoch of a static member that said it will be back


class ConsumerGroup:
    """A group of the consumer protocol (KIP-848). A partition has one owner or none."""

    __slots__ = (
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static",
        "target_epoch",
        "targets",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id: str = group_id
        self.epoch: int = 0
        self.metadata_hash: int = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}  # instance id -> member id
        self.target_epoch: int = 0
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, StoredRegex] = {}
        self.owners: dict[tuple[UUID, int], str] = {}
        self.topics: TopicCatalogue = NEVER_CHECKED  # those the group was last checked against

    def copy(self) -> "ConsumerGroup":
        """A group that can be changed without changing this one."""
        twin = ConsumerGroup(self.group_id)
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(twin, name, dict(value) if isinstance(value, dict) else value)
        return twin

    def classic_members(self) -> list["ConsumerMember"]:
        """The members that speak the classic protocol."""
        return [m for m in self.members.values() if m.subscription.classic is not None]

    @property
    def state(self) -> ConsumerState:
        """Follows from the epochs of the group and of its members."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if any(
            member.current.state is not MemberState.STABLE
            or member.current.member_epoch not in (self.target_epoch, LEFT_TEMPORARILY)
            for member in self.members.values()
        ):
            return ConsumerState.RECONCILING
        return ConsumerState.STABLE

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics a member is subscribed to, by name."""
        names = member.subscription.topic_names
        regex = self.regexes.get(member.subscription.topic_regex or "")
        return frozenset(names if regex is None else (*names, *regex.topics))

    def subscribed_topics(self) -> frozenset[str]:
        """The topics any member is subscribed to."""
        return frozenset().union(*map(self.topics_of, self.members.values()))


Group = ClassicGroup | ConsumerGroup


class PendingOffset(NamedTuple):
    """An offset inside an open transaction."""

    value: bytes
    is_superseded: bool = False  # a commit outside of it came later, and is kept


PartitionKey = tuple[str, int]  # topic, partition


class GroupsState:
    """The state of one coordinator: one partition of `__consumer_offsets`."""

    __slots__ = (
        "groups",
        "has_started_sessions",
        "offsets",
        "pending",
        "replayed",
        "timers",
        "unstable",
    )

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        #: Committed offsets, packed: group -> partition -> value. A group without any has no entry.
        self.offsets: dict[str, dict[PartitionKey, bytes]] = {}
        #: Offsets of open transactions, by producer.
        self.pending: dict[ProducerId, dict[tuple[str, PartitionKey], PendingOffset]] = {}
        #: How many open transactions have an offset of each partition: group -> partition -> count.
        self.unstable: dict[str, dict[PartitionKey, int]] = {}
        #: Where commits go while the log is read, by the start of their key: decoded once.
        self.replayed: dict[bytes, tuple[dict[PartitionKey, bytes], str]] = {}
        self.timers: Timers = Timers()
        self.has_started_sessions: bool = False  # after the log was read

    def group_ids(self) -> Iterator[str]:
        """Every group there is, in no order."""
        yield from self.groups
        yield from (group_id for group_id in self.offsets if group_id not in self.groups)


def without_epochs(owned: Owned) -> dict[UUID, tuple[int, ...]]:
    """The partitions of an assignment, in order."""
    return {topic_id: tuple(sorted(epochs)) for topic_id, epochs in owned.items() if epochs}
