"""Partitions follow the active brokers: leaders and in-sync sets after brokers came or went.

That may concern every partition of the cluster. A batch changes as many as the event loop has time
for; the topics that are left are noted, and follow in the next ticks. Until then their partitions
name a broker that is not active, as they do until it is known to be gone: that costs time only.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from penstock.coordination.controller.elections import (
    ElectionRules,
    IsActive,
    with_leader,
    without_replica,
)
from penstock.coordination.controller.events import (
    BrokerSet,
    PartitionState,
    TopicEvent,
    TopicsLeft,
)
from penstock.coordination.controller.partition_changes import (
    Changed,
    changed_partitions,
    events_for,
)
from penstock.coordination.controller.settings import ControllerSettings
from penstock.coordination.controller.state import ClusterState
from penstock.model import NodeId

CHANGED_MAX: Final = 10_000  # partitions of one batch
EXAMINED_MAX: Final = 100_000
TOPICS_PER_STEP: Final = 1_000


class Followed(NamedTuple):
    """The events of one batch, and what is left to do."""

    events: list[TopicEvent]
    left: TopicsLeft


def follow_active(
    state: ClusterState,
    settings: ControllerSettings,
    brokers: Sequence[BrokerSet] = (),
    names: Iterable[str] | None = None,
) -> Followed:
    """Partitions of these topics, or of all, as they follow from the brokers' new states."""
    after = {broker.node_id: broker for broker in brokers}

    def is_active(node_id: NodeId) -> bool:
        broker = after.get(node_id)
        return state.is_active(node_id) if broker is None else broker.is_active

    def among_active(row: PartitionState, rules: ElectionRules) -> PartitionState:
        return _among_active(row, is_active, rules)

    left = iter(tuple(state.topics if names is None else names))
    changes: list[Changed] = []
    examined = 0
    while len(changes) < CHANGED_MAX and examined < EXAMINED_MAX:
        chunk = list(islice(left, TOPICS_PER_STEP))
        if not chunk:
            break
        topics = [state.topics[name] for name in chunk if name in state.topics]  # or deleted since
        changes += changed_partitions(state, settings, among_active, topics)
        examined += sum(len(topic.partitions) for topic in topics)
    return Followed(events_for(changes), TopicsLeft(tuple(left)))


def _among_active(row: PartitionState, is_active: IsActive, rules: ElectionRules) -> PartitionState:
    for node_id in row.isr:
        if not is_active(node_id):
            row = without_replica(row, node_id, is_active, rules)
    return with_leader(row, is_active, rules)
