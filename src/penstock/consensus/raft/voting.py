"""Elections: who gets a vote, who stands, and when.

A replica first asks whether it could win (pre-vote), so that one which is cut off raises no epoch.
A vote is granted by what is on disk: once per epoch, to a log that is no shorter. Whether a voter
is in its own voter set does not matter: a candidate asks those that *its* set names, and a voter
that has not received the newest set yet would be missing for the majority.
"""

from penstock.consensus.raft.following import become_unattached, may_follow
from penstock.consensus.raft.leading import become_leader
from penstock.consensus.raft.messages import EndQuorumEpoch, EpochReply, Vote, VoteReply
from penstock.consensus.raft.quorum_state import OffsetAndEpoch, QuorumState
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import (
    Following,
    Leading,
    PreVoteRound,
    Unattached,
    VoteRound,
    VotingRound,
)
from penstock.errors import ErrorCode
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, Millis, NodeId


def on_vote(replica: Replica, vote: Vote, caller: CallerId, now: Millis) -> None:
    """Grant or refuse a vote. A replica that is behind takes the epoch of either kind."""
    error, is_granted = ErrorCode.none, False
    if not replica.is_addressed_by(vote.voter):
        error = ErrorCode.invalid_voter_key
    elif vote.epoch < replica.epoch:
        error = ErrorCode.fenced_leader_epoch
    else:
        if vote.epoch > replica.epoch:
            become_unattached(replica, vote.epoch, now)
        may_grant = _may_grant_pre_vote if vote.is_pre_vote else _may_grant_vote
        is_granted = _is_long_enough(replica, vote.log_end) and may_grant(replica, vote)
        if is_granted and not vote.is_pre_vote:
            _cast_vote(replica, vote, now)
    # A replica that grants a vote does not rely on the leader it knows, so it names none.
    leader_id = None if is_granted else replica.leader_id
    replica.reply(caller, VoteReply(error, replica.epoch, leader_id, is_granted))


def _is_long_enough(replica: Replica, log_end: OffsetAndEpoch) -> bool:
    own = replica.log_end
    return (log_end.epoch, log_end.offset) >= (own.epoch, own.offset)


def _may_grant_vote(replica: Replica, vote: Vote) -> bool:
    """Once per epoch, and only while it has no leader."""
    state = replica.state
    return state.leader_id is None and state.voted in (None, vote.candidate)


def _may_grant_pre_vote(replica: Replica, _vote: Vote) -> bool:
    """Refused by a leader and by those that receive records from one.

    A follower that has not fetched yet grants: it only knows of the leader, which may be dead.
    """
    role = replica.role
    if isinstance(role, Following):
        return role.is_leader_lost or not role.has_fetched
    return not isinstance(role, Leading)


def _cast_vote(replica: Replica, vote: Vote, now: Millis) -> None:
    if replica.state.voted is None:
        replica.change_state(QuorumState(vote.epoch, None, vote.candidate))
        become_unattached(replica, vote.epoch, now)
    if isinstance(replica.role, Unattached) and replica.may_stand:
        replica.role.deadline = replica.election_deadline(now)  # time for the candidate to win


def on_end_quorum_epoch(
    replica: Replica, request: EndQuorumEpoch, caller: CallerId, now: Millis
) -> None:
    """The leader resigned. Its first successor stands without a pre-vote, which others refuse."""
    epoch, leader_id = request.epoch, request.leader_id
    error = ErrorCode.none
    if epoch < replica.epoch:
        error = ErrorCode.fenced_leader_epoch
    elif not may_follow(replica, epoch, leader_id):
        error = ErrorCode.invalid_request
    elif epoch > replica.epoch or replica.leader_id == leader_id:
        become_unattached(replica, epoch, now)
    replica.reply(caller, EpochReply(error, replica.epoch, replica.leader_id))
    is_next = replica.is_voter and request.successors[:1] == (replica.key,)
    if is_next and error is ErrorCode.none and not isinstance(replica.role, VoteRound):
        become_candidate(replica, now)


def on_election_deadline(replica: Replica, now: Millis) -> None:
    """No leader, or no election that was won, within its time."""
    role = replica.role
    assert not isinstance(role, Leading), "a leader has no election deadline"
    if not replica.may_stand:
        become_unattached(replica, replica.epoch, now)
    elif isinstance(role, VoteRound) and not replica.is_saved:
        role.deadline = replica.election_deadline(now)  # its own disk is what it waits for
        role.resend_at = dict.fromkeys(role.resend_at, role.deadline)
    else:
        become_prospective(replica, now)


def become_prospective(replica: Replica, now: Millis) -> None:
    """Ask the voters whether they would vote for this replica in the next epoch."""
    voting_round = PreVoteRound(replica.election_deadline(now))
    replica.move(voting_round)
    if not _count_own(replica, voting_round, now):
        request_votes(replica, voting_round, now)


def become_candidate(replica: Replica, now: Millis) -> None:
    """Raise the epoch and vote for itself; that counts, and requests leave, when it is on disk."""
    replica.change_state(QuorumState(LeaderEpoch(replica.epoch + 1), None, replica.key))
    voting_round = VoteRound(replica.election_deadline(now))
    replica.move(voting_round)
    request_votes(replica, voting_round, now)


def on_state_saved(replica: Replica, state: QuorumState, now: Millis) -> None:
    """The state is on disk: what waited for it may leave."""
    if state != replica.state:
        return
    replica.saved_state = state
    role = replica.role
    if isinstance(role, VoteRound):
        _count_own(replica, role, now)


def on_vote_reply(
    replica: Replica, sender: NodeId | None, vote: Vote, reply: VoteReply, now: Millis
) -> None:
    """Count a reply of this round."""
    voting_round = replica.role
    expected = PreVoteRound if vote.is_pre_vote else VoteRound
    if not isinstance(voting_round, expected) or vote.epoch != replica.epoch or sender is None:
        return
    voting_round.resend_at.pop(sender, None)
    if reply.is_granted and reply.error is ErrorCode.none and reply.epoch == vote.epoch:
        voting_round.granted[sender] = True
        _count(replica, voting_round, now)
    else:
        voting_round.refused[sender] = True


def request_votes(replica: Replica, voting_round: VotingRound, now: Millis) -> None:
    """Send, or repeat, the requests that have no reply."""
    is_pre_vote = isinstance(voting_round, PreVoteRound)
    for voter in replica.voters.latest.others(replica.node_id):
        node_id = voter.key.node_id
        if node_id in voting_round.granted or node_id in voting_round.refused:
            continue
        if voting_round.resend_at.get(node_id, now) <= now:
            voting_round.resend_at[node_id] = Millis(now + replica.settings.request_timeout_ms)
            replica.send(
                node_id, Vote(replica.epoch, replica.key, voter.key, replica.log_end, is_pre_vote)
            )


def _count_own(replica: Replica, voting_round: VotingRound, now: Millis) -> bool:
    """A replica that was removed may stand, and does not count for itself."""
    if replica.is_voter:
        voting_round.granted[replica.node_id] = True
    return _count(replica, voting_round, now)


def _count(replica: Replica, voting_round: VotingRound, now: Millis) -> bool:
    """Whether the round is won; then its prize is taken."""
    voters = replica.voters.latest
    granting = [node_id for node_id in voting_round.granted if voters.find(node_id) is not None]
    if len(granting) < voters.majority:
        return False
    if isinstance(voting_round, PreVoteRound):
        become_candidate(replica, now)
    else:
        become_leader(replica, tuple(sorted(granting)), now)
    return True
