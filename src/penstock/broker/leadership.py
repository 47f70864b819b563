"""Who leads a partition and who has it, as the controller decided; and the refusal of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.consensus.replica.leader import ReplicaSettings
from penstock.errors import ErrorCode, Refused
from penstock.model import LeaderEpoch, Millis, NodeId

if TYPE_CHECKING:
    from penstock.protocol.fields import LeaderAndEpoch

REPLICA_SETTINGS: Final = ReplicaSettings(lag_max_ms=Millis(30_000))


class Leadership(NamedTuple):
    """Leader and replicas of a partition, as the controller decided."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    partition_epoch: int = 0
    elr: tuple[NodeId, ...] = ()  # complete, and not in sync
    last_known_elr: tuple[NodeId, ...] = ()
    is_recovering: bool = False
    offline: tuple[NodeId, ...] = ()  # replicas whose log cannot be used


class NotLeader(Refused):
    """Another broker leads the partition, as far as this one knows: see `leader`."""

    def __init__(self, leader: LeaderAndEpoch, message: str) -> None:
        super().__init__(ErrorCode.not_leader_or_follower, message)
        self.leader = leader


def check_epoch(leader_epoch: LeaderEpoch, requested: int) -> None:
    """Refuse a request for another leader epoch than the one that this broker knows; -1: any."""
    if requested < 0 or requested == leader_epoch:
        return
    if requested < leader_epoch:
        raise Refused(
            ErrorCode.fenced_leader_epoch,
            f"the leader epoch is {leader_epoch}; refresh the metadata",
        )
    raise Refused(
        ErrorCode.unknown_leader_epoch,
        f"the leader epoch is {leader_epoch} as far as this broker knows; retry",
    )
