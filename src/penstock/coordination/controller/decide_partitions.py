"""The rules of leaders and replicas: in-sync sets, elections on request, other replicas."""

from penstock.coordination.controller.commands import (
    AlterPartitions,
    ElectLeaders,
    IsrChange,
    ReassignPartitions,
    ReplicaCondition,
    ReplicaReport,
    ReportReplicas,
)
from penstock.coordination.controller.decide_topics import find_partition
from penstock.coordination.controller.each import Accepted, decide_each
from penstock.coordination.controller.elections import (
    ElectionRules,
    elected_uncleanly,
    led_by,
    with_isr,
    with_log,
    without_log,
    without_records,
)
from penstock.coordination.controller.events import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    Event,
    PartitionSet,
    PartitionState,
)
from penstock.coordination.controller.partition_changes import TopicRules
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState, TopicState, shared_row
from penstock.errors import ErrorCode, Refused
from penstock.machine import Outcome, Step
from penstock.model import NodeId


def decide_alter_partitions(
    state: ClusterState, command: AlterPartitions, settings: ControllerSettings
) -> Outcome[Event]:
    """Leaders change their in-sync sets. Each result is the partition as it is now."""
    _check_epoch(state, command.node_id, command.epoch)
    rules = TopicRules(state, settings)

    def alter(change: IsrChange) -> Accepted:
        topic, row = _find_by_id(state, change)
        _check_change(state, command.node_id, change, row)
        isr = [node for node, _ in change.isr]
        after = with_isr(row, isr, rules.of(topic.name), is_recovering=change.is_recovering)
        if after is row:
            return Accepted(result=row)
        event = PartitionSet(topic.name, topic.topic_id, change.partition_index, shared_row(after))
        step = Step(topic.name, "partition {}: in sync are {}", (change.partition_index, after.isr))
        return Accepted((event,), after, (step,))

    return decide_each(command.caller, command.changes, alter)


def _check_epoch(state: ClusterState, node_id: NodeId, epoch: int) -> None:
    broker = state.brokers.get(node_id)
    if broker is None or broker.epoch != epoch:
        raise Refused(
            ErrorCode.stale_broker_epoch,
            f"Broker {node_id} is not registered with epoch {epoch}.",
        )


def _find_by_id(
    state: ClusterState, change: IsrChange | ReplicaReport
) -> tuple[TopicState, PartitionState]:
    topic = state.topics_by_id.get(change.topic_id)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_id, "No topic has this id.")
    if not 0 <= change.partition_index < len(topic.partitions):
        raise Refused(
            ErrorCode.unknown_topic_or_partition,
            f"There is no partition {topic.name}-{change.partition_index}.",
        )
    return topic, topic.partitions[change.partition_index]


def _check_change(
    state: ClusterState, sender: NodeId, change: IsrChange, row: PartitionState
) -> None:
    """In the order of Apache Kafka's controller, on which its leaders depend."""
    if change.leader_epoch > row.leader_epoch or change.partition_epoch > row.partition_epoch:
        raise Refused(ErrorCode.not_controller, "The leader knows later epochs: not active here.")
    if change.leader_epoch < row.leader_epoch:
        raise Refused(ErrorCode.fenced_leader_epoch, f"The leader epoch is {row.leader_epoch}.")
    if row.leader != sender:
        raise Refused(ErrorCode.invalid_request, f"Broker {row.leader} leads it, not {sender}.")
    if change.partition_epoch < row.partition_epoch:
        raise Refused(
            ErrorCode.invalid_update_version, f"The partition epoch is {row.partition_epoch}."
        )
    isr = [node for node, _ in change.isr]
    if len(set(isr)) != len(isr) or not set(isr) <= set(row.replicas) or sender not in isr:
        raise Refused(
            ErrorCode.invalid_request,
            f"{isr} is not a set of replicas {list(row.replicas)} with the leader.",
        )
    for node, epoch in change.isr:
        _check_member(state, node, epoch)


def _check_member(state: ClusterState, node: NodeId, epoch: int) -> None:
    if not state.is_active(node):
        raise Refused(ErrorCode.ineligible_replica, f"Broker {node} is fenced or stops.")
    if epoch not in (NO_BROKER_EPOCH, state.brokers[node].epoch):
        raise Refused(
            ErrorCode.ineligible_replica,
            f"Broker {node} fetched with epoch {epoch} and has {state.brokers[node].epoch} now.",
        )


def decide_report_replicas(
    state: ClusterState, command: ReportReplicas, settings: ControllerSettings
) -> Outcome[Event]:
    """A broker reports the condition of its replicas. Each result is the partition as it is now."""
    node_id = command.node_id
    _check_epoch(state, node_id, command.epoch)
    rules = TopicRules(state, settings)

    def take(report: ReplicaReport) -> Accepted:
        topic, row = _find_by_id(state, report)
        if node_id not in row.replicas:
            raise Refused(ErrorCode.invalid_request, f"Broker {node_id} has no replica of it.")
        after = _reported(state, node_id, row, report.condition, rules.of(topic.name))
        if after is None:
            raise Refused(
                ErrorCode.eligible_leaders_not_available,
                f"No other replica has all that is committed: broker {node_id} is needed.",
            )
        if after is row:
            return Accepted(result=row)
        index = report.partition_index
        event = PartitionSet(topic.name, topic.topic_id, index, shared_row(after))
        what = f"partition {{}}: the replica of broker {{}} is {report.condition.value}"
        return Accepted((event,), after, (Step(topic.name, what, (index, node_id)),))

    return decide_each(command.caller, command.reports, take)


def _reported(
    state: ClusterState,
    node_id: NodeId,
    row: PartitionState,
    condition: ReplicaCondition,
    rules: ElectionRules,
) -> PartitionState | None:
    """The row after a report; None: the replica cannot be spared."""
    match condition:
        case ReplicaCondition.OFFLINE:
            return without_log(row, node_id, state.is_active, rules)
        case ReplicaCondition.EMPTY:
            return without_records(row, node_id, state.is_active, rules)
        case _:
            is_complete = condition is ReplicaCondition.COMPLETE
            return with_log(row, node_id, state.is_active, rules, is_complete=is_complete)


def decide_elect_leaders(state: ClusterState, command: ElectLeaders) -> Outcome[Event]:
    """Let the preferred replica lead where it does not; or any replica where none leads."""

    def elect(item: tuple[str, int]) -> Accepted:
        topic, index = item
        topic_id, row = find_partition(state, topic, index)
        after = _elected_uncleanly(state, row) if command.unclean else _preferred(state, row)
        event = PartitionSet(topic, topic_id, index, shared_row(after))
        how = " uncleanly" if command.unclean else ""
        step = Step(topic, f"partition {{}}: broker {{}} elected{how}", (index, after.leader))
        return Accepted((event,), story=(step,))

    return decide_each(command.caller, command.partitions, elect)


def _preferred(state: ClusterState, row: PartitionState) -> PartitionState:
    preferred = row.replicas[0]
    if row.leader == preferred:
        raise Refused(ErrorCode.election_not_needed, "The preferred replica leads already.")
    if preferred not in row.isr or not state.is_active(preferred):
        raise Refused(
            ErrorCode.preferred_leader_not_available, f"Broker {preferred} is not in sync."
        )
    return led_by(row, preferred)


def _elected_uncleanly(state: ClusterState, row: PartitionState) -> PartitionState:
    if row.leader != NO_LEADER:
        raise Refused(ErrorCode.election_not_needed, "The partition has a leader it can keep.")
    active = [node for node in row.replicas if state.is_active(node) and node not in row.offline]
    if not active:
        raise Refused(
            ErrorCode.eligible_leaders_not_available, "No replica of the partition is alive."
        )
    return elected_uncleanly(row, active)


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
