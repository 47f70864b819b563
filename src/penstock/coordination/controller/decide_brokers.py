"""The rules of brokers and leaders: who registers, who leads, who replicates."""

from penstock.coordination.controller.commands import (
    ElectLeaders,
    ReassignPartitions,
    RegisterBroker,
)
from penstock.coordination.controller.decide_topics import partition_of
from penstock.coordination.controller.state import (
    BrokerSet,
    Cluster,
    ClusterNamed,
    Event,
    FeatureSet,
    PartitionSet,
    PartitionState,
    TopicSet,
)
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Reply
from penstock.model import LeaderEpoch, NodeId


def decide_register_broker(
    state: Cluster, command: RegisterBroker, features: dict[str, int]
) -> Outcome[Event]:
    """A broker is there. Its first start also gives the cluster its id and its features."""
    events: list[Event] = []
    if not state.cluster_id:
        events.append(ClusterNamed(command.fresh_cluster_id))
    events += [
        FeatureSet(name, level)
        for name, level in features.items()
        if state.features.get(name) != level
    ]
    broker = BrokerSet(command.node_id, command.host, command.port, command.rack)
    if state.brokers.get(command.node_id) != broker:
        events.append(broker)
    if not command.stopped_cleanly:
        events += _new_epochs(state, command.node_id)
    return Outcome(events=tuple(events), replies=(Reply(command.caller, None),))


def _new_epochs(state: Cluster, node_id: NodeId) -> list[Event]:
    """A leader that may have lost its tail leads anew, so that clients can find out."""
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


def decide_elect_leaders(state: Cluster, command: ElectLeaders) -> Outcome[Event]:
    """Let the preferred replica lead where it does not."""
    events: list[Event] = []
    answers: list[Refused | None] = []
    for topic, index in command.partitions:
        try:
            topic_id, partition = partition_of(state, topic, index)
            leader = _elected(partition, unclean=command.unclean)
        except Refused as refusal:
            answers.append(refusal)
            continue
        answers.append(None)
        events.append(PartitionSet(topic, topic_id, index, _led_by(partition, leader)))
    return Outcome(events=tuple(events), replies=(Reply(command.caller, answers),))


def _elected(partition: PartitionState, *, unclean: bool) -> NodeId:
    preferred = partition.replicas[0]
    if unclean or partition.leader == preferred:
        # a partition without any leader would be the controller's own business at once
        raise Refused(ErrorCode.election_not_needed, "The partition has a leader it can keep.")
    if preferred not in partition.isr:
        raise Refused(
            ErrorCode.preferred_leader_not_available, f"Broker {preferred} is not in sync."
        )
    return preferred


def decide_reassign(state: Cluster, command: ReassignPartitions) -> Outcome[Event]:
    """Give partitions other replicas. Another order of the same changes the preferred leader."""
    events: list[Event] = []
    answers: list[Refused | None] = []
    for topic, index, replicas in command.partitions:
        try:
            topic_id, partition = partition_of(state, topic, index)
            after = _reassigned(state, partition, replicas)
        except Refused as refusal:
            answers.append(refusal)
            continue
        answers.append(None)
        if after != partition:
            events.append(PartitionSet(topic, topic_id, index, after))
    return Outcome(events=tuple(events), replies=(Reply(command.caller, answers),))


def _reassigned(
    state: Cluster, partition: PartitionState, replicas: tuple[int, ...] | None
) -> PartitionState:
    if replicas is None:
        raise Refused(
            ErrorCode.no_reassignment_in_progress, "No move of this partition is under way."
        )
    if not replicas or len(set(replicas)) != len(replicas):
        raise Refused(
            ErrorCode.invalid_replica_assignment, "A partition has at least one replica, each once."
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
