"""Changes of in-sync sets are proposed as soon as they are possible, in idle partitions too."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.broker.partition import Partition
from penstock.broker.partitions import HostedTopic
from penstock.broker.replication import in_sync_changes
from penstock.broker.replication.in_sync_changes import InSyncChanges
from penstock.model import Millis, NodeId, Offset, TopicId
from penstock.protocol.messages.broker_lifecycle import AlterPartitionRequest
from tests.support.led_partition import lead, open_partition

FOLLOWER = NodeId(2)


class Controller:
    """Never responds; keeps the proposals that it received."""

    def __init__(self) -> None:
        self.proposals: list[list[int]] = []
        self.is_called = asyncio.Event()

    async def call(self, _message: object, request: AlterPartitionRequest) -> Any:
        members = request.topics[0].partitions[0].new_isr_with_epochs
        self.proposals.append([member.broker_id for member in members])
        self.is_called.set()
        await asyncio.Event().wait()


class Broker:
    """The follower as the metadata shows it."""

    is_fenced = True


class OneTopic:
    """A table of partitions with one topic."""

    def __init__(self, partition: Partition) -> None:
        topic = HostedTopic("names", TopicId(UUID(int=5)), partition.settings)
        topic.partitions[0] = partition
        self.topics = {"names": topic}

    def __iter__(self) -> Iterable[Partition]:
        return iter(self.topics["names"].partitions.values())


def test_a_follower_that_was_fenced_when_it_fetched_joins_an_idle_partition(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(in_sync_changes, "JOINS_CHECKED_S", 0.01)
    broker, controller = Broker(), Controller()
    partition = open_partition(tmp_path, is_eligible=lambda _replica, _epoch: not broker.is_fenced)
    lead(partition, 1, 1, replicas=2)

    async def scenario() -> None:
        changes = InSyncChanges(
            controller,  # type: ignore[arg-type]  # has the one method that is called
            None,  # type: ignore[arg-type]  # is not read for this
            OneTopic(partition),  # type: ignore[arg-type]  # has what a table of partitions has
            node_id=NodeId(1),
            clock=lambda: Millis(0),
            lag_max_ms=Millis(30_000),
        )
        changes.start(broker_epoch=3)
        changes.follow("names")
        partition.on_replica_fetch(FOLLOWER, Offset(0), broker_epoch=7)
        changes.on_replica_fetch(partition)
        await asyncio.sleep(0.1)
        assert controller.proposals == []

        broker.is_fenced = False  # and it does not fetch again
        await controller.is_called.wait()
        changes.close()

    asyncio.run(scenario())
    assert controller.proposals == [[1, 2]]
