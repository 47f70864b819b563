"""How each event changes the controller's state. Nothing here can fail; everything is idempotent.

An event may come without those before it: compaction keeps only the last record of each key.
"""

from typing import TypeVar, assert_never

from penstock.coordination.controller.events import (
    BrokerRemoved,
    BrokerSet,
    ClusterIdSet,
    ConfigSet,
    Event,
    FeatureSet,
    HeartbeatReceived,
    Note,
    PartitionRemoved,
    PartitionSet,
    ProducerIdsAllocated,
    QuotaSet,
    SessionsStarted,
    StopAwaited,
    TopicDeleted,
    TopicEvent,
    TopicSet,
    TopicsLeft,
    UnfenceAwaited,
)
from penstock.coordination.controller.state import (
    DELETED_TOPICS_MAX,
    BrokerSession,
    ClusterState,
    TopicState,
    folded,
)

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def apply(state: ClusterState, event: Event) -> None:
    """Change the state by one event."""
    match event:
        case TopicSet() | TopicDeleted() | PartitionSet() | PartitionRemoved():
            _apply_to_topics(state, event)
        case ConfigSet():
            _upsert(state.configs, (event.scope, event.name), event.overrides)
        case QuotaSet():
            _upsert(state.quotas, event.entity, event.limits)
        case BrokerSet() | BrokerRemoved():
            _apply_to_brokers(state, event)
        case (
            HeartbeatReceived()
            | SessionsStarted()
            | StopAwaited()
            | UnfenceAwaited()
            | TopicsLeft()
        ):
            _apply_note(state, event)
        case FeatureSet():
            state.features[event.name] = event.level
        case ProducerIdsAllocated():
            state.end_producer_id = event.end_producer_id
        case ClusterIdSet():
            state.cluster_id = event.cluster_id
        case _:
            assert_never(event)


def _apply_to_brokers(state: ClusterState, event: BrokerSet | BrokerRemoved) -> None:
    state.unfences_awaited.pop(event.node_id, None)
    if isinstance(event, BrokerSet):
        state.brokers[event.node_id] = event
    else:
        state.brokers.pop(event.node_id, None)
        state.sessions.pop(event.node_id, None)


def _apply_note(state: ClusterState, note: Note) -> None:
    match note:
        case HeartbeatReceived():
            state.sessions[note.node_id] = BrokerSession(note.at, note.metadata_offset)
        case SessionsStarted():
            state.sessions = {node_id: BrokerSession(note.at) for node_id in state.brokers}
        case StopAwaited():
            state.stops_awaited[note.node_id] = note.end_offset
        case UnfenceAwaited():
            state.unfences_awaited[note.node_id] = note.end_offset
        case TopicsLeft():
            state.topics_left = note.names
        case _:
            assert_never(note)


def _apply_to_topics(state: ClusterState, event: TopicEvent) -> None:
    match event:
        case TopicSet():
            _apply_topic_set(state, event)
        case TopicDeleted():
            _remove_topic(state, event.name)
            state.deleted_topics[event.name] = None
            if len(state.deleted_topics) > DELETED_TOPICS_MAX:
                del state.deleted_topics[next(iter(state.deleted_topics))]
        case PartitionSet():
            _apply_partition_set(state, event)
        case PartitionRemoved():
            return  # the topic's own record removed it
        case _:
            assert_never(event)


def _apply_topic_set(state: ClusterState, event: TopicSet) -> None:
    state.deleted_topics.pop(event.name, None)
    known = state.topics.get(event.name)
    if known is not None and known.topic_id == event.topic_id:
        state.topic_to_change(known).partitions = list(event.partitions)
        return
    if known is not None:  # deleted and created again; compaction removed the deletion
        _remove_topic(state, event.name)
    topic = TopicState(*event)
    state.topics[topic.name] = state.topics_by_id[topic.topic_id] = topic
    state.own_topics.add(topic.name)
    alike = state.topics_by_folded_name.get(folded(topic.name), frozenset())
    state.topics_by_folded_name[folded(topic.name)] = alike | {topic.name}


def _remove_topic(state: ClusterState, name: str) -> None:
    topic = state.topics.pop(name, None)
    if topic is None:
        return
    del state.topics_by_id[topic.topic_id]
    state.own_topics.discard(name)
    alike = state.topics_by_folded_name.pop(folded(name)) - {name}
    if alike:
        state.topics_by_folded_name[folded(name)] = alike


def _apply_partition_set(state: ClusterState, event: PartitionSet) -> None:
    """An older row is skipped: a `TopicSet` that was written later includes it."""
    topic = state.topics_by_id.get(event.topic_id)
    if topic is None or event.partition_index >= len(topic.partitions):
        return
    if event.partition.partition_epoch >= topic.partitions[event.partition_index].partition_epoch:
        state.topic_to_change(topic).partitions[event.partition_index] = event.partition


def _upsert(table: dict[KeyT, dict[str, ValueT]], key: KeyT, values: dict[str, ValueT]) -> None:
    if values:
        table[key] = values
    else:
        table.pop(key, None)
