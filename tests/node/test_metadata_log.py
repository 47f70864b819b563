"""The controller's log: bounded by what exists, not by what happened."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from penstock.broker import metadata_follower
from penstock.broker.handler import result_of
from penstock.broker.new_topics import new_topic_id
from penstock.broker.quorum.snapshot_files import snapshot_path, write_snapshot
from penstock.config.resolve import ChangeKind, ConfigChange
from penstock.consensus.raft import OffsetAndEpoch, VoterSet
from penstock.coordination.controller.commands import (
    AlterConfigs,
    CreateTopics,
    DeleteTopics,
    NewTopic,
    ResourceChange,
)
from penstock.coordination.controller.events import ConfigScope
from penstock.coordination.controller.state import ClusterState
from penstock.log import LogDirectoryError
from penstock.model import LeaderEpoch, Millis, Offset
from penstock.node.data_folder import open_folder
from penstock.node.metadata_folder import open_metadata
from penstock.node.run_broker import RunningBroker
from penstock.node.settings import node_settings

CHANGES = 200
SNAPSHOT_BYTES = 4 << 10


def summary(state: ClusterState) -> tuple[object, ...]:
    topics = {name: (topic.topic_id, len(topic.partitions)) for name, topic in state.topics.items()}
    return state.cluster_id, topics, state.configs


async def make_history(running: RunningBroker) -> None:
    """Hundreds of changes of which little is left in the end."""
    submit = running.controller.submit
    kept = NewTopic("kept", new_topic_id())
    await result_of(submit(lambda caller: CreateTopics(caller, (kept,))))
    for number in range(CHANGES):
        topic = NewTopic(f"passing-{number % 5}", new_topic_id())
        change = ConfigChange("retention.ms", ChangeKind.SET, str(number))
        resource = ResourceChange(ConfigScope.TOPIC, "kept", (change,))
        submit(partial(CreateTopics, topics=(topic,)))
        submit(partial(AlterConfigs, resources=(resource,)))
        await result_of(submit(partial(DeleteTopics, topics=(topic.name,))))


async def run(folder: Path, *, with_history: bool) -> tuple[tuple[object, ...], int]:
    settings = node_settings(folder=folder, kafka_port=0)
    running = RunningBroker(settings, *open_folder(settings))
    await running.start()
    if with_history:
        await make_history(running)
    await running.follower.idle()
    log = running.metadata
    result = summary(running.image.state), log.end_offset - log.start_offset
    await running.stop()
    return result


def test_a_long_history_is_replaced_by_snapshots_and_replays_to_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_follower, "SNAPSHOT_BYTES", SNAPSHOT_BYTES)
    before, kept_records = asyncio.run(run(tmp_path, with_history=True))
    assert kept_records < 3 * CHANGES  # one record at least for each change
    after, _ = asyncio.run(run(tmp_path, with_history=False))
    assert after == before


def test_a_metadata_log_without_the_snapshot_it_continues_is_not_opened(tmp_path: Path) -> None:
    folder, _ = open_folder(node_settings(folder=tmp_path))
    metadata = open_metadata(folder, Millis(0))
    snapshot = OffsetAndEpoch(Offset(5), LeaderEpoch(1))
    write_snapshot(metadata.folder, snapshot, VoterSet(()), [], Millis(0))
    folder.close()

    folder, _ = open_folder(node_settings(folder=tmp_path))
    assert open_metadata(folder, Millis(0)).start_offset == snapshot.offset
    folder.close()

    snapshot_path(metadata.folder, snapshot).unlink()
    folder, _ = open_folder(node_settings(folder=tmp_path))
    with pytest.raises(LogDirectoryError, match="starts at offset 5 and has no snapshot"):
        open_metadata(folder, Millis(0))
    folder.close()
