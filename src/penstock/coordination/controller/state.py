"""What the controller knows. Changed by `apply` only."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.config.resolve import Layers
from penstock.coordination.controller.events import (
    BrokerSet,
    ConfigScope,
    PartitionState,
    QuotaEntity,
)
from penstock.model import NO_OFFSET, Millis, NodeId, Offset, TopicId

DELETED_TOPICS_MAX: Final = 10_000  # beyond, the oldest is no longer known to have existed
SHARED_ROWS_MAX: Final = 10_000

_shared_rows: dict[PartitionState, PartitionState] = {}


def shared_row(row: PartitionState) -> PartitionState:
    """An equal row that is in use already: most partitions of a cluster have few different ones.

    500 000 rows of their own would take 200 MB, and half a second of each garbage collection.
    """
    known = _shared_rows.setdefault(row, row)
    if len(_shared_rows) > SHARED_ROWS_MAX:
        _shared_rows.clear()
    return known


class TopicState:
    """A topic as the cluster knows it."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: TopicId, partitions: tuple[PartitionState, ...]
    ) -> None:
        self.name: str = name
        self.topic_id: TopicId = topic_id
        self.partitions: list[PartitionState] = list(partitions)


class BrokerSession(NamedTuple):
    """When a broker was last known to be alive, and what it had applied."""

    at: Millis  # by the steady clock
    metadata_offset: Offset = NO_OFFSET


@dataclass(slots=True)
class ClusterState:
    """The controller's state: speculative where it decides, committed in a broker's image."""

    cluster_id: str = ""
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_by_id: dict[TopicId, TopicState] = field(default_factory=dict)
    topics_by_folded_name: dict[str, frozenset[str]] = field(default_factory=dict)
    deleted_topics: dict[str, None] = field(default_factory=dict)  # names not in use; bounded
    configs: dict[tuple[ConfigScope, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    brokers: dict[NodeId, BrokerSet] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    end_producer_id: int = 0
    own_topics: set[str] = field(default_factory=set)  # names: no fork shares these
    # Soft state of the active controller
    sessions: dict[NodeId, BrokerSession] = field(default_factory=dict)
    stops_awaited: dict[NodeId, Offset] = field(default_factory=dict)
    unfences_awaited: dict[NodeId, Offset] = field(default_factory=dict)
    topics_left: tuple[str, ...] = ()  # to follow from which brokers are active

    def is_active(self, node_id: NodeId) -> bool:
        """Whether a broker may lead partitions and be in sync."""
        broker = self.brokers.get(node_id)
        return broker is not None and broker.is_active

    def fork(self) -> "ClusterState":
        """A state that changes independently from here on; topics are copied when they change."""
        self.own_topics.clear()
        return ClusterState(
            cluster_id=self.cluster_id,
            topics=dict(self.topics),
            topics_by_id=dict(self.topics_by_id),
            topics_by_folded_name=dict(self.topics_by_folded_name),
            deleted_topics=dict(self.deleted_topics),
            configs=dict(self.configs),
            quotas=dict(self.quotas),
            brokers=dict(self.brokers),
            features=dict(self.features),
            end_producer_id=self.end_producer_id,
        )

    def topic_to_change(self, topic: TopicState) -> TopicState:
        """The topic itself, or a copy in its place if another state may share it."""
        if topic.name in self.own_topics:
            return topic
        own = TopicState(topic.name, topic.topic_id, tuple(topic.partitions))
        self.topics[own.name] = self.topics_by_id[own.topic_id] = own
        self.own_topics.add(own.name)
        return own

    def overrides(self, scope: ConfigScope, name: str) -> dict[str, str]:
        """What is set for a resource itself."""
        return self.configs.get((scope, name), {})

    def layers(self, node_id: NodeId, static: dict[str, str]) -> Layers:
        """The settings of one broker, by where they were set."""
        return Layers(
            self.overrides(ConfigScope.BROKER, str(node_id)),
            self.overrides(ConfigScope.BROKER, ""),
            static,
        )


def folded(name: str) -> str:
    """The name in metrics, which have no period: `a.b` and `a_b` are the same there."""
    return name.replace(".", "_")
