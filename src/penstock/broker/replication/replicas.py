"""The partitions that this broker follows, each with the fetcher of its leader.

Brought up to date with every change of the metadata: a partition is followed in one leader epoch,
then dropped, and followed from the start in the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.replication.followed_partition import FollowedPartition
from penstock.broker.replication.replica_fetcher import ReplicaFetcher
from penstock.link.settings import Address
from penstock.protocol.messages.fetch import FetchingReplica

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker_links import BrokerLinks
    from penstock.broker.metadata_image import MetadataImage
    from penstock.broker.partition import Partition
    from penstock.broker.partitions import Partitions
    from penstock.broker.suspected_leaders import SuspectedLeaders
    from penstock.model import Millis, NodeId, TopicPartition


class Replicas:
    """Everything that this broker copies from others."""

    def __init__(
        self,
        partitions: Partitions,
        image: MetadataImage,
        links: BrokerLinks,
        clock: Callable[[], Millis],
        suspected: SuspectedLeaders,
        is_usable: Callable[[Partition], bool] = lambda _: True,
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._links = links
        self._clock = clock
        self._suspected = suspected
        self._is_usable = is_usable  # its log is neither damaged nor on a disk that failed
        self._replica: FetchingReplica | None = None  # None: not registered yet
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._followed: dict[TopicPartition, tuple[FollowedPartition, ReplicaFetcher]] = {}
        self._by_topic: dict[str, set[TopicPartition]] = {}

    def start(self, broker_epoch: int) -> None:
        """This broker is registered: follow what it has."""
        self._replica = FetchingReplica(self._partitions.node_id, broker_epoch)
        for name in tuple(self._partitions.topics):
            self.follow(name)

    def close(self) -> None:
        """Fetch nothing more."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        for followed, _ in self._followed.values():
            followed.close()

    def follow(self, name: str) -> None:
        """A topic was created, changed or deleted."""
        if self._replica is None:
            return
        hosted = self._partitions.topics.get(name)
        held = (
            {}
            if hosted is None
            else {partition.topic_partition: partition for partition in hosted.partitions.values()}
        )
        for topic_partition in tuple(self._by_topic.get(name, ())):
            followed, _ = self._followed[topic_partition]
            if not _is_followed(followed, held.get(topic_partition)):
                self.drop(topic_partition)
        for topic_partition, partition in held.items():
            has_leader = not partition.is_leader and partition.leadership.leader >= 0
            is_new = topic_partition not in self._followed
            if has_leader and is_new and self._is_usable(partition):
                self._add(partition, self._replica)

    def _add(self, partition: Partition, replica: FetchingReplica) -> None:
        leader = partition.leadership.leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(
                leader, self._links, self._find_address, replica, self._suspected
            )
            self._fetchers[leader] = fetcher
        followed = FollowedPartition(partition, fetcher.add, self._clock)
        topic_partition = partition.topic_partition
        self._followed[topic_partition] = followed, fetcher
        self._by_topic.setdefault(topic_partition.topic, set()).add(topic_partition)
        fetcher.add(followed)

    def drop(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more."""
        if topic_partition not in self._followed:
            return
        followed, fetcher = self._followed.pop(topic_partition)
        self._by_topic[topic_partition.topic].discard(topic_partition)
        followed.close()
        fetcher.remove(followed)

    def _find_address(self, node_id: NodeId) -> Address | None:
        endpoint = self._image.endpoint(node_id)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)


def _is_followed(followed: FollowedPartition, held: Partition | None) -> bool:
    """Whether a partition is still to be followed in the same leader epoch."""
    return (
        held is followed.partition
        and not held.is_leader
        and held.leader_epoch == followed.leader_epoch
    )
