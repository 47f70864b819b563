"""What happens to the cluster: the events of the controller, as `__cluster_metadata` keeps them.

Every event is an upsert of one key and carries all there is to know about it, so that a log of
which only the last record of each key is left still replays to the same state.
"""

from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from penstock.model import LeaderEpoch, NodeId, TopicId

METADATA_TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = NodeId(-1)


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
    """A broker has registered."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


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


TopicEvent: TypeAlias = TopicSet | TopicDeleted | PartitionSet | PartitionRemoved
Event: TypeAlias = (
    TopicEvent | ConfigSet | QuotaSet | BrokerSet | FeatureSet | ProducerIdsAllocated | ClusterIdSet
)
