"""Appends for tests of what is below the broker."""

from penstock.log.partition import PartitionLog
from penstock.log.placing import Appended
from penstock.log.producers import Origin
from penstock.model import LeaderEpoch, Millis
from penstock.protocol.batch import read_header
from penstock.protocol.primitives import WritableBuffer


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
