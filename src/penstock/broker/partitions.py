"""The partitions that this broker has, by topic.

Which partitions exist is decided by the controller; this table follows its decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.broker.counts import TopicCounts
from penstock.broker.leadership import REPLICA_SETTINGS
from penstock.broker.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.leadership import Leadership
    from penstock.broker.partition_ports import FlushPort, ReplicaHealth
    from penstock.broker.settings import TopicSettings
    from penstock.consensus.replica.leader import IsEligible, ReplicaSettings
    from penstock.log.partition_log import PartitionLog
    from penstock.log.settings import LogSettings
    from penstock.model import NodeId, TopicId, TopicPartition
    from penstock.protocol.fields import TopicKey


class HostedTopic:
    """A topic, and those of its partitions that this broker has."""

    __slots__ = ("counts", "name", "partitions", "settings", "topic_id")

    def __init__(self, name: str, topic_id: TopicId, settings: TopicSettings) -> None:
        self.name: str = name
        self.topic_id: TopicId = topic_id
        self.settings: TopicSettings = settings
        self.partitions: dict[int, Partition] = {}
        self.counts: TopicCounts = TopicCounts()


class LogStore(Protocol):
    """The logs on disk."""

    def open(
        self, topic_partition: TopicPartition, topic_id: TopicId, settings: LogSettings
    ) -> PartitionLog:
        """The log of a partition: created if absent, recovered if needed."""

    def delete(self, log: PartitionLog) -> None:
        """Rename the log now and delete its files later."""

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Close the log if it is open and keep its folder under another name, which is returned."""

    def close(self) -> None:
        """Close all logs, and write the marker of a clean stop."""


class Partitions:
    """All partitions of this broker, by name and by topic id."""

    def __init__(
        self,
        node_id: NodeId,
        store: LogStore,
        replica_settings: ReplicaSettings = REPLICA_SETTINGS,
    ) -> None:
        self.node_id = node_id
        self.replica_settings: ReplicaSettings = replica_settings
        self.is_eligible: IsEligible = lambda _replica, _epoch: True  # to join an in-sync set
        self.flush: FlushPort | None = None  # for partitions created from then on
        self.health: ReplicaHealth | None = None  # likewise
        self.generation: int = (
            0  # of the table: a cached partition of another one is looked up again
        )
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}  # by the id's 16 bytes, as on the wire
        self.deleted_counts: TopicCounts = TopicCounts()  # of topics that are gone
        self._store = store

    def __iter__(self) -> Iterator[Partition]:
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def topic(self, key: TopicKey) -> HostedTopic | None:
        """The topic by its name or the 16 bytes of its id."""
        return self.topics.get(key) if isinstance(key, str) else self.topics_by_id.get(key)

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition by name, if this broker has it."""
        hosted = self.topics.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        leadership: Leadership,
        settings: TopicSettings,
    ) -> Partition:
        """Have a partition from now on, with its log on disk if there is one. May be repeated."""
        topic = self.topics.get(topic_partition.topic)
        if topic is None:
            topic = HostedTopic(topic_partition.topic, topic_id, settings)
            self.topics[topic.name] = self.topics_by_id[topic_id.bytes] = topic
        assert topic.topic_id == topic_id, "a topic is deleted before its name is used again"
        known = topic.partitions.get(topic_partition.partition)
        if known is not None:
            known.lead(leadership)
            return known
        partition = Partition(
            self._store.open(topic_partition, topic_id, settings.log),
            topic_id=topic_id,
            node_id=self.node_id,
            leadership=leadership,
            settings=settings,
            flush=self.flush,
            replica_settings=self.replica_settings,
            counts=topic.counts,
            is_eligible=lambda replica, epoch: self.is_eligible(replica, epoch),
            health=self.health,
        )
        topic.partitions[topic_partition.partition] = partition
        self.generation += 1
        return partition

    def delete(self, topic: str) -> None:
        """Remove a topic and its partitions; the files are deleted after a delay.

        OSError, after all partitions are removed, if the files of one could not be.
        """
        hosted = self.topics.pop(topic, None)
        if hosted is None:
            return
        self.topics_by_id.pop(hosted.topic_id.bytes, None)
        self.deleted_counts.add(hosted.counts)
        self.generation += 1
        failure: OSError | None = None
        for partition in hosted.partitions.values():
            partition.abandon()
            try:
                self._store.delete(partition.log)
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    def set_aside(self, topic_partition: TopicPartition) -> str:
        """Remove a partition, and keep its files under the name that is returned."""
        hosted = self.topics.get(topic_partition.topic)
        if hosted is not None:
            partition = hosted.partitions.pop(topic_partition.partition, None)
            if partition is not None:
                partition.abandon()
                self.generation += 1
        return self._store.set_aside(topic_partition)

    def replace_settings(self, topic: str, settings: TopicSettings) -> None:
        """A topic was reconfigured."""
        hosted = self.topics.get(topic)
        if hosted is None:
            return
        hosted.settings = settings
        for partition in hosted.partitions.values():
            partition.replace_settings(settings)

    def abandon(self) -> None:
        """Respond to everything that waits: the broker stops."""
        for partition in self:
            partition.abandon()

    def close(self) -> None:
        """Close every log."""
        self._store.close()
        self.topics.clear()
        self.topics_by_id.clear()
