"""The rules of brokers, leaders and replicas."""

from penstock.coordination.controller.commands import (
    ElectLeaders,
    ReassignPartitions,
    RegisterBroker,
)
from penstock.coordination.controller.decide_topics import find_partition
from penstock.coordination.controller.each import Accepted, decide_each
from penstock.coordination.controller.events import (
    BrokerSet,
    ClusterIdSet,
    Event,
    FeatureSet,
    PartitionSet,
    PartitionState,
    TopicSet,
)
from penstock.coordination.controller.state import ClusterState
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply, Step
from penstock.model import LeaderEpoch, NodeId


def decide_register_broker(
    state: ClusterState, command: RegisterBroker, features: dict[str, int]
) -> Outcome[Event]:
    """Register a broker. The first one also gives the cluster its id and its features."""
    events: list[Event] = []
    if not state.cluster_id:
        events.append(ClusterIdSet(command.new_cluster_id))
    events += [
        FeatureSet(name, level)
        for name, level in features.items()
        if state.features.get(name) != level
    ]
    broker = BrokerSet(command.node_id, command.host, command.port, command.rack)
    if state.brokers.get(command.node_id) != broker:
        events.append(broker)
    topics = [] if command.stopped_cleanly else _new_epochs(state, command.node_id)
    return Outcome(
        events=(*events, *topics),
        replies=(Reply(command.caller, None),),
        story=tuple(
            Step(topic.name, "new leader epochs: broker {} stopped uncleanly", (command.node_id,))
            for topic in topics
        ),
    )


def _new_epochs(state: ClusterState, node_id: NodeId) -> list[TopicSet]:
    """A leader that may have lost its tail leads in a new epoch, so that clients can find out."""
    return [
        TopicSet(
            topic.name,
            topic.topic_id,
            tuple(
                _led_by(partition, node_id) if partition.leader == node_id else partition
                for partition in topic.partitions
            ),
        )
        for topic in state.topics.values()
        if any(partition.leader == node_id for partition in topic.partitions)
    ]


def _led_by(partition: PartitionState, leader: NodeId) -> PartitionState:
    return partition._replace(
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
    )


def decide_elect_leaders(state: ClusterState, command: ElectLeaders) -> Outcome[Event]:
    """Let the preferred replica lead where it does not."""

    def elect(item: tuple[str, int]) -> Accepted:
        topic, index = item
        topic_id, partition = find_partition(state, topic, index)
        leader = _elected(partition, unclean=command.unclean)
        event = PartitionSet(topic, topic_id, index, _led_by(partition, leader))
        step = Step(topic, "partition {}: broker {} elected as leader", (index, leader))
        return Accepted((event,), story=(step,))

    return decide_each(command.caller, command.partitions, elect)


def _elected(partition: PartitionState, *, unclean: bool) -> NodeId:
    preferred = partition.replicas[0]
    if unclean or partition.leader == preferred:
        # a partition without a leader gets one without a request
        raise Refused(ErrorCode.election_not_needed, "The partition has a leader it can keep.")
    if preferred not in partition.isr:
        raise Refused(
            ErrorCode.preferred_leader_not_available, f"Broker {preferred} is not in sync."
        )
    return preferred


def decide_reassign(state: ClusterState, command: ReassignPartitions) -> Outcome[Event]:
    """Give partitions other replicas. Another order of the same changes the preferred leader."""

    def reassign(item: tuple[str, int, tuple[int, ...] | None]) -> Accepted:
        topic, index, replicas = item
        topic_id, partition = find_partition(state, topic, index)
        after = _reassigned(state, partition, replicas)
        if after == partition:
            return Accepted()
        step = Step(topic, "partition {}: replicas are now {}", (index, after.replicas))
        return Accepted((PartitionSet(topic, topic_id, index, after),), story=(step,))

    return decide_each(command.caller, command.partitions, reassign)


def _reassigned(
    state: ClusterState, partition: PartitionState, replicas: tuple[int, ...] | None
) -> PartitionState:
    if replicas is None:
        raise Refused(
            ErrorCode.no_reassignment_in_progress,
            "No reassignment of this partition is in progress.",
        )
    if not replicas or len(set(replicas)) != len(replicas):
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            "A partition has at least one replica, and each broker at most once.",
        )
    unknown = [node for node in replicas if node not in state.brokers]
    if unknown:
        raise Refused(
            ErrorCode.invalid_replica_assignment, f"No broker {unknown[0]} is registered."
        )
    if set(replicas) != set(partition.replicas):
        raise Refused(ErrorCode.invalid_replica_assignment, "Replicas cannot move between brokers.")
    ordered = tuple(NodeId(node) for node in replicas)
    if ordered == partition.replicas:
        return partition
    return partition._replace(replicas=ordered, partition_epoch=partition.partition_epoch + 1)
