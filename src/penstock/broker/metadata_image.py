"""The cluster as this broker knows it: hosts the controller machine and follows its decisions.

Every command goes to the machine over `__cluster_metadata`, which decides on its own, speculative
state. This broker acts on the *image*: the state made of committed events only, whole batches at a
time. Partitions are opened, led, reconfigured and deleted so that this broker has exactly those of
the image. Following may be repeated: it compares with the image, never with the event.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from penstock.broker.broker import Endpoint
from penstock.broker.machine_host import HostedMachine
from penstock.broker.partition import Leadership, Partition
from penstock.broker.quotas import DEFAULT, QuotaEntity, Quotas, Rates
from penstock.broker.settings import (
    GroupConfig,
    OffsetsTopicSettings,
    TopicSettings,
    TransactionTopicSettings,
    topic_settings,
)
from penstock.config.broker_keys import broker_values, group_values
from penstock.config.resolve import Layers, view
from penstock.coordination.controller import ClusterState, ControllerMachine
from penstock.coordination.controller.commands import (
    AllocateProducerIds,
    Command,
    CreateTopics,
    NewTopic,
    RegisterBroker,
)
from penstock.coordination.controller.events import (
    METADATA_TOPIC,
    ConfigScope,
    ConfigSet,
    Event,
    PartitionSet,
    PartitionState,
    QuotaSet,
    TopicDeleted,
    TopicSet,
)
from penstock.errors import ErrorCode, Refused
from penstock.log.scan import DamagedLogError
from penstock.machine import CallerId, Deferred
from penstock.model import Moment, NodeId, TopicId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.broker.partitions import Partitions
    from penstock.coordination.controller.settings import ControllerSettings
    from penstock.protocol.field_codecs import WrittenOnce
    from penstock.protocol.messages.metadata import MetadataTopic

logger: Final = logging.getLogger(__name__)

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID: Final = TopicId(UUID(int=1))  # reserved by Kafka
RESERVED_IDS_MAX: Final = 100  # ids of topics are larger numbers
_INTERNAL_VIEWS: Final[Mapping[str, type[OffsetsTopicSettings | TransactionTopicSettings]]] = {
    "__consumer_offsets": OffsetsTopicSettings,
    "__transaction_state": TransactionTopicSettings,
}
INTERNAL_TOPICS: Final = frozenset(_INTERNAL_VIEWS)
REOPEN_AFTER_S: Final = 1.0  # a failed disk is tried again at this interval
REOPEN_DAMAGED_AFTER_S: Final = 60.0  # a damaged log needs an operator first
GROUP_CONFIGS_MAX: Final = 10_000
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


class ClusterController:
    """The controller of this broker's cluster. Implements `broker.ClusterView`."""

    def __init__(
        self,
        metadata: Partition,
        partitions: Partitions,
        quotas: Quotas,
        *,
        rules: ControllerSettings,
        features: Mapping[str, int],
        clock: Callable[[], Moment],
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.node_id: NodeId = rules.node_id
        self.metadata = metadata
        self.static: dict[str, str] = rules.static
        self._partitions = partitions
        self._quotas = quotas
        self._new_id = new_id
        self._machine = ControllerMachine(rules, dict(features))
        self._hosted: HostedMachine[ClusterState, Command, Event] = HostedMachine(
            self._machine, metadata, clock=clock, on_events=self._on_committed
        )
        self._hosted.load()
        self._image = self._hosted.state.copy()
        self._is_following = False
        self.group_configs: dict[str, GroupConfig] = {}  # of groups used recently; limited
        self._topics: dict[str, KnownTopic] = {}
        self._topics_by_id: dict[TopicId, KnownTopic] = {}
        self._leaderships: dict[PartitionState, Leadership] = {}  # most partitions have equal ones
        self._settings: dict[tuple[tuple[str, str], ...], TopicSettings] = {}
        # Rows of Metadata responses, by whether authorized operations were requested.
        self.described_topics: dict[bool, dict[str, WrittenOnce[MetadataTopic]]] = {
            False: {},
            True: {},
        }
        self.topic_listeners: list[
            Callable[[str], None]
        ] = []  # called with a topic that was created, changed or deleted
        # Partitions that could not be opened, and the loop's time of the next attempt.
        self._offline: dict[TopicPartition, float] = {}
        self._reopening: asyncio.TimerHandle | None = None

    @property
    def state(self) -> ClusterState:
        """Everything that is committed. For reading only, between two commands."""
        return self._image

    def start(
        self, endpoint: Endpoint, *, stopped_cleanly: bool, cluster_id: str | None = None
    ) -> object:
        """Register this broker and open its partitions. Needs the running event loop.

        `cluster_id` is for a cluster that has none yet; None generates one. The reply comes when
        the registration is on disk.
        """
        self._hosted.start()
        registered = self.submit(
            lambda caller: RegisterBroker(
                caller,
                endpoint.node_id,
                endpoint.host,
                endpoint.port,
                endpoint.rack,
                stopped_cleanly=stopped_cleanly,
                new_cluster_id=cluster_id or kafka_id(self._new_id()),
            )
        )
        # No other broker can undo what is in this log, so all of it counts from the start.
        self._image = self._hosted.state.copy()
        self._is_following = True
        for name in tuple(self.state.topics):
            self._follow_topic(name)
        self._follow_quotas()
        return registered

    def close(self) -> None:
        """Refuse all commands that still wait."""
        self._is_following = False
        if self._reopening is not None:
            self._reopening.cancel()
        self._hosted.close()

    def submit(self, command: Callable[[CallerId], Command]) -> object:
        """Let the controller decide: its reply, a Refused, or a Deferred of that."""
        return self._hosted.submit(command)

    # The cluster.

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which never changes."""
        return self.state.cluster_id

    @property
    def controller_id(self) -> NodeId:
        """The broker that administrative requests are sent to."""
        return self.node_id

    def brokers(self) -> Iterable[Endpoint]:
        """The live brokers, by node id."""
        registered = self.state.brokers
        return [Endpoint(*registered[node_id]) for node_id in sorted(registered)]

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
        """This broker's settings, by their source."""
        return self.state.layers(self.node_id, self.static)

    def topic_settings(self, name: str) -> TopicSettings:
        """A topic's configuration: its own over the broker's over the defaults."""
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

    # New ids and topics.

    def new_topic_id(self) -> TopicId:
        """An id for a new topic; without a leading dash, because tools take it as an argument."""
        while True:
            topic_id = self._new_id()
            if topic_id.int > RESERVED_IDS_MAX and not kafka_id(topic_id).startswith("-"):
                return TopicId(topic_id)

    def allocate_producer_ids(self, count: int) -> object:
        """The first of `count` producer ids that no other producer ever gets."""
        return self.submit(lambda caller: AllocateProducerIds(caller, count))

    def create_internal_topic(self, name: str) -> object:
        """Create a topic for state of brokers, when it is first needed.

        None if it exists; else the reply to its creation, or a Deferred of that.
        """
        assert name in INTERNAL_TOPICS
        if name in self._topics:
            return None
        topic = self._internal(name)
        reply = self.submit(lambda caller: CreateTopics(caller, (topic,)))
        if not isinstance(reply, Deferred):
            return _log_if_refused(name, reply)
        created: Deferred[object] = Deferred(reply.cancel)
        reply.listen(lambda result: created.resolve(_log_if_refused(name, result)))
        return created

    def new_topic(self, name: str) -> NewTopic:
        """The topic to create when a client requests one that does not exist."""
        if name in INTERNAL_TOPICS:
            return self._internal(name)
        return NewTopic(name, self.new_topic_id())

    def _internal(self, name: str) -> NewTopic:
        settings = view(_INTERNAL_VIEWS[name], broker_values(self.layers))
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.segment_bytes),
        }
        if isinstance(settings, TransactionTopicSettings):
            overrides["min.insync.replicas"] = str(settings.min_insync_replicas)
        factor = min(settings.replication_factor, len(self.state.brokers))
        count = settings.partition_count
        topic_id = self.new_topic_id()
        return NewTopic(name, topic_id, count, factor, (), tuple(overrides.items()))

    # Following.

    def _on_committed(self, events: Sequence[Event]) -> None:
        """Apply one batch to the image, then follow each thing that it changed once."""
        for event in events:
            self._machine.apply(self._image, event)
        if not self._is_following:
            return
        for name in _topics_in(events):
            self._follow_topic(name)
        if any(isinstance(event, ConfigSet) for event in events):
            self._follow_configs(events)
        if any(isinstance(event, QuotaSet) for event in events):
            self._follow_quotas()

    def _follow_configs(self, events: Sequence[Event]) -> None:
        self.group_configs.clear()
        reconfigured: dict[str, None] = {}
        for event in events:
            match event:
                case ConfigSet(ConfigScope.TOPIC):
                    reconfigured[event.name] = None
                case ConfigSet(ConfigScope.BROKER):
                    self._settings.clear()
                    reconfigured.update(dict.fromkeys(self._topics))
                case _:
                    continue
        for name in reconfigured:
            self._follow_settings(name)

    def _follow_topic(self, name: str) -> None:
        topic = self.state.topics.get(name)
        for described in self.described_topics.values():
            described.pop(name, None)
        known = self._topics.pop(name, None)
        if known is not None:
            del self._topics_by_id[known.topic_id]
            if topic is None or topic.topic_id != known.topic_id:
                self._remove(name)
        if topic is not None:
            leaderships = tuple(self._leadership(partition) for partition in topic.partitions)
            known = KnownTopic(name, topic.topic_id, leaderships)
            self._topics[name] = self._topics_by_id[topic.topic_id] = known
            self._open_all(known)
        for listener in self.topic_listeners:
            listener(name)

    def _remove(self, name: str) -> None:
        try:
            self._partitions.delete(name)
        except OSError:  # the next start sets aside folders of unknown topics
            logger.exception("the files of %s could not be deleted", name)

    def _open_all(self, topic: KnownTopic) -> None:
        settings = self.topic_settings(topic.name)
        for index, leadership in enumerate(topic.partitions):
            if self.node_id in leadership.replicas:
                self._open(TopicPartition(topic.name, index), topic.topic_id, leadership, settings)

    def _open(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leadership: Leadership,
        settings: TopicSettings,
    ) -> None:
        try:
            self._partitions.create(topic_partition, topic_id, leadership, settings)
        except OSError as error:  # only this partition is offline
            if topic_partition not in self._offline:
                logger.error("%s could not be opened and is offline: %s", topic_partition, error)
            is_damaged = isinstance(error, DamagedLogError)
            delay_s = REOPEN_DAMAGED_AFTER_S if is_damaged else REOPEN_AFTER_S
            loop = asyncio.get_running_loop()
            self._offline[topic_partition] = loop.time() + delay_s
            if self._reopening is None:
                self._reopening = loop.call_later(REOPEN_AFTER_S, self._reopen)
        else:
            self._offline.pop(topic_partition, None)

    def _reopen(self) -> None:
        """Try partitions again that could not be opened: the disk may have space by now."""
        self._reopening = None
        loop = asyncio.get_running_loop()
        for topic_partition, at in tuple(self._offline.items()):
            known = self._topics.get(topic_partition.topic)
            if known is None or topic_partition.partition >= len(known.partitions):
                del self._offline[topic_partition]
            elif at <= loop.time():
                leadership = known.partitions[topic_partition.partition]
                settings = self.topic_settings(known.name)
                self._open(topic_partition, known.topic_id, leadership, settings)
                if topic_partition not in self._offline:
                    logger.info("%s is open again", topic_partition)
                    for listener in self.topic_listeners:
                        listener(known.name)
        if self._offline and self._reopening is None:
            self._reopening = loop.call_later(REOPEN_AFTER_S, self._reopen)

    def _leadership(self, partition: PartitionState) -> Leadership:
        known = self._leaderships.get(partition)
        if known is None:
            known = Leadership(
                partition.leader, partition.leader_epoch, partition.replicas, partition.isr
            )
            if len(self._leaderships) < LEADERSHIPS_MAX:
                self._leaderships[partition] = known
        return known

    def _follow_settings(self, name: str) -> None:
        if name in self._topics:
            self._partitions.replace_settings(name, self.topic_settings(name))

    def _follow_quotas(self) -> None:
        self._quotas.replace(
            {
                quota_entity(dict(entity)): Rates(
                    limits.get("producer_byte_rate"),
                    limits.get("consumer_byte_rate"),
                    # a percentage of one event loop: 10 ms in each second
                    None if (share := limits.get("request_percentage")) is None else share * 10,
                )
                for entity, limits in self.state.quotas.items()
                if "ip" not in dict(entity)
            }
        )


def _topics_in(events: Sequence[Event]) -> Iterable[str]:
    """The topics that events change, each once."""
    names: dict[str, None] = {}
    for event in events:
        match event:
            case TopicSet() | TopicDeleted():
                names[event.name] = None
            case PartitionSet():
                names[event.topic] = None
            case _:
                continue
    return names


def _log_if_refused(name: str, reply: object) -> object:
    result = reply[0] if isinstance(reply, list) else reply
    exists = isinstance(result, Refused) and result.code is ErrorCode.topic_already_exists
    if isinstance(result, Exception) and not exists:
        logger.error("%s could not be created: %s", name, result)
    return result


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """An entity of the controller as the quotas know it."""
    parts = {
        kind: DEFAULT if names[kind] is None else names[kind]
        for kind in ("user", "client-id")
        if kind in names
    }
    return QuotaEntity(parts.get("user"), parts.get("client-id"))


def kafka_id(identifier: UUID) -> str:
    """A UUID as Kafka writes it: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(identifier.bytes).rstrip(b"=").decode()
