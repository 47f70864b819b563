"""The controller's invariants, for tests and simulations."""

from penstock.coordination.controller.events import NO_LEADER, PartitionState
from penstock.coordination.controller.state import DELETED_TOPICS_MAX, ClusterState, folded


def validate(state: ClusterState) -> None:
    """Assert what must be true between two events of one batch and after each."""
    assert {topic.topic_id: topic for topic in state.topics.values()} == state.topics_by_id
    alike: dict[str, set[str]] = {}
    left = set(state.topics_left)
    for name, topic in state.topics.items():
        assert topic.name == name
        assert topic.partitions, f"{name} has no partition"
        alike.setdefault(folded(name), set()).add(name)
        for partition in topic.partitions:
            _validate_partition(partition)
            if name not in left and len(partition.replicas) > 1:
                _validate_in_sync(state, partition)
    assert alike == state.topics_by_folded_name
    assert all(len(names) == 1 for names in alike.values()), "two topics with one metric name"
    assert not state.topics.keys() & state.deleted_topics.keys()
    assert len(state.deleted_topics) <= DELETED_TOPICS_MAX
    assert all(state.configs.values()), "a resource without overrides has no entry"
    assert all(state.quotas.values()), "an entity without limits has no entry"
    assert all(node_id == broker.node_id for node_id, broker in state.brokers.items())
    assert state.end_producer_id >= 0


def _validate_partition(partition: PartitionState) -> None:
    replicas, isr = partition.replicas, partition.isr
    assert replicas, "a partition has at least one replica"
    assert len(set(replicas)) == len(replicas), "each replica is on another broker"
    assert len(set(isr)) == len(isr)
    assert set(isr) <= set(replicas), "only replicas are in sync"
    assert partition.leader == NO_LEADER or partition.leader in isr
    assert not set(isr) & set(partition.elr), "in sync or eligible, not both"
    assert not set(partition.elr) & set(partition.last_known_elr)
    assert set(partition.offline) <= set(replicas)
    assert not set(isr) & set(partition.offline), "a replica without a log is not in sync"
    assert partition.leader_epoch >= 0
    assert partition.partition_epoch >= 0


def _validate_in_sync(state: ClusterState, partition: PartitionState) -> None:
    in_sync = [state.brokers[node] for node in partition.isr if node in state.brokers]
    assert not any(broker.is_fenced for broker in in_sync), "a fenced broker is not in sync"
