"""Messages of the Raft core as requests and responses of the Kafka protocol, and back.

The only partition is `__cluster_metadata-0`. What another replica sent may be anything: a message
about another partition is refused by code, a field that cannot be is Malformed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from penstock.consensus.raft import (
    NO_DIRECTORY,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    OffsetAndEpoch,
    QuorumFetch,
    QuorumFetchReply,
    ReplicaKey,
    SnapshotFetch,
    SnapshotFetchReply,
    UpdateVoter,
    Vote,
    Voter,
    VoterEndpoint,
    VoteReply,
    VoterSet,
)
from penstock.coordination.controller.events import METADATA_TOPIC
from penstock.errors import ErrorCode, Refused
from penstock.model import LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition
from penstock.protocol.fields import LeaderAndEpoch, NodeEndpoint
from penstock.protocol.messages.fetch import (
    FETCH,
    DivergingEpoch,
    FetchedPartition,
    FetchedTopic,
    FetchingReplica,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.quorum import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    UPDATE_RAFT_VOTER,
    VOTE,
    BeginQuorumEpochPartition,
    BeginQuorumEpochRequest,
    BeginQuorumEpochTopic,
    EndQuorumEpochPartition,
    EndQuorumEpochRequest,
    EndQuorumEpochTopic,
    FetchedSnapshotPartition,
    FetchedSnapshotTopic,
    FetchSnapshotPartition,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    KRaftVersions,
    ListenerEndpoint,
    QuorumCandidate,
    QuorumEndpoint,
    QuorumEpochPartitionResult,
    QuorumEpochResponse,
    QuorumEpochTopicResult,
    RaftLeader,
    SnapshotId,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VotePartition,
    VotePartitionResult,
    VoteRequest,
    VoteResponse,
    VoteTopic,
    VoteTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.consensus.raft import Reply, Request
    from penstock.protocol.message import Message

METADATA_PARTITION: Final = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID: Final = TopicId(UUID(int=1))  # Kafka's own reserved id for it
FETCH_VERSION_MIN: Final = 17  # the first with the replica's directory
FETCH_BYTES_MAX: Final = 8 << 20
KRAFT_VERSIONS: Final = KRaftVersions(0, 1)
_NONE: Final = -1


class WireRequest(NamedTuple):
    """A request to send: its API, and its body."""

    message: Message[Any, Any]
    body: Any
    version_min: int = 0


# Requests.


def write_request(request: Request, cluster_id: str | None) -> WireRequest:
    """What is sent to another replica."""
    match request:
        case Vote():
            return WireRequest(VOTE, _write_vote(request, cluster_id), version_min=2)
        case BeginQuorumEpoch():
            partition = BeginQuorumEpochPartition(
                0, request.leader_id, request.epoch, _directory(request.voter.directory_id)
            )
            body: Any = BeginQuorumEpochRequest(
                cluster_id,
                [BeginQuorumEpochTopic(METADATA_TOPIC, [partition])],
                request.voter.node_id,
            )
            return WireRequest(BEGIN_QUORUM_EPOCH, body, version_min=1)
        case EndQuorumEpoch():
            return WireRequest(END_QUORUM_EPOCH, _write_end_epoch(request, cluster_id), 1)
        case QuorumFetch():
            return WireRequest(FETCH, _write_fetch(request, cluster_id), FETCH_VERSION_MIN)
        case SnapshotFetch():
            return WireRequest(FETCH_SNAPSHOT, _write_snapshot_fetch(request, cluster_id), 1)
        case UpdateVoter():
            return WireRequest(UPDATE_RAFT_VOTER, _write_update_voter(request, cluster_id))


def _write_vote(vote: Vote, cluster_id: str | None) -> VoteRequest:
    partition = VotePartition(
        0,
        vote.epoch,
        vote.candidate.node_id,
        vote.log_end.epoch,
        vote.log_end.offset,
        _directory(vote.candidate.directory_id),
        _directory(vote.voter.directory_id),
        vote.is_pre_vote,
    )
    return VoteRequest(cluster_id, [VoteTopic(METADATA_TOPIC, [partition])], vote.voter.node_id)


def _write_end_epoch(request: EndQuorumEpoch, cluster_id: str | None) -> EndQuorumEpochRequest:
    partition = EndQuorumEpochPartition(
        0,
        request.leader_id,
        request.epoch,
        preferred_candidates=[
            QuorumCandidate(key.node_id, _directory(key.directory_id)) for key in request.successors
        ],
    )
    return EndQuorumEpochRequest(cluster_id, [EndQuorumEpochTopic(METADATA_TOPIC, [partition])])


def _write_fetch(fetch: QuorumFetch, cluster_id: str | None) -> FetchRequest:
    partition = FetchPartition(
        0,
        current_leader_epoch=fetch.epoch,
        fetch_offset=fetch.position.offset,
        last_fetched_epoch=fetch.position.epoch,
        partition_max_bytes=FETCH_BYTES_MAX,
        replica_directory_id=_directory(fetch.replica.directory_id),
    )
    return FetchRequest(
        fetch.max_wait_ms,
        0,
        FETCH_BYTES_MAX,
        topics=[FetchTopic(METADATA_TOPIC_ID.bytes, [partition])],
        cluster_id=cluster_id,
        replica=FetchingReplica(fetch.replica.node_id),
    )


def _write_snapshot_fetch(fetch: SnapshotFetch, cluster_id: str | None) -> FetchSnapshotRequest:
    partition = FetchSnapshotPartition(
        0,
        fetch.epoch,
        SnapshotId(fetch.snapshot.offset, fetch.snapshot.epoch),
        fetch.position,
        _directory(fetch.replica.directory_id),
    )
    return FetchSnapshotRequest(
        [FetchSnapshotTopic(METADATA_TOPIC, [partition])],
        fetch.replica.node_id,
        FETCH_BYTES_MAX,
        cluster_id,
    )


def _write_update_voter(update: UpdateVoter, cluster_id: str | None) -> UpdateRaftVoterRequest:
    key, endpoints = update.voter
    return UpdateRaftVoterRequest(
        cluster_id,
        update.epoch,
        key.node_id,
        _directory(key.directory_id),
        [ListenerEndpoint(*endpoint) for endpoint in endpoints],
        KRAFT_VERSIONS,
    )


def read_vote(request: VoteRequest) -> Vote:
    """A request for a vote, as the core takes it."""
    row = _only(request.topics)
    return Vote(
        LeaderEpoch(row.replica_epoch),
        _key(row.replica_id, row.replica_directory_id),
        _key(request.voter_id, row.voter_directory_id),
        OffsetAndEpoch(Offset(row.last_offset), LeaderEpoch(row.last_offset_epoch)),
        row.pre_vote,
    )


def read_begin_epoch(request: BeginQuorumEpochRequest) -> BeginQuorumEpoch:
    """A leader's call, as the core takes it."""
    row = _only(request.topics)
    return BeginQuorumEpoch(
        LeaderEpoch(row.leader_epoch),
        NodeId(row.leader_id),
        _key(request.voter_id, row.voter_directory_id),
    )


def read_end_epoch(request: EndQuorumEpochRequest) -> EndQuorumEpoch:
    """A leader's resignation, as the core takes it."""
    row = _only(request.topics)
    successors = tuple(_key(*candidate) for candidate in row.preferred_candidates)
    return EndQuorumEpoch(LeaderEpoch(row.leader_epoch), NodeId(row.leader_id), successors)


def read_fetch(request: FetchRequest) -> QuorumFetch:
    """A replica's fetch of the metadata, as the core takes it."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise _other_partition()
    row = request.topics[0].partitions[0]
    if row.partition != 0:
        raise _other_partition()
    return QuorumFetch(
        LeaderEpoch(row.current_leader_epoch),
        _key(request.replica.replica_id, row.replica_directory_id),
        OffsetAndEpoch(Offset(row.fetch_offset), LeaderEpoch(row.last_fetched_epoch)),
        Millis(request.max_wait_ms),
    )


def read_snapshot_fetch(request: FetchSnapshotRequest) -> SnapshotFetch:
    """A replica's fetch of a snapshot, as the core takes it."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        raise _other_partition()
    row = request.topics[0].partitions[0]
    if request.topics[0].name != METADATA_TOPIC or row.partition != 0:
        raise _other_partition()
    return SnapshotFetch(
        LeaderEpoch(row.current_leader_epoch),
        _key(request.replica_id, row.replica_directory_id),
        OffsetAndEpoch(Offset(row.snapshot_id.end_offset), LeaderEpoch(row.snapshot_id.epoch)),
        row.position,
    )


def read_update_voter(request: UpdateRaftVoterRequest) -> UpdateVoter:
    """A voter's new address, as the core takes it."""
    endpoints = tuple(VoterEndpoint(*listener) for listener in request.listeners)
    key = _key(request.voter_id, request.voter_directory_id)
    return UpdateVoter(LeaderEpoch(request.current_leader_epoch), Voter(key, endpoints))


# Responses.


def leader_endpoints(leader_id: NodeId | None, voters: VoterSet) -> list[tuple[NodeId, str, int]]:
    """Where the leader is that a response names: for a replica that does not know the voters."""
    voter = None if leader_id is None else voters.find(leader_id)
    if leader_id is None or voter is None or not voter.endpoints:
        return []
    return [(leader_id, voter.endpoints[0].host, voter.endpoints[0].port)]


def write_vote_reply(reply: VoteReply, voters: VoterSet) -> VoteResponse:
    """The response to a request for a vote."""
    endpoints = [QuorumEndpoint(*each) for each in leader_endpoints(reply.leader_id, voters)]
    row = VotePartitionResult(
        0, reply.error, _leader(reply.leader_id), reply.epoch, reply.is_granted
    )
    return VoteResponse(topics=[VoteTopicResult(METADATA_TOPIC, [row])], node_endpoints=endpoints)


def write_epoch_reply(reply: EpochReply, voters: VoterSet) -> QuorumEpochResponse:
    """The response to BeginQuorumEpoch and EndQuorumEpoch."""
    endpoints = [QuorumEndpoint(*each) for each in leader_endpoints(reply.leader_id, voters)]
    row = QuorumEpochPartitionResult(0, reply.error, _leader(reply.leader_id), reply.epoch)
    return QuorumEpochResponse(
        topics=[QuorumEpochTopicResult(METADATA_TOPIC, [row])], node_endpoints=endpoints
    )


def write_update_reply(reply: EpochReply) -> UpdateRaftVoterResponse:
    """The response to UpdateRaftVoter."""
    return UpdateRaftVoterResponse(
        reply.error, RaftLeader(_leader(reply.leader_id), reply.epoch, "", 0)
    )


def write_fetch_reply(reply: QuorumFetchReply, voters: VoterSet) -> FetchResponse:
    """The response to a fetch of the metadata."""
    endpoints = [NodeEndpoint(*each) for each in leader_endpoints(reply.leader_id, voters)]
    records = reply.records
    assert records is None or isinstance(records, bytes)
    row = FetchedPartition(
        0,
        reply.error,
        reply.high_watermark,
        reply.high_watermark,
        0,
        records or b"",
        diverging_epoch=None
        if reply.diverging is None
        else DivergingEpoch(reply.diverging.epoch, reply.diverging.offset),
        current_leader=LeaderAndEpoch(_leader(reply.leader_id), reply.epoch),
        snapshot_id=None
        if reply.snapshot is None
        else SnapshotId(reply.snapshot.offset, reply.snapshot.epoch),
    )
    return FetchResponse(
        topics=[FetchedTopic(METADATA_TOPIC_ID.bytes, [row])], node_endpoints=endpoints
    )


def write_snapshot_reply(
    snapshot: OffsetAndEpoch, reply: SnapshotFetchReply
) -> FetchSnapshotResponse:
    """The response to a fetch of a snapshot."""
    row = FetchedSnapshotPartition(
        0,
        reply.error,
        SnapshotId(snapshot.offset, snapshot.epoch),
        reply.size_bytes,
        reply.position,
        reply.chunk,
        LeaderAndEpoch(_leader(reply.leader_id), reply.epoch),
    )
    return FetchSnapshotResponse(topics=[FetchedSnapshotTopic(METADATA_TOPIC, [row])])


def read_reply(request: Request, response: Any) -> Reply:
    """What another replica replied, as the core takes it."""
    match request:
        case Vote():
            if response.error_code != ErrorCode.none:
                return VoteReply(response.error_code, request.epoch, None, False)
            row = _only(response.topics)
            return VoteReply(*_epoch_fields(row), row.vote_granted)
        case BeginQuorumEpoch() | EndQuorumEpoch():
            if response.error_code != ErrorCode.none:
                return EpochReply(response.error_code, request.epoch, None)
            return EpochReply(*_epoch_fields(_only(response.topics)))
        case UpdateVoter():
            leader = response.current_leader or RaftLeader(_NONE, request.epoch, "", 0)
            return EpochReply(
                response.error_code, LeaderEpoch(leader.leader_epoch), _node(leader.leader_id)
            )
        case QuorumFetch():
            return _read_fetch_reply(request, response)
        case SnapshotFetch():
            return _read_snapshot_reply(request, response)


def _read_fetch_reply(request: QuorumFetch, response: FetchResponse) -> QuorumFetchReply:
    if response.error_code != ErrorCode.none:
        return QuorumFetchReply(response.error_code, request.epoch, None)
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise _other_partition()
    row = response.topics[0].partitions[0]
    leader = row.current_leader or LeaderAndEpoch(_NONE, request.epoch)
    diverging, snapshot = row.diverging_epoch, row.snapshot_id
    return QuorumFetchReply(
        row.error_code,
        LeaderEpoch(leader.leader_epoch),
        _node(leader.leader_id),
        Offset(max(row.high_watermark, 0)),
        None
        if diverging is None
        else OffsetAndEpoch(Offset(diverging.end_offset), LeaderEpoch(diverging.epoch)),
        None
        if snapshot is None
        else OffsetAndEpoch(Offset(snapshot.end_offset), LeaderEpoch(snapshot.epoch)),
        records=bytes(row.records) if row.records else None,
    )


def _read_snapshot_reply(
    request: SnapshotFetch, response: FetchSnapshotResponse
) -> SnapshotFetchReply:
    if response.error_code != ErrorCode.none:
        return SnapshotFetchReply(response.error_code, request.epoch, None)
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise _other_partition()
    row = response.topics[0].partitions[0]
    leader = row.current_leader or LeaderAndEpoch(_NONE, request.epoch)
    return SnapshotFetchReply(
        row.error_code,
        LeaderEpoch(leader.leader_epoch),
        _node(leader.leader_id),
        row.position,
        row.size,
        bytes(row.unaligned_records),
    )


def _epoch_fields(row: Any) -> tuple[ErrorCode, LeaderEpoch, NodeId | None]:
    return row.error_code, LeaderEpoch(row.leader_epoch), _node(row.leader_id)


def _only(topics: Sequence[Any]) -> Any:
    """The row of the only partition there is."""
    if len(topics) != 1 or topics[0].topic_name != METADATA_TOPIC:
        raise _other_partition()
    rows = topics[0].partitions
    if len(rows) != 1 or rows[0].partition_index != 0:
        raise _other_partition()
    return rows[0]


def _other_partition() -> Refused:
    return Refused(
        ErrorCode.invalid_request, f"the only partition of a quorum is {METADATA_TOPIC}-0"
    )


def _key(node_id: int, directory_id: UUID | None) -> ReplicaKey:
    return ReplicaKey(NodeId(node_id), directory_id or NO_DIRECTORY)


def _directory(directory_id: UUID) -> UUID | None:
    return None if directory_id == NO_DIRECTORY else directory_id


def _leader(leader_id: NodeId | None) -> int:
    return _NONE if leader_id is None else leader_id


def _node(leader_id: int) -> NodeId | None:
    return None if leader_id < 0 else NodeId(leader_id)
