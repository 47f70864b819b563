"""What happens to the cluster: the events of the controller, as `__cluster_metadata` keeps them.

Every event is an upsert of one key and carries all there is to know about it, so that a log of
which only the last record of each key is left still replays to the same state.
"""

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from penstock.model import LeaderEpoch, Millis, NodeId, Offset, TopicId

METADATA_TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = NodeId(-1)
NO_BROKER_EPOCH: Final = -1  # registered before there were epochs
NO_INCARNATION: Final = UUID(int=0)
NO_LOG_DIR: Final = UUID(int=0)  # registered before log directories were


class ConfigScope(IntEnum):
    """What a set of overrides belongs to, numbered as on the wire."""

    TOPIC = 2
    BROKER = 4  # the empty name stands for all brokers
    GROUP = 32


class PartitionState(NamedTuple):
    """Leader and replicas of one partition. `partition_epoch` counts the changes of this row."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]  # the first is preferred as leader
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...] = ()  # not in sync, and complete: nothing was committed since
    last_known_elr: tuple[NodeId, ...] = ()  # were in `elr` until they lost unsynced records
    is_recovering: bool = False  # the leader was elected uncleanly and has not settled its log
    offline: tuple[NodeId, ...] = ()  # replicas whose log cannot be used: they are not elected


# (type, name) in order of type; None is the default entity.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


class TopicSet(NamedTuple):
    """A topic exists, with these partitions."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]


class TopicDeleted(NamedTuple):
    """A topic was deleted."""

    name: str


class PartitionSet(NamedTuple):
    """One partition changed after its topic was last written whole."""

    topic: str
    topic_id: TopicId
    partition_index: int
    partition: PartitionState


class PartitionRemoved(NamedTuple):
    """The topic of a partition was deleted, so the partition's own record may go too."""

    topic_id: TopicId
    partition_index: int


class ConfigSet(NamedTuple):
    """All overrides of one resource; none: it has none left."""

    scope: ConfigScope
    name: str
    overrides: dict[str, str]


class QuotaSet(NamedTuple):
    """All limits of one quota entity; none: it has none left."""

    entity: QuotaEntity
    limits: dict[str, float]


class BrokerSet(NamedTuple):
    """A broker has registered, was fenced or unfenced, or stops."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    epoch: int = NO_BROKER_EPOCH  # of this registration; rises with each
    incarnation: UUID = NO_INCARNATION  # of the process that registered
    is_fenced: bool = False  # leads nothing, is in sync nowhere, is not shown to clients
    is_stopping: bool = False  # asked for a controlled shutdown
    log_dir: UUID = NO_LOG_DIR  # another one: the records of the last are not there

    @property
    def is_active(self) -> bool:
        """Whether it may lead partitions and be in sync."""
        return not self.is_fenced and not self.is_stopping


class BrokerRemoved(NamedTuple):
    """A broker was unregistered."""

    node_id: NodeId


class FeatureSet(NamedTuple):
    """A feature is finalized at this level."""

    name: str
    level: int


class ProducerIdsAllocated(NamedTuple):
    """All producer ids below were given out."""

    end_producer_id: int


class ClusterIdSet(NamedTuple):
    """The id of the cluster; it never changes."""

    cluster_id: str


# Notes: soft state of the active controller, lost with it.


class HeartbeatReceived(NamedTuple):
    """A broker is alive."""

    node_id: NodeId
    at: Millis  # by the steady clock
    metadata_offset: Offset  # everything below is applied there


class SessionsStarted(NamedTuple):
    """The controller became active: every broker has a whole session to send a heartbeat."""

    at: Millis


class StopAwaited(NamedTuple):
    """A broker may stop once every live broker has applied the metadata up to here."""

    node_id: NodeId
    end_offset: Offset


TopicEvent: TypeAlias = TopicSet | TopicDeleted | PartitionSet | PartitionRemoved


class UnfenceAwaited(NamedTuple):
    """A fenced broker serves again when it has applied everything before this offset."""

    node_id: NodeId
    end_offset: Offset


class TopicsLeft(NamedTuple):
    """Topics whose partitions have yet to follow from which brokers are active."""

    names: tuple[str, ...]


Note: TypeAlias = HeartbeatReceived | SessionsStarted | StopAwaited | UnfenceAwaited | TopicsLeft
Event: TypeAlias = (
    TopicEvent
    | ConfigSet
    | QuotaSet
    | BrokerSet
    | BrokerRemoved
    | FeatureSet
    | ProducerIdsAllocated
    | ClusterIdSet
    | Note
)
