"""Raft in Kafka's form, without I/O: `raft_node` is the whole, `effects` what a shell does."""

from penstock.consensus.raft.effects import (
    ControlRecord,
    Effects,
    LeaderChange,
    RoleChange,
    SnapshotChunk,
    SyncPoint,
    VotersRecord,
)
from penstock.consensus.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    QuorumFetch,
    QuorumFetchReply,
    Reply,
    Request,
    SnapshotFetch,
    SnapshotFetchReply,
    UpdateVoter,
    Vote,
    VoteReply,
)
from penstock.consensus.raft.quorum_state import OffsetAndEpoch, QuorumState, RaftLog
from penstock.consensus.raft.raft_node import RaftNode, ReplicaStatus
from penstock.consensus.raft.roles import Role
from penstock.consensus.raft.settings import RaftSettings
from penstock.consensus.raft.voter_changes import (
    AddVoter,
    RemoveVoter,
    ReplaceVoter,
    VoterChange,
)
from penstock.consensus.raft.voters import (
    NO_DIRECTORY,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
)

__all__ = [
    "NO_DIRECTORY",
    "AddVoter",
    "BeginQuorumEpoch",
    "ControlRecord",
    "Effects",
    "EndQuorumEpoch",
    "EpochReply",
    "LeaderChange",
    "OffsetAndEpoch",
    "QuorumFetch",
    "QuorumFetchReply",
    "QuorumState",
    "RaftLog",
    "RaftNode",
    "RaftSettings",
    "RemoveVoter",
    "ReplaceVoter",
    "ReplicaKey",
    "ReplicaStatus",
    "Reply",
    "Request",
    "Role",
    "RoleChange",
    "SnapshotChunk",
    "SnapshotFetch",
    "SnapshotFetchReply",
    "SyncPoint",
    "UpdateVoter",
    "Vote",
    "VoteReply",
    "Voter",
    "VoterChange",
    "VoterEndpoint",
    "VoterSet",
    "VotersRecord",
]
