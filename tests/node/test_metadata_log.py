"""The controller's log: bounded by what there is, not by what happened."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.broker import Endpoint
from penstock.config.resolve import ChangeKind, ConfigChange
from penstock.coordination.controller.commands import (
    AlterConfigs,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    ResourceChange,
)
from penstock.coordination.controller.events import ConfigScope
from penstock.coordination.controller.state import ClusterState
from penstock.model import NodeId
from penstock.node import run_broker
from penstock.node.run_broker import RunningBroker, open_folder
from penstock.node.settings import node_settings

CHANGES = 300


def picture(state: ClusterState) -> tuple[object, ...]:
    topics = {name: (topic.topic_id, topic.partitions) for name, topic in state.topics.items()}
    return state.cluster_id, topics, state.configs, state.end_producer_id


def make_history(running: RunningBroker) -> None:
    """Hundreds of changes of which little is left in the end."""
    cluster = running.cluster
    kept = NewTopic("kept", cluster.new_topic_id())
    cluster.submit(lambda caller: CreateTopics(caller, (kept,)))
    for number in range(CHANGES):
        name = f"passing-{number % 5}"
        topic = NewTopic(name, cluster.new_topic_id())
        cluster.submit(lambda caller, topic=topic: CreateTopics(caller, (topic,)))  # type: ignore[misc]  # bound now
        change = ConfigChange("retention.ms", ChangeKind.SET, str(number))
        resource = ResourceChange(ConfigScope.TOPIC, "kept", (change,))
        cluster.submit(lambda caller, r=resource: AlterConfigs(caller, (r,)))  # type: ignore[misc]  # bound now
        cluster.submit(lambda caller, name=name: DeleteTopics(caller, (name,)))  # type: ignore[misc]  # bound now
        running.metadata.log.sweep(run_broker.clock())


async def live(folder: Path, *, compact: bool) -> tuple[tuple[object, ...], int]:
    """A broker that does not serve, so that nobody else compacts meanwhile."""
    settings = node_settings(folder=folder, kafka_port=0)
    running = RunningBroker(settings, *open_folder(settings))
    running.cluster.start(Endpoint(NodeId(1), "127.0.0.1", 1), stopped_cleanly=True)
    if compact:
        make_history(running)
        rounds = 0
        while await running.upkeep.compact_one():
            rounds += 1
        assert rounds == running.upkeep.stats.compactions > 0
    result = picture(running.cluster.state), running.metadata.log.size_bytes
    await running.stop()
    return result


def test_a_long_history_is_compacted_and_replays_to_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_log = run_broker.METADATA_SETTINGS.log
    small = replace(metadata_log, segment_bytes=16 << 10, flush_messages=None)
    monkeypatch.setattr(
        run_broker, "METADATA_SETTINGS", run_broker.METADATA_SETTINGS._replace(log=small)
    )
    before, size_before = asyncio.run(live(tmp_path, compact=True))
    after, size_after = asyncio.run(live(tmp_path, compact=False))
    assert after == before
    assert size_after == size_before < CHANGES * 100
