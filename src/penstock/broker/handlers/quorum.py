"""The metadata quorum: what its replicas send each other, and what administrators ask of it.

Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, UpdateRaftVoter; DescribeQuorum,
AddRaftVoter, RemoveRaftVoter. A replica's Fetch of the metadata is in `quorum.metadata_fetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.broker.handler import Answer, Context, Forwards, Handler, always
from penstock.broker.permissions import Operation, on_cluster
from penstock.broker.quorum import wire
from penstock.broker.replies import error_of, when_replied
from penstock.consensus.raft import (
    NO_DIRECTORY,
    AddVoter,
    RemoveVoter,
    ReplicaKey,
    Voter,
    VoterEndpoint,
)
from penstock.coordination.controller.events import METADATA_TOPIC
from penstock.errors import ErrorCode, Refused
from penstock.machine import Deferred
from penstock.model import NodeId
from penstock.protocol.messages.quorum import (
    ADD_RAFT_VOTER,
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    ChangeVotersResponse,
    DescribedQuorumNode,
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ListenerEndpoint,
    QuorumEpochResponse,
    QuorumReplica,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.consensus.raft import ReplicaStatus, Request, VoterChange, VoterSet

ResponseT = TypeVar("ResponseT")


def vote(context: Context, request: VoteRequest) -> Answer[VoteResponse]:
    """A candidate requests this replica's vote."""
    _check_cluster(context, request.cluster_id)
    return _ask(context, wire.read_vote(request), _with_leader(context, wire.write_vote_reply))


def begin_quorum_epoch(
    context: Context, request: BeginQuorumEpochRequest
) -> Answer[QuorumEpochResponse]:
    """A leader calls."""
    _check_cluster(context, request.cluster_id)
    return _ask(
        context, wire.read_begin_epoch(request), _with_leader(context, wire.write_epoch_reply)
    )


def end_quorum_epoch(
    context: Context, request: EndQuorumEpochRequest
) -> Answer[QuorumEpochResponse]:
    """A leader resigned."""
    _check_cluster(context, request.cluster_id)
    return _ask(
        context, wire.read_end_epoch(request), _with_leader(context, wire.write_epoch_reply)
    )


def fetch_snapshot(
    context: Context, request: FetchSnapshotRequest
) -> Answer[FetchSnapshotResponse]:
    """A replica fetches a chunk of a snapshot."""
    _check_cluster(context, request.cluster_id)
    fetch = wire.read_snapshot_fetch(request)
    return _ask(context, fetch, lambda reply: wire.write_snapshot_reply(fetch.snapshot, reply))


def update_raft_voter(
    context: Context, request: UpdateRaftVoterRequest
) -> Answer[UpdateRaftVoterResponse]:
    """A voter tells its directory id and endpoints."""
    _check_cluster(context, request.cluster_id)
    return _ask(context, wire.read_update_voter(request), wire.write_update_reply)


def _with_leader(
    context: Context, respond: Callable[[Any, VoterSet], ResponseT]
) -> Callable[[Any], ResponseT]:
    """Respond with the address of the leader too."""
    return lambda reply: respond(reply, context.broker.quorum.raft.voters)


def _ask(
    context: Context, request: Request, respond: Callable[[Any], ResponseT]
) -> Answer[ResponseT]:
    return when_replied(context.broker.quorum.request(request), respond)


def _check_cluster(context: Context, cluster_id: str | None) -> None:
    known = context.broker.cluster.cluster_id
    if cluster_id and known and cluster_id != known:
        raise Refused(ErrorCode.inconsistent_cluster_id, f"this is a replica of cluster {known}")


# Administration.


def describe_quorum(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The voters and observers, and how far each has come. Only the leader knows."""
    requested = [
        (name, [row.partition_index for row in partitions]) for name, partitions in request.topics
    ]
    if requested != [(METADATA_TOPIC, [0])]:
        return _not_a_quorum(requested)
    raft = context.broker.quorum.raft
    statuses = raft.statuses(context.broker.steady_clock())
    partition = DescribedQuorumPartition(
        0,
        leader_id=-1 if raft.leader_id is None else raft.leader_id,
        leader_epoch=raft.epoch,
        high_watermark=raft.high_watermark,
        current_voters=[_replica(context, each) for each in statuses if each.is_voter],
        observers=[_replica(context, each) for each in statuses if not each.is_voter],
    )
    return DescribeQuorumResponse(
        topics=[DescribedQuorumTopic(METADATA_TOPIC, [partition])],
        nodes=[
            DescribedQuorumNode(
                voter.key.node_id, [ListenerEndpoint(*each) for each in voter.endpoints]
            )
            for voter in raft.voters.voters
        ],
    )


def _replica(context: Context, status: ReplicaStatus) -> QuorumReplica:
    """Times are shown as times of day."""
    offset_ms = context.broker.clock() - context.broker.steady_clock()
    fetched_at, caught_up_at = (
        -1 if at < 0 else at + offset_ms for at in (status.fetched_at, status.caught_up_at)
    )
    directory_id = status.key.directory_id
    return QuorumReplica(
        status.key.node_id,
        status.end_offset,
        fetched_at,
        caught_up_at,
        None if directory_id == NO_DIRECTORY else directory_id,
    )


def _not_a_quorum(requested: Sequence[tuple[str, Sequence[int]]]) -> DescribeQuorumResponse:
    unknown = error_of(
        Refused(
            ErrorCode.unknown_topic_or_partition,
            f"only {METADATA_TOPIC}-0 is replicated by a quorum",
        )
    )
    return DescribeQuorumResponse(
        topics=[
            DescribedQuorumTopic(
                topic, [DescribedQuorumPartition(index, *unknown) for index in indexes]
            )
            for topic, indexes in requested
        ]
    )


def add_raft_voter(context: Context, request: AddRaftVoterRequest) -> Answer[ChangeVotersResponse]:
    """An observer that has caught up gets a vote."""
    key = ReplicaKey(NodeId(request.voter_id), request.voter_directory_id or NO_DIRECTORY)
    endpoints = tuple(VoterEndpoint(*listener) for listener in request.listeners)
    return _change_voters(context, request.cluster_id, AddVoter(Voter(key, endpoints)))


def remove_raft_voter(
    context: Context, request: RemoveRaftVoterRequest
) -> Answer[ChangeVotersResponse]:
    """A voter loses its vote."""
    key = ReplicaKey(NodeId(request.voter_id), request.voter_directory_id or NO_DIRECTORY)
    return _change_voters(context, request.cluster_id, RemoveVoter(key))


def _change_voters(
    context: Context, cluster_id: str | None, change: VoterChange
) -> Answer[ChangeVotersResponse]:
    """Respond when the changed set is committed."""
    _check_cluster(context, cluster_id)
    changed: Deferred[ChangeVotersResponse] = Deferred()
    context.broker.controller.change_voters(
        change, lambda refusal: changed.resolve(ChangeVotersResponse(*error_of(refusal)))
    )
    return changed


_CLUSTER_ACTION: Final = on_cluster(Operation.CLUSTER_ACTION)
_ALTER: Final = on_cluster(Operation.ALTER)
_DESCRIBE: Final = on_cluster(Operation.DESCRIBE)

HANDLERS = (
    Handler(VOTE, (0, 2), vote, _CLUSTER_ACTION, before_ready=always),
    Handler(BEGIN_QUORUM_EPOCH, (0, 1), begin_quorum_epoch, _CLUSTER_ACTION, before_ready=always),
    Handler(END_QUORUM_EPOCH, (0, 1), end_quorum_epoch, _CLUSTER_ACTION, before_ready=always),
    Handler(FETCH_SNAPSHOT, (0, 1), fetch_snapshot, _CLUSTER_ACTION, before_ready=always),
    Handler(UPDATE_RAFT_VOTER, (0, 0), update_raft_voter, _CLUSTER_ACTION, before_ready=always),
    Handler(DESCRIBE_QUORUM, (0, 2), describe_quorum, _DESCRIBE, forwards=Forwards.WHOLE),
    Handler(ADD_RAFT_VOTER, (0, 1), add_raft_voter, _ALTER, forwards=Forwards.WHOLE),
    Handler(REMOVE_RAFT_VOTER, (0, 0), remove_raft_voter, _ALTER, forwards=Forwards.WHOLE),
)
