"""What the controller knows. Changed by `apply` only."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from penstock.config.resolve import Layers
from penstock.coordination.controller.events import (
    BrokerSet,
    ConfigScope,
    PartitionState,
    QuotaEntity,
)
from penstock.model import NodeId, TopicId

DELETED_TOPICS_MAX: Final = 10_000  # beyond, the oldest is no longer known to have existed


class TopicState:
    """A topic as the cluster knows it."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(
        self, name: str, topic_id: TopicId, partitions: tuple[PartitionState, ...]
    ) -> None:
        self.name: str = name
        self.topic_id: TopicId = topic_id
        self.partitions: list[PartitionState] = list(partitions)


@dataclass(slots=True)
class ClusterState:
    """The controller's state: speculative where it decides, committed in a broker's image."""

    cluster_id: str = ""
    topics: dict[str, TopicState] = field(default_factory=dict)
    topics_by_id: dict[TopicId, TopicState] = field(default_factory=dict)
    topics_by_folded_name: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    deleted_topics: dict[str, None] = field(default_factory=dict)  # names not in use; bounded
    configs: dict[tuple[ConfigScope, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    brokers: dict[NodeId, BrokerSet] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    end_producer_id: int = 0

    def copy(self) -> "ClusterState":
        """A state that changes independently from here on."""
        topics = {
            name: TopicState(name, topic.topic_id, tuple(topic.partitions))
            for name, topic in self.topics.items()
        }
        return ClusterState(
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
