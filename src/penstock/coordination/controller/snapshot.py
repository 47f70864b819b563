"""A state as events: what a snapshot of the metadata holds. Replayed, they give the same state."""

from collections.abc import Iterator

from penstock.coordination.controller.events import (
    ClusterIdSet,
    ConfigSet,
    Event,
    FeatureSet,
    ProducerIdsAllocated,
    QuotaSet,
    TopicDeleted,
    TopicSet,
)
from penstock.coordination.controller.state import ClusterState


def snapshot_events(state: ClusterState) -> Iterator[Event]:
    """Everything durable in the state, each thing once."""
    if state.cluster_id:
        yield ClusterIdSet(state.cluster_id)
    yield ProducerIdsAllocated(state.end_producer_id)
    for name, level in state.features.items():
        yield FeatureSet(name, level)
    yield from state.brokers.values()
    for (scope, name), overrides in state.configs.items():
        yield ConfigSet(scope, name, overrides)
    for entity, limits in state.quotas.items():
        yield QuotaSet(entity, limits)
    for name in state.deleted_topics:
        yield TopicDeleted(name)
    for topic in state.topics.values():
        yield TopicSet(topic.name, topic.topic_id, tuple(topic.partitions))
