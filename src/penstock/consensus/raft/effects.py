"""What a step of the core asks of its shell, with the order of durability in it.

Nothing here promises what is not on disk: the core keeps messages back until the state or the
records that they mention are reported as synced. So a shell sends what it is given when it is
given it, and needs no rule of its own.
"""

from typing import Final, NamedTuple, TypeAlias

from penstock.consensus.raft.messages import Reply, Request
from penstock.consensus.raft.quorum_state import OffsetAndEpoch, QuorumState
from penstock.consensus.raft.roles import Role
from penstock.consensus.raft.voters import VoterSet
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, NodeId, Offset


class LeaderChange(NamedTuple):
    """The first record of an epoch: what precedes it is committed with it, and never by count."""

    leader_id: NodeId
    voters: VoterSet
    granting: tuple[NodeId, ...]


class VotersRecord(NamedTuple):
    """A voter set. It counts from the moment it is appended."""

    voters: VoterSet


ControlRecord: TypeAlias = LeaderChange | VotersRecord


class SnapshotChunk(NamedTuple):
    """Part of a snapshot file, in order from position 0."""

    snapshot: OffsetAndEpoch
    position: int
    chunk: bytes
    is_last: bool


class RoleChange(NamedTuple):
    """The replica's role, epoch or leader is another one now."""

    role: Role
    epoch: LeaderEpoch
    leader_id: NodeId | None
    start_offset: Offset | None  # of the epoch; of a leader only


class SyncPoint(NamedTuple):
    """What a sync of the log that starts now will have covered when it ends."""

    end_offset: Offset
    truncations: int  # a sync that started before a truncation covers nothing


class Effects(NamedTuple):
    """Carry these out in this order, all before the next call; only syncs may take their time."""

    fault: str | None = None  # stop this process: the logs of the quorum contradict each other
    state: QuorumState | None = None  # write and sync, then `on_state_saved`
    truncate_to: Offset | None = None  # cut the log, then `on_truncated`
    append_records: object | None = None  # check and append what was fetched, then `on_appended`
    append_control: tuple[ControlRecord, ...] = ()  # one batch in this epoch, then `on_appended`
    write_snapshot: SnapshotChunk | None = None  # after the last: sync, then `on_snapshot_stored`
    install_snapshot: OffsetAndEpoch | None = None  # it replaces log: `on_snapshot_installed`
    role: RoleChange | None = None
    high_watermark: Offset | None = None
    requests: tuple[tuple[NodeId | None, Request], ...] = ()  # to None: any bootstrap server
    replies: tuple[tuple[CallerId, Reply], ...] = ()


NOTHING: Final = Effects()
