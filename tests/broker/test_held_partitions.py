"""A broker's partitions follow the metadata, and only those that changed are touched."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.held_partitions import HeldPartitions
from penstock.broker.leadership import Leadership
from penstock.broker.metadata_image import KnownTopic
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.broker.settings import topic_settings
from penstock.config.resolve import NO_LAYERS
from penstock.log import LogDirectory, OpenFiles
from penstock.log.log_dir import PartitionLogStore
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition

ONE, TWO = NodeId(1), NodeId(2)
ROW = Leadership(ONE, LeaderEpoch(0), (ONE, TWO), (ONE, TWO))


class Cluster:
    """One topic, as the metadata shows it."""

    def __init__(self, *rows: Leadership) -> None:
        self.topic = KnownTopic("t", TopicId(UUID(int=1)), rows)

    def change(self, index: int, row: Leadership) -> None:
        rows = list(self.topic.partitions)
        rows[index] = row
        self.topic = self.topic._replace(partitions=tuple(rows))


@pytest.fixture
def held_by(tmp_path: Path) -> Callable[[Cluster], tuple[HeldPartitions, Partitions]]:
    def hold(cluster: Cluster) -> tuple[HeldPartitions, Partitions]:
        folder = LogDirectory.open(tmp_path, OpenFiles(16))
        partitions = Partitions(ONE, PartitionLogStore(folder, lambda: Millis(0)))
        settings = topic_settings({}, NO_LAYERS)
        held = HeldPartitions(partitions, lambda _: cluster.topic, lambda _: settings)
        return held, partitions

    return hold


Hold = Callable[[Cluster], tuple[HeldPartitions, Partitions]]


def test_a_change_of_one_partition_touches_no_other(
    held_by: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(*[ROW] * 10)
    held, partitions = held_by(cluster)
    assert sum(1 for _ in held.follow("t")) == 11
    led: list[TopicPartition] = []
    lead = Partition.lead

    def note(partition: Partition, leadership: Leadership) -> None:
        led.append(partition.topic_partition)
        lead(partition, leadership)

    monkeypatch.setattr(Partition, "lead", note)
    cluster.change(3, ROW._replace(isr=(ONE,), partition_epoch=1))
    assert sum(1 for _ in held.follow("t")) == 2
    assert led == [TopicPartition("t", 3)]
    changed = partitions.find("t", 3)
    assert changed is not None
    assert changed.leadership.isr == (ONE,)


def test_a_damaged_log_is_kept_under_another_name(held_by: Hold, tmp_path: Path) -> None:
    cluster = Cluster(ROW._replace(leader=TWO))
    held, partitions = held_by(cluster)
    list(held.follow("t"))
    before = partitions.find("t", 0)
    changed: list[str] = []
    held.listeners.append(changed.append)
    held.start_again(TopicPartition("t", 0))
    after = partitions.find("t", 0)
    assert after is not None
    assert after is not before
    assert changed == ["t"]
    assert len(list(tmp_path.glob("t-0.*-damaged"))) == 1
    assert (tmp_path / "t-0").is_dir()
