"""One replica of a Raft quorum in Kafka's form (KRaft), without I/O.

Every method takes what happened and the time, and returns the effects that the shell carries out,
in the order of their fields and all before the next call. Before any other call it then reports
what it did to the log. The core reads no clock, no file and no socket, and draws no random number.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.consensus.raft import following, leading, voting
from penstock.consensus.raft.effects import NOTHING, Effects, SyncPoint
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
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import (
    NEVER,
    Following,
    Leading,
    Resigned,
    Role,
    Unattached,
    VotingRound,
)
from penstock.consensus.raft.settings import RaftSettings
from penstock.consensus.raft.voter_changes import VoterChange, propose_change
from penstock.consensus.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from penstock.errors import ErrorCode
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, Millis, NodeId, Offset


class ReplicaStatus(NamedTuple):
    """What DescribeQuorum shows of a replica; -1 where the leader does not know."""

    key: ReplicaKey
    is_voter: bool
    end_offset: Offset
    fetched_at: Millis
    caught_up_at: Millis


class RaftNode:
    """A voter or an observer.

    log_start_offset <= high_watermark <= log_end_offset; synced_offset <= log_end_offset

    The shell has synced the log and the quorum state that it starts a node with: what a killed
    process left in the page cache could still be lost.
    """

    def __init__(
        self,
        voter: Voter,
        log: RaftLog,
        state: QuorumState,
        voter_sets: Sequence[tuple[Offset, VoterSet]],
        settings: RaftSettings,
        jitter: Callable[[], Millis],
    ) -> None:
        """`voter_sets`: of the log in offset order, before them that of the snapshot or, at
        NO_OFFSET, the one that this node was configured with. `jitter`: drawn evenly from 0 to
        `election_jitter_max_ms`, each time.
        """
        history = VoterHistory(voter_sets)
        self._replica = Replica(voter, log, state, history, settings, jitter)

    @property
    def key(self) -> ReplicaKey:
        return self._replica.key

    @property
    def role(self) -> Role:
        return self._replica.role.role

    @property
    def epoch(self) -> LeaderEpoch:
        return self._replica.epoch

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of the epoch, as far as this replica knows and believes in it."""
        return self._replica.leader_id

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed; unknown after a start, so it begins at the snapshot."""
        return self._replica.high_watermark

    @property
    def snapshot_limit(self) -> Offset:
        """A snapshot may end here at most: at what is committed, and synced on this disk.

        Beyond that it could outlive the records before its end, and contradict those that a power
        crash brings back.
        """
        return min(self.high_watermark, self._replica.synced_offset)

    @property
    def voters(self) -> VoterSet:
        """The set that counts now, committed or not."""
        return self._replica.voters.latest

    def voters_at(self, end_offset: Offset) -> VoterSet:
        """The set that a snapshot which ends here must hold; behind the first set in the log."""
        return self._replica.voters.at(end_offset)

    def wake_at(self) -> Millis | None:
        """When `on_tick` must be called, unless something else happens first."""
        replica = self._replica
        role = replica.role
        if replica.is_stopped:
            return None
        if isinstance(role, Leading):
            wake_at = leading.leader_wake_at(replica, role)
        elif isinstance(role, Unattached):
            wake_at = role.deadline if replica.may_stand else role.resend_at
        elif isinstance(role, Following):
            wake_at = min(role.deadline, role.resend_at)
            if following.must_update_voter(replica):
                wake_at = min(wake_at, role.update_at)
        else:
            wake_at = min(role.deadline, *role.resend_at.values(), NEVER)
        return None if wake_at == NEVER else wake_at

    def start(self, now: Millis) -> Effects:
        """The first call. A leader that was restarted does not lead its epoch any more."""
        replica = self._replica
        state, last_epoch = replica.state, replica.log.last_epoch
        if last_epoch > state.epoch:
            state = QuorumState(last_epoch)
            replica.change_state(state)
        is_alone = replica.is_voter and len(self.voters.voters) == 1
        deadline = now if is_alone else replica.election_deadline(now)
        replica.role = Unattached(deadline, now)
        if state.leader_id is None or state.leader_id == replica.node_id:
            following.become_unattached(replica, state.epoch, now)
        else:
            following.become_follower(replica, state.epoch, state.leader_id, now)
        return replica.take_effects()

    def on_tick(self, now: Millis) -> Effects:
        """Time has passed."""
        replica = self._replica
        role = replica.role
        if replica.is_stopped:
            return NOTHING
        if isinstance(role, Leading):
            leading.on_leader_tick(replica, role, now)
        elif role.deadline <= now:
            voting.on_election_deadline(replica, now)
        elif isinstance(role, VotingRound):
            voting.request_votes(replica, role, now)
        elif isinstance(role, Resigned):
            leading.on_resigned_tick(replica, role, now)
        else:
            following.on_following_tick(replica, now)
        return replica.take_effects()

    def on_request(self, request: Request, caller: CallerId, now: Millis) -> Effects:
        """Another replica sent a request. Its reply comes with these effects or later ones."""
        replica = self._replica
        if replica.is_stopped:
            return NOTHING
        if replica.is_overloaded or not _is_valid(request, replica.node_id):
            error = ErrorCode.invalid_request
            if replica.is_overloaded:
                error = ErrorCode.request_timed_out
            refusal = _refusal(request, error, replica.epoch)
            return NOTHING._replace(replies=((caller, refusal),))
        match request:
            case QuorumFetch():
                leading.on_fetch(replica, request, caller, now)
            case Vote():
                voting.on_vote(replica, request, caller, now)
            case BeginQuorumEpoch():
                following.on_begin_quorum_epoch(replica, request, caller, now)
            case EndQuorumEpoch():
                voting.on_end_quorum_epoch(replica, request, caller, now)
            case SnapshotFetch():
                leading.on_snapshot_fetch(replica, request, caller, now)
            case UpdateVoter():
                leading.on_update_voter(replica, request, caller, now)
        return replica.take_effects()

    def not_now(self, request: Request) -> Reply:
        """The reply to a request that the shell cannot bring to the core now."""
        return _refusal(request, ErrorCode.request_timed_out, self.epoch)

    def on_reply(
        self, sender: NodeId | None, request: Request, reply: Reply, now: Millis
    ) -> Effects:
        """The reply to `request`, the very object that an effect held. `sender` is None if that
        was sent to any bootstrap server.
        """
        replica = self._replica
        if replica.is_stopped:
            return NOTHING
        if not following.learn_epoch(replica, sender, reply, now):
            if isinstance(reply, QuorumFetchReply | SnapshotFetchReply):
                following.on_search_reply(replica, request, now)
                following.on_leader_reply(replica, sender, request, reply, now)
            elif isinstance(reply, VoteReply) and isinstance(request, Vote):
                voting.on_vote_reply(replica, sender, request, reply, now)
            elif isinstance(request, EndQuorumEpoch) and sender is not None:
                leading.on_end_epoch_reply(replica, sender)
        return replica.take_effects()

    def on_peer_lost(self, node_id: NodeId, now: Millis) -> Effects:
        """The connection to a node ended or cannot be opened; if it leads, it may be dead."""
        replica = self._replica
        role = replica.role
        if replica.is_stopped:
            return NOTHING
        if isinstance(role, Following) and role.leader_id == node_id:
            following.on_leader_lost(replica, role, now)
        return replica.take_effects()

    def on_appended(
        self, now: Millis, voter_sets: Sequence[tuple[Offset, VoterSet]] = ()
    ) -> Effects:
        """Records were appended: own ones, or those of `append_records` and `append_control`.

        `voter_sets`: those among them, by the offsets of their records.
        """
        replica = self._replica
        for offset, voters in voter_sets:
            replica.voters.append(offset, voters)
            replica.voters.drop_before(replica.log.start_offset)
        role = replica.role
        if isinstance(role, Leading):
            if voter_sets:
                leading.track_voters(replica, role)
            leading.on_leader_log_grown(replica, role, now)
        else:
            following.on_log_grown(replica, now)
        return replica.take_effects()

    def on_records_refused(self, now: Millis) -> Effects:
        """What was to be appended is damaged: fetch it again, after a while."""
        replica = self._replica
        if isinstance(replica.role, Following):
            following.back_off(replica, replica.role, now)
        return replica.take_effects()

    def on_truncated(self, now: Millis) -> Effects:
        """The log was cut as requested."""
        following.fetch_next(self._replica, now)
        return self._replica.take_effects()

    def sync_point(self) -> SyncPoint:
        """To be taken when a sync of the log starts, and given back when it has ended."""
        return SyncPoint(self._replica.log.end_offset, self._replica.truncations)

    def on_synced(self, point: SyncPoint, now: Millis) -> Effects:
        """A sync of the log has ended."""
        replica = self._replica
        if replica.is_stopped or point.truncations != replica.truncations:
            return NOTHING
        replica.synced_offset = max(replica.synced_offset, point.end_offset)
        if isinstance(replica.role, Leading):
            leading.advance_commit(replica, replica.role, now)
        else:
            following.fetch_next(replica, now)
        return replica.take_effects()

    def on_state_saved(self, state: QuorumState, now: Millis) -> Effects:
        """A quorum state is on disk. Older ones may be skipped, the newest may not."""
        voting.on_state_saved(self._replica, state, now)
        return self._replica.take_effects()

    def on_snapshot_stored(
        self, snapshot: OffsetAndEpoch, now: Millis, *, is_valid: bool = True
    ) -> Effects:
        """The last chunk of a snapshot is written and synced, and the file was checked.

        One that is not valid is fetched again.
        """
        following.on_snapshot_stored(self._replica, snapshot, is_valid, now)
        return self._replica.take_effects()

    def on_snapshot_installed(
        self, snapshot: OffsetAndEpoch, voters: VoterSet, now: Millis
    ) -> Effects:
        """The snapshot replaced the log as requested; `voters` is the set that it holds."""
        following.on_snapshot_installed(self._replica, snapshot, voters, now)
        return self._replica.take_effects()

    def propose_voters(self, change: VoterChange, now: Millis) -> Effects:
        """Append a changed voter set. It is done when the high watermark has passed its record.

        Raises Refused, and then nothing has changed.
        """
        propose_change(self._replica, change, now)
        return self._replica.take_effects()

    def resign(self, now: Millis) -> Effects:
        """Give up leadership, if there is any, as before a stop."""
        replica = self._replica
        if isinstance(replica.role, Leading):
            leading.resign(replica, replica.role, now)
        return replica.take_effects()

    def statuses(self, now: Millis) -> tuple[ReplicaStatus, ...]:
        """Every replica that this leader knows, itself included; nothing if it does not lead."""
        replica = self._replica
        role = replica.role
        if not isinstance(role, Leading):
            return ()
        own = ReplicaStatus(self.key, replica.is_voter, replica.log.end_offset, now, now)
        rows = [(progress, True) for progress in role.voters.values()]
        rows += [(progress, False) for progress in role.observers.values()]
        return (
            own,
            *(
                ReplicaStatus(
                    progress.key, votes, progress.offset, progress.fetched_at, progress.caught_up_at
                )
                for progress, votes in rows
            ),
        )

    def validate(self) -> None:
        """Assert what holds between any two calls; for tests and simulations."""
        replica = self._replica
        log = replica.log
        assert log.start_offset <= replica.high_watermark <= log.end_offset
        assert replica.synced_offset <= log.end_offset
        assert log.last_epoch <= replica.epoch
        if isinstance(replica.role, Leading):
            assert replica.state == QuorumState(replica.epoch, replica.node_id, replica.key)
            others = [voter.key.node_id for voter in self.voters.others(replica.node_id)]
            assert list(replica.role.voters) == others


def _is_valid(request: Request, node_id: NodeId) -> bool:
    """Whether the fields can be meant seriously; none of them comes from this process."""
    if request.epoch < 0:
        return False
    match request:
        case Vote():
            offset, epoch = request.log_end
            return request.candidate.node_id != node_id and min(offset, epoch) >= 0
        case BeginQuorumEpoch() | EndQuorumEpoch():
            return request.leader_id != node_id and request.leader_id >= 0
        case QuorumFetch():
            offset, epoch = request.position
            return 0 <= request.replica.node_id != node_id and min(offset, epoch) >= 0
        case SnapshotFetch():
            return 0 <= request.replica.node_id != node_id and request.position >= 0
        case UpdateVoter():
            return request.voter.key.node_id != node_id


def _refusal(request: Request, error: ErrorCode, epoch: LeaderEpoch) -> Reply:
    """It names no leader and promises nothing, so it need not wait for the disk."""
    match request:
        case Vote():
            return VoteReply(error, epoch, None, False)
        case QuorumFetch():
            return QuorumFetchReply(error, epoch, None)
        case SnapshotFetch():
            return SnapshotFetchReply(error, epoch, None)
        case _:
            return EpochReply(error, epoch, None)
