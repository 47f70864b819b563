"""The quorum of controllers (KRaft): votes, epochs, snapshots and the set of voters.

Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, FetchSnapshot, AddRaftVoter,
RemoveRaftVoter, UpdateRaftVoter.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.protocol.api import Api
from penstock.protocol.bind import WireName, bind
from penstock.protocol.fields import LeaderAndEpoch
from penstock.protocol.varint import Buffer

INT_32_MAX: Final = (1 << 31) - 1


class ListenerEndpoint(NamedTuple):
    """Where a controller listens."""

    name: str
    host: str
    port: int


class QuorumEndpoint(NamedTuple):
    """The address of a leader that a response names."""

    node_id: int
    host: str
    port: int


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; `epoch` is that of the last record."""

    end_offset: int
    epoch: int


# Vote.


class VotePartition(NamedTuple):
    """A candidate for leadership."""

    partition_index: int
    replica_epoch: int
    replica_id: int
    last_offset_epoch: int
    last_offset: int
    replica_directory_id: UUID | None = None
    voter_directory_id: UUID | None = None
    pre_vote: bool = False


class VoteTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[VotePartition]


class VoteRequest(NamedTuple):
    cluster_id: str | None
    topics: Sequence[VoteTopic]
    voter_id: int = -1


class VotePartitionResult(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    leader_id: int = -1
    leader_epoch: int = -1
    vote_granted: bool = False


class VoteTopicResult(NamedTuple):
    topic_name: str
    partitions: Sequence[VotePartitionResult]


class VoteResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[VoteTopicResult] = ()
    node_endpoints: Sequence[QuorumEndpoint] = ()


VOTE: Final = bind(Api.VOTE, VoteRequest, VoteResponse)

# BeginQuorumEpoch and EndQuorumEpoch.


class QuorumEpochPartitionResult(NamedTuple):
    """The leader that the responding voter knows."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    leader_id: int = -1
    leader_epoch: int = -1


class QuorumEpochTopicResult(NamedTuple):
    topic_name: str
    partitions: Sequence[QuorumEpochPartitionResult]


class QuorumEpochResponse(NamedTuple):
    """Of both APIs."""

    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[QuorumEpochTopicResult] = ()
    node_endpoints: Sequence[QuorumEndpoint] = ()


class BeginQuorumEpochPartition(NamedTuple):
    partition_index: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: UUID | None = None


class BeginQuorumEpochTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[BeginQuorumEpochPartition]


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader announces itself to a voter."""

    cluster_id: str | None
    topics: Sequence[BeginQuorumEpochTopic]
    voter_id: int = -1
    leader_endpoints: Sequence[ListenerEndpoint] = ()


BEGIN_QUORUM_EPOCH: Final = bind(
    Api.BEGIN_QUORUM_EPOCH, BeginQuorumEpochRequest, QuorumEpochResponse
)


class QuorumCandidate(NamedTuple):
    candidate_id: int
    candidate_directory_id: UUID | None


class EndQuorumEpochPartition(NamedTuple):
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: Sequence[int] = ()  # version 0 only
    preferred_candidates: Sequence[QuorumCandidate] = ()


class EndQuorumEpochTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[EndQuorumEpochPartition]


class EndQuorumEpochRequest(NamedTuple):
    """A leader resigns."""

    cluster_id: str | None
    topics: Sequence[EndQuorumEpochTopic]
    leader_endpoints: Sequence[ListenerEndpoint] = ()


END_QUORUM_EPOCH: Final = bind(Api.END_QUORUM_EPOCH, EndQuorumEpochRequest, QuorumEpochResponse)

# DescribeQuorum.


class DescribeQuorumPartition(NamedTuple):
    partition_index: int


class DescribeQuorumTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[DescribeQuorumPartition]


class DescribeQuorumRequest(NamedTuple):
    topics: Sequence[DescribeQuorumTopic]


class QuorumReplica(NamedTuple):
    """How far a voter or an observer has come."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1
    replica_directory_id: UUID | None = None


class DescribedQuorumPartition(NamedTuple):
    partition_index: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: Sequence[QuorumReplica] = ()
    observers: Sequence[QuorumReplica] = ()


class DescribedQuorumTopic(NamedTuple):
    topic_name: str
    partitions: Sequence[DescribedQuorumPartition]


class DescribedQuorumNode(NamedTuple):
    node_id: int
    listeners: Sequence[ListenerEndpoint]


class DescribeQuorumResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    topics: Sequence[DescribedQuorumTopic] = ()
    nodes: Sequence[DescribedQuorumNode] = ()


DESCRIBE_QUORUM: Final = bind(Api.DESCRIBE_QUORUM, DescribeQuorumRequest, DescribeQuorumResponse)

# FetchSnapshot.


class FetchSnapshotPartition(NamedTuple):
    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: UUID | None = None


class FetchSnapshotTopic(NamedTuple):
    name: str
    partitions: Sequence[FetchSnapshotPartition]


class FetchSnapshotRequest(NamedTuple):
    topics: Sequence[FetchSnapshotTopic]
    replica_id: int = -1
    max_bytes: int = INT_32_MAX
    cluster_id: str | None = None


class FetchedSnapshotPartition(NamedTuple):
    """A chunk of a snapshot: the bytes from `position` on, of `size` in all."""

    partition: Annotated[int, WireName("index")]
    error_code: ErrorCode = ErrorCode.none
    snapshot_id: SnapshotId = SnapshotId(0, 0)
    size: int = 0
    position: int = 0
    unaligned_records: Buffer = b""
    current_leader: LeaderAndEpoch | None = None


class FetchedSnapshotTopic(NamedTuple):
    name: str
    partitions: Sequence[FetchedSnapshotPartition]


class FetchSnapshotResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    topics: Sequence[FetchedSnapshotTopic] = ()
    node_endpoints: Sequence[QuorumEndpoint] = ()


FETCH_SNAPSHOT: Final = bind(Api.FETCH_SNAPSHOT, FetchSnapshotRequest, FetchSnapshotResponse)

# AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter.


class ChangeVotersResponse(NamedTuple):
    """Of AddRaftVoter and RemoveRaftVoter."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AddRaftVoterRequest(NamedTuple):
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: UUID | None
    listeners: Sequence[ListenerEndpoint]
    ack_when_committed: bool = True


ADD_RAFT_VOTER: Final = bind(Api.ADD_RAFT_VOTER, AddRaftVoterRequest, ChangeVotersResponse)


class RemoveRaftVoterRequest(NamedTuple):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: UUID | None


REMOVE_RAFT_VOTER: Final = bind(Api.REMOVE_RAFT_VOTER, RemoveRaftVoterRequest, ChangeVotersResponse)


class KRaftVersions(NamedTuple):
    """The levels of kraft.version that a voter supports."""

    min_supported_version: int
    max_supported_version: int


class UpdateRaftVoterRequest(NamedTuple):
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: UUID | None
    listeners: Sequence[ListenerEndpoint]
    kraft_versions: Annotated[KRaftVersions, WireName("k_raft_version_feature")]


class RaftLeader(NamedTuple):
    leader_id: int
    leader_epoch: int
    host: str
    port: int


class UpdateRaftVoterResponse(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    current_leader: RaftLeader | None = None


UPDATE_RAFT_VOTER: Final = bind(
    Api.UPDATE_RAFT_VOTER, UpdateRaftVoterRequest, UpdateRaftVoterResponse
)
