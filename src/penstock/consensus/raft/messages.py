"""What replicas send each other: requests and the replies to them, as in Kafka's APIs, typed.

Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), Fetch (1), FetchSnapshot (59) and
UpdateRaftVoter (82). Every reply starts with an error code and with the epoch and leader that the
replying replica knows. Fields come from other processes: they are checked and never asserted.
"""

from typing import NamedTuple, TypeAlias

from penstock.consensus.raft.quorum_state import OffsetAndEpoch
from penstock.consensus.raft.voters import ReplicaKey, Voter
from penstock.errors import ErrorCode
from penstock.model import LeaderEpoch, Millis, NodeId, Offset


class Vote(NamedTuple):
    """A candidate, or before that a prospective one (`is_pre_vote`), requests a vote."""

    epoch: LeaderEpoch  # of a pre-vote: the current one, which it does not raise
    candidate: ReplicaKey
    voter: ReplicaKey  # the disk that the candidate's voter set names
    log_end: OffsetAndEpoch
    is_pre_vote: bool


class VoteReply(NamedTuple):
    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    is_granted: bool


class BeginQuorumEpoch(NamedTuple):
    """A leader calls a voter that does not fetch from it."""

    epoch: LeaderEpoch
    leader_id: NodeId
    voter: ReplicaKey


class EndQuorumEpoch(NamedTuple):
    """A leader resigned. The first successor stands without a pre-vote."""

    epoch: LeaderEpoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]  # the one with the longest log first


class UpdateVoter(NamedTuple):
    """A voter tells the leader its directory id and endpoints."""

    epoch: LeaderEpoch
    voter: Voter


class EpochReply(NamedTuple):
    """To BeginQuorumEpoch, EndQuorumEpoch and UpdateVoter."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None


class QuorumFetch(NamedTuple):
    """Request what follows `position`. Everything below it is synced on the replica's disk."""

    epoch: LeaderEpoch
    replica: ReplicaKey
    position: OffsetAndEpoch
    max_wait_ms: Millis


class QuorumFetchReply(NamedTuple):
    """Records, the end where two logs part, or the snapshot to start from: never two of them."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    high_watermark: Offset = Offset(0)
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_at: Offset | None = None  # the leader's shell puts what it reads here into `records`
    records: object | None = None  # opaque; None if there are none


class SnapshotFetch(NamedTuple):
    """Request a chunk of a snapshot."""

    epoch: LeaderEpoch
    replica: ReplicaKey
    snapshot: OffsetAndEpoch
    position: int


class SnapshotFetchReply(NamedTuple):
    """The leader's shell fills in size and chunk, or replaces the error by 98 or 99."""

    error: ErrorCode
    epoch: LeaderEpoch
    leader_id: NodeId | None
    position: int = 0
    size_bytes: int = 0
    chunk: bytes = b""


Request: TypeAlias = (
    Vote | BeginQuorumEpoch | EndQuorumEpoch | UpdateVoter | QuorumFetch | SnapshotFetch
)
Reply: TypeAlias = VoteReply | EpochReply | QuorumFetchReply | SnapshotFetchReply
