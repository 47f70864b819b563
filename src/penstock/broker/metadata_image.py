"""The cluster as this broker knows it: the state made of committed metadata, and views of it.

Changed by `apply` only, a whole batch at a time. Every broker has an image, that of the active
controller too: what the controller has decided and not committed is not in it.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.broker import Endpoint
from penstock.broker.leadership import Leadership
from penstock.broker.quotas import DEFAULT, QuotaEntity, Rates
from penstock.broker.settings import (
    GroupConfig,
    OffsetsTopicSettings,
    TransactionTopicSettings,
    topic_settings,
)
from penstock.config.broker_keys import group_values
from penstock.config.resolve import Layers, view
from penstock.coordination.controller import ClusterState
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.events import (
    BrokerRemoved,
    BrokerSet,
    ConfigScope,
    ConfigSet,
    PartitionSet,
    QuotaSet,
    TopicDeleted,
    TopicSet,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence
    from uuid import UUID

    from penstock.broker.quotas import Quotas
    from penstock.broker.settings import TopicSettings
    from penstock.coordination.controller.events import Event, PartitionState
    from penstock.coordination.controller.state import TopicState
    from penstock.model import NodeId, TopicId
    from penstock.protocol.field_codecs import WrittenOnce
    from penstock.protocol.messages.metadata import MetadataTopic

INTERNAL_VIEWS: Final[Mapping[str, type[OffsetsTopicSettings | TransactionTopicSettings]]] = {
    "__consumer_offsets": OffsetsTopicSettings,
    "__transaction_state": TransactionTopicSettings,
}
INTERNAL_TOPICS: Final = frozenset(INTERNAL_VIEWS)
GROUP_CONFIGS_MAX: Final = 10_000
REPLACED_PER_STEP: Final = 500  # topics: some milliseconds
LEADERSHIPS_MAX: Final = 10_000  # beyond, equal ones are separate objects


class KnownTopic(NamedTuple):
    """A topic with leader and replicas of its partitions. Implements `broker.TopicView`."""

    name: str
    topic_id: TopicId
    partitions: tuple[Leadership, ...]

    @property
    def is_internal(self) -> bool:
        """Whether brokers store their own state in it."""
        return self.name in INTERNAL_TOPICS


class Changes(NamedTuple):
    """What a batch of metadata changed, each thing once."""

    topics: tuple[str, ...] = ()
    reconfigured: tuple[str, ...] = ()  # topics with other settings


class MetadataImage:
    """Everything that is committed, as far as this broker has applied it."""

    def __init__(self, node_id: NodeId, static: dict[str, str], quotas: Quotas) -> None:
        self.node_id = node_id
        self.static = static  # what this broker was started with, by key
        self.state: ClusterState = ClusterState()  # for reading only
        self.group_configs: dict[str, GroupConfig] = {}  # of groups used lately; bounded
        # Metadata's response for each topic, by whether operations are requested
        self.described_topics: dict[bool, dict[str, WrittenOnce[MetadataTopic]]]
        self.described_topics = {False: {}, True: {}}
        self._quotas = quotas
        self._topics: dict[str, KnownTopic] = {}
        self._topics_by_id: dict[TopicId, KnownTopic] = {}
        self._leaderships: dict[PartitionState, Leadership] = {}  # most partitions have equal ones
        self._settings: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        self._live: tuple[Endpoint, ...] = ()

    # Changing.

    def apply(self, events: Iterable[Event]) -> Changes:
        """Take one batch into the image."""
        topics: dict[str, None] = {}
        reconfigured: dict[str, None] = {}
        kinds = set()
        for event in events:
            apply(self.state, event)
            kinds.add(type(event))
            if isinstance(event, TopicSet | TopicDeleted):
                topics[event.name] = None
            elif isinstance(event, PartitionSet):
                topics[event.topic] = None
            elif isinstance(event, ConfigSet):
                self._note_config(event, reconfigured)
        for name in topics:
            self._update_topic(name)
        if ConfigSet in kinds:
            self.group_configs.clear()
        if BrokerSet in kinds or BrokerRemoved in kinds:
            self._update_brokers()
        if QuotaSet in kinds:
            self._update_quotas()
        known = tuple(name for name in reconfigured if name in self._topics)
        return Changes(tuple(topics), known)

    def _note_config(self, event: ConfigSet, reconfigured: dict[str, None]) -> None:
        if event.scope is ConfigScope.TOPIC:
            reconfigured[event.name] = None
        elif event.scope is ConfigScope.BROKER:
            self._settings.clear()
            reconfigured.update(dict.fromkeys(self._topics))

    def replace(self, state: ClusterState) -> Generator[None, None, Changes]:
        """A snapshot was read: it is the whole image, once the last step is done."""
        topics: dict[str, KnownTopic] = {}
        topics_by_id: dict[TopicId, KnownTopic] = {}
        for number, topic in enumerate(state.topics.values(), 1):
            topics[topic.name] = topics_by_id[topic.topic_id] = self._known(topic)
            if number % REPLACED_PER_STEP == 0:
                yield
        names = {**self._topics, **topics}
        self.state, self._topics, self._topics_by_id = state, topics, topics_by_id
        self._settings.clear()
        self.group_configs.clear()
        self._update_brokers()
        self._update_quotas()
        return Changes(tuple(names), tuple(topics))

    def everything(self) -> Changes:
        """As if all of it had just been applied."""
        return Changes(tuple(self._topics), ())

    def _update_topic(self, name: str) -> None:
        topic = self.state.topics.get(name)
        for described in self.described_topics.values():
            described.pop(name, None)
        known = self._topics.pop(name, None)
        if known is not None:
            del self._topics_by_id[known.topic_id]
        if topic is not None:
            self._topics[name] = self._topics_by_id[topic.topic_id] = self._known(topic)

    def _known(self, topic: TopicState) -> KnownTopic:
        leaderships = tuple(self._leadership(partition) for partition in topic.partitions)
        return KnownTopic(topic.name, topic.topic_id, leaderships)

    def _leadership(self, partition: PartitionState) -> Leadership:
        known = self._leaderships.get(partition)
        if known is None:
            known = Leadership(
                partition.leader,
                partition.leader_epoch,
                partition.replicas,
                partition.isr,
                partition.partition_epoch,
                partition.elr,
                partition.last_known_elr,
                partition.is_recovering,
                partition.offline,
            )
            if len(self._leaderships) < LEADERSHIPS_MAX:
                self._leaderships[partition] = known
        return known

    def _update_brokers(self) -> None:
        self._live = tuple(
            Endpoint(broker.node_id, broker.host, broker.port, broker.rack)
            for _, broker in sorted(self.state.brokers.items())
            if not broker.is_fenced
        )
        for described in self.described_topics.values():
            described.clear()  # a leader that is fenced is shown as none

    def _update_quotas(self) -> None:
        self._quotas.replace(
            {
                quota_entity(dict(entity)): Rates(
                    limits.get("producer_byte_rate"),
                    limits.get("consumer_byte_rate"),
                    # a percentage of one event loop, of which 10 ms a second are one
                    None if (share := limits.get("request_percentage")) is None else share * 10,
                )
                for entity, limits in self.state.quotas.items()
                if "ip" not in dict(entity)
            }
        )

    # What the cluster is. Implements `broker.ClusterView`.

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty until it is known."""
        return self.state.cluster_id

    def brokers(self) -> Sequence[Endpoint]:
        """The live brokers, by number."""
        return self._live

    def listed_brokers(self) -> Sequence[Endpoint]:
        """The brokers for clients: the live ones, or this one while none is.

        Clients forget brokers that are not listed: with an empty list some never ask again.
        """
        own = self.state.brokers.get(self.node_id)
        if self._live or own is None:
            return self._live
        return (Endpoint(own.node_id, own.host, own.port, own.rack),)

    def endpoint(self, node_id: int) -> Endpoint | None:
        """Where clients reach a broker, if it is live."""
        return next((each for each in self._live if each.node_id == node_id), None)

    def may_join(self, node_id: NodeId, broker_epoch: int) -> bool:
        """Whether a broker may join in-sync sets: live, staying, and in that epoch."""
        broker = self.state.brokers.get(node_id)
        return (
            broker is not None
            and not broker.is_fenced
            and not broker.is_stopping
            and broker.epoch == broker_epoch
        )

    def topics(self) -> Iterable[KnownTopic]:
        """All topics, in no particular order."""
        return self._topics.values()

    def topic(self, name: str) -> KnownTopic | None:
        """A topic by name."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> KnownTopic | None:
        """A topic by its id."""
        return self._topics_by_id.get(topic_id)

    # Settings.

    @property
    def layers(self) -> Layers:
        """This broker's settings, by where they were set."""
        return self.state.layers(self.node_id, self.static)

    def topic_settings(self, name: str) -> TopicSettings:
        """A topic's settings: its own over the broker's over the defaults."""
        overrides = self.state.overrides(ConfigScope.TOPIC, name)
        key = tuple(sorted(overrides.items()))
        known = self._settings.get(key)
        if known is None:
            known = self._settings[key] = topic_settings(overrides, self.layers)
        return known

    def group_config(self, group: str) -> GroupConfig:
        """A group's effective settings. Cached in `group_configs` until settings change."""
        overrides = self.state.overrides(ConfigScope.GROUP, group)
        config = view(GroupConfig, group_values(overrides, self.layers))
        if len(self.group_configs) >= GROUP_CONFIGS_MAX:
            self.group_configs.clear()
        self.group_configs[group] = config
        return config


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """An entity of the controller as the quotas know it."""
    known = {
        kind: DEFAULT if names[kind] is None else names[kind]
        for kind in ("user", "client-id")
        if kind in names
    }
    return QuotaEntity(known.get("user"), known.get("client-id"))


def kafka_id(identifier: UUID) -> str:
    """A UUID as Kafka writes it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()
