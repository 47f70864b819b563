"""Appends for tests of what is below the broker."""

from penstock.log.append_plan import Appended, read_replicated
from penstock.log.partition_log import PartitionLog
from penstock.log.producer_state import Origin
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.batch import read_header
from penstock.protocol.varint import Buffer, WritableBuffer


def append_batch(
    log: PartitionLog,
    batch: WritableBuffer,
    *,
    leader_epoch: LeaderEpoch = LeaderEpoch(0),
    now: Millis = Millis(0),
    origin: Origin = "client",
) -> Appended:
    """The leader's append of one batch, with its header read as the broker would have read it."""
    return log.append(batch, read_header(batch), leader_epoch=leader_epoch, now=now, origin=origin)


def replicate(log: PartitionLog, batches: Buffer, *, leader_epoch: int = 100) -> None:
    """The follower's append of what a leader sent."""
    headers = read_replicated(batches)
    log.append_replicated(batches, headers, leader_epoch=LeaderEpoch(leader_epoch), now=Millis(0))
