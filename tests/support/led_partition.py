"""One partition that broker 1 leads, over a real log."""

from pathlib import Path
from typing import Final
from uuid import UUID

from penstock.broker.leadership import Leadership
from penstock.broker.partition import Partition
from penstock.broker.settings import topic_settings
from penstock.config.resolve import NO_LAYERS
from penstock.consensus.replica.leader import IsEligible
from penstock.log import OpenFiles, PartitionLog
from penstock.model import LeaderEpoch, Millis, NodeId, TopicId

NODE: Final = NodeId(1)


def open_partition(
    folder: Path, *, is_eligible: IsEligible = lambda _replica, _epoch: True
) -> Partition:
    """A partition with one replica, in leader epoch 0."""
    settings = topic_settings({}, NO_LAYERS)
    log = PartitionLog.open(
        folder / "names-0", settings.log, OpenFiles(16), now=Millis(0), clean=False
    )
    return Partition(
        log,
        topic_id=TopicId(UUID(int=5)),
        node_id=NODE,
        leadership=Leadership(NODE, LeaderEpoch(0), (NODE,), (NODE,)),
        settings=settings,
        is_eligible=is_eligible,
    )


def lead(partition: Partition, epoch: int, *isr: int, replicas: int = 1) -> None:
    """Broker 1 leads in this epoch; it alone is in sync unless `isr` says otherwise."""
    all_replicas = tuple(NodeId(number) for number in range(1, replicas + 1))
    in_sync = tuple(NodeId(number) for number in isr or (1,))
    partition.lead(Leadership(NODE, LeaderEpoch(epoch), all_replicas, in_sync))
