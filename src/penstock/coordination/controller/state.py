"""What the controller knows, and the events that change it.

Every event is an upsert of one key and carries all there is to know about it, so that a log of
which only the last record of each key is left still replays to the same state.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar, assert_never

from penstock.config.resolve import Layers
from penstock.model import LeaderEpoch, NodeId, TopicId

METADATA_TOPIC: Final = "__cluster_metadata"
NO_LEADER: Final = NodeId(-1)


class ConfigScope(IntEnum):
    """What a set of overrides belongs to, numbered as on the wire."""

    TOPIC = 2
    BROKER = 4  # the empty name stands for all brokers
    GROUP = 32


class PartitionState(NamedTuple):
    """Who holds one partition. `partition_epoch` counts the changes of this very row."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]  # the first is preferred as leader
    isr: tuple[NodeId, ...]


QuotaEntity: TypeAlias = tuple[
    tuple[str, str | None], ...
]  # (type, name) by type; None: the default


class TopicSet(NamedTuple):
    """A topic exists, with these partitions."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]


class TopicDeleted(NamedTuple):
    """A topic is gone."""

    name: str


class PartitionSet(NamedTuple):
    """One partition changed after its topic was last written whole."""

    topic: str
    topic_id: TopicId
    partition_index: int
    partition: PartitionState


class PartitionForgotten(NamedTuple):
    """The topic of a partition went, so its own record may go too."""

    topic_id: TopicId
    partition_index: int


class ConfigSet(NamedTuple):
    """The overrides of one resource, all of them; none: it has none left."""

    scope: ConfigScope
    name: str
    overrides: dict[str, str]


class QuotaSet(NamedTuple):
    """The limits of one quota entity, all of them; none: it has none left."""

    entity: QuotaEntity
    limits: dict[str, float]


class BrokerSet(NamedTuple):
    """A broker has registered."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


class FeatureSet(NamedTuple):
    """A feature is finalised at this level."""

    name: str
    level: int


class ProducerIdsTaken(NamedTuple):
    """All producer ids below are given out."""

    end_producer_id: int


class ClusterNamed(NamedTuple):
    """The cluster's own id, from its first day."""

    cluster_id: str


TopicEvent: TypeAlias = TopicSet | TopicDeleted | PartitionSet | PartitionForgotten
Event: TypeAlias = (
    TopicEvent | ConfigSet | QuotaSet | BrokerSet | FeatureSet | ProducerIdsTaken | ClusterNamed
)


class Topic:
    """A topic as the cluster knows it."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: TopicId, partitions: tuple[PartitionState, ...]
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = list(partitions)


@dataclass(slots=True)
class Cluster:
    """The controller's state. Only `apply` changes it."""

    cluster_id: str = ""
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[TopicId, Topic] = field(default_factory=dict)
    topics_by_folded_name: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    deleted_topics: dict[str, None] = field(default_factory=dict)  # names nobody has now; bounded
    configs: dict[tuple[ConfigScope, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    brokers: dict[NodeId, BrokerSet] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    end_producer_id: int = 0

    def copy(self) -> "Cluster":
        """A state that changes on its own from here on."""
        topics = {
            name: Topic(name, topic.topic_id, tuple(topic.partitions))
            for name, topic in self.topics.items()
        }
        return Cluster(
            cluster_id=self.cluster_id,
            topics=topics,
            topics_by_id={topic.topic_id: topic for topic in topics.values()},
            topics_by_folded_name=defaultdict(
                set, {name: set(alike) for name, alike in self.topics_by_folded_name.items()}
            ),
            deleted_topics=dict(self.deleted_topics),
            configs=dict(self.configs),
            quotas=dict(self.quotas),
            brokers=dict(self.brokers),
            features=dict(self.features),
            end_producer_id=self.end_producer_id,
        )

    def overrides(self, scope: ConfigScope, name: str) -> dict[str, str]:
        """What a resource sets itself."""
        return self.configs.get((scope, name), {})

    def layers(self, node_id: NodeId, static: dict[str, str]) -> Layers:
        """The settings of one broker, by who set them."""
        return Layers(
            self.overrides(ConfigScope.BROKER, str(node_id)),
            self.overrides(ConfigScope.BROKER, ""),
            static,
        )


DELETED_TOPICS_MAX: Final = 10_000  # beyond, the oldest is no longer known to have been there

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def folded(name: str) -> str:
    """Metric names cannot hold a period, so `a.b` and `a_b` are one name to them."""
    return name.replace(".", "_")


def apply(state: Cluster, event: Event) -> None:
    """Change the state. Cannot fail, and means the same the second time."""
    match event:
        case TopicSet() | TopicDeleted() | PartitionSet() | PartitionForgotten():
            _apply_to_topics(state, event)
        case ConfigSet():
            _upsert(state.configs, (event.scope, event.name), event.overrides)
        case QuotaSet():
            _upsert(state.quotas, event.entity, event.limits)
        case BrokerSet():
            state.brokers[event.node_id] = event
        case FeatureSet():
            state.features[event.name] = event.level
        case ProducerIdsTaken():
            state.end_producer_id = event.end_producer_id
        case ClusterNamed():
            state.cluster_id = event.cluster_id
        case _:
            assert_never(event)


def _apply_to_topics(state: Cluster, event: TopicEvent) -> None:
    match event:
        case TopicSet():
            _apply_topic_set(state, event)
        case TopicDeleted():
            _forget_topic(state, event.name)
            state.deleted_topics[event.name] = None
            if len(state.deleted_topics) > DELETED_TOPICS_MAX:
                del state.deleted_topics[next(iter(state.deleted_topics))]
        case PartitionSet():
            _apply_partition_set(state, event)
        case PartitionForgotten():
            return  # the topic's own record has said it
        case _:
            assert_never(event)


def _apply_topic_set(state: Cluster, event: TopicSet) -> None:
    state.deleted_topics.pop(event.name, None)
    known = state.topics.get(event.name)
    if known is not None and known.topic_id == event.topic_id:
        known.partitions = list(event.partitions)
        return
    if known is not None:  # deleted and made anew; the record of its end was compacted away
        _forget_topic(state, event.name)
    topic = Topic(*event)
    state.topics[topic.name] = state.topics_by_id[topic.topic_id] = topic
    state.topics_by_folded_name[folded(topic.name)].add(topic.name)


def _forget_topic(state: Cluster, name: str) -> None:
    topic = state.topics.pop(name, None)
    if topic is None:
        return
    del state.topics_by_id[topic.topic_id]
    alike = state.topics_by_folded_name[folded(name)]
    alike.discard(name)
    if not alike:
        del state.topics_by_folded_name[folded(name)]


def _apply_partition_set(state: Cluster, event: PartitionSet) -> None:
    """A stale row is passed over: a `TopicSet` written later already holds what it says."""
    topic = state.topics_by_id.get(event.topic_id)
    if topic is None or event.partition_index >= len(topic.partitions):
        return
    if event.partition.partition_epoch >= topic.partitions[event.partition_index].partition_epoch:
        topic.partitions[event.partition_index] = event.partition


def _upsert(table: dict[KeyT, dict[str, ValueT]], key: KeyT, values: dict[str, ValueT]) -> None:
    if values:
        table[key] = values
    else:
        table.pop(key, None)
