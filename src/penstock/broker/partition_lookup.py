"""From a topic and an index in a request to the partition, or to the reason why it is not here.

A partition that another broker has is NOT_LEADER_OR_FOLLOWER, with its leader; one that does not
exist is UNKNOWN_TOPIC_OR_PARTITION, and a topic id that does not exist is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker.leadership import NotLeader
from penstock.errors import ErrorCode, Refused
from penstock.model import TopicId
from penstock.protocol.fields import LeaderAndEpoch, NodeEndpoint, TopicKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.broker.broker import Broker, ClusterView, TopicView
    from penstock.broker.partition import Partition

NO_LEADER = -1


def find_partition(broker: Broker, key: TopicKey, index: int) -> Partition:
    """The partition, if this broker has it. The caller checks that it leads it."""
    topic = broker.partitions.topic(key)
    partition = None if topic is None else topic.partitions.get(index)
    if partition is None:
        raise _not_here(broker.cluster, key, index)
    return partition


def find_leader(
    broker: Broker, key: TopicKey, index: int, current_leader_epoch: int = -1
) -> Partition:
    """The partition, if this broker leads it in the epoch that the client knows; -1: in any."""
    partition = find_partition(broker, key, index)
    partition.check_leader(current_leader_epoch)
    return partition


def topic_by_id(cluster: ClusterView, topic_id: bytes) -> TopicView | None:
    """The topic by the 16 bytes of its id."""
    return cluster.topic_by_id(TopicId(UUID(bytes=topic_id)))


def current_leader(refusal: Exception) -> LeaderAndEpoch | None:
    """The leader to send the request to, if a refusal knows one."""
    if isinstance(refusal, NotLeader) and refusal.leader.leader_id != NO_LEADER:
        return refusal.leader
    return None


def endpoints_of(cluster: ClusterView, leaders: Iterable[LeaderAndEpoch]) -> list[NodeEndpoint]:
    """The addresses of these leaders, each once."""
    node_ids = {leader.leader_id for leader in leaders}
    if not node_ids:
        return []
    return [NodeEndpoint(*broker) for broker in cluster.brokers() if broker.node_id in node_ids]


def _not_here(cluster: ClusterView, key: TopicKey, index: int) -> Refused:
    if isinstance(key, str):
        topic = cluster.topic(key)
        if topic is None:
            return Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {key}")
    else:
        topic = topic_by_id(cluster, key)
        if topic is None:
            return Refused(ErrorCode.unknown_topic_id, "no topic has this id")
    if not 0 <= index < len(topic.partitions):
        return Refused(
            ErrorCode.unknown_topic_or_partition, f"topic {topic.name} has no partition {index}"
        )
    leadership = topic.partitions[index]
    return NotLeader(
        LeaderAndEpoch(leadership.leader, leadership.leader_epoch),
        f"this broker does not have {topic.name}-{index}; refresh the metadata",
    )
