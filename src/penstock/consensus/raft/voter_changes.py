"""Changes of the voter set: one at a time, decided by the leader.

A change is refused while an earlier one is uncommitted or before this epoch has committed a record
(else two majorities without a common voter could form), and when the new set would have no majority
of replicas that fetch now (else nothing could ever be committed again).
"""

from typing import NamedTuple, TypeAlias

from penstock.consensus.raft.effects import VotersRecord
from penstock.consensus.raft.following import must_update_voter
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import Leading, ReplicaProgress
from penstock.consensus.raft.voters import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from penstock.errors import ErrorCode, Refused
from penstock.model import Millis


class AddVoter(NamedTuple):
    """An observer that has caught up gets a vote."""

    voter: Voter


class RemoveVoter(NamedTuple):
    key: ReplicaKey


class ReplaceVoter(NamedTuple):
    """A voter has other endpoints, or its directory was not known yet. Who votes stays the same."""

    voter: Voter


VoterChange: TypeAlias = AddVoter | RemoveVoter | ReplaceVoter


def propose_change(replica: Replica, change: VoterChange, now: Millis) -> None:
    """Append the changed set, or raise Refused and change nothing."""
    leading = replica.role
    if not isinstance(leading, Leading):
        raise Refused(
            ErrorCode.not_leader_or_follower,
            f"node {replica.node_id} does not lead the quorum; send this to its leader",
        )
    if is_change_pending(replica, leading):
        raise Refused(
            ErrorCode.request_timed_out,
            "the previous change of the voters is not committed yet; retry",
        )
    voters = replica.voters.latest
    if isinstance(change, AddVoter):
        changed = _with_added(replica, leading, voters, change.voter, now)
    elif isinstance(change, RemoveVoter):
        changed = _with_removed(voters, change.key)
    else:
        changed = _with_replaced(leading, voters, change.voter)
    if changed == voters:
        return
    if not isinstance(change, ReplaceVoter):
        _check_majority_is_live(replica, leading, changed, now)
    replica.pending.append_control = (VotersRecord(changed),)


def is_change_pending(replica: Replica, leading: Leading) -> bool:
    """Whether the latest set could still be undone, as far as this leader knows."""
    return not leading.has_committed or replica.voters.latest_offset >= replica.high_watermark


def update_own_entry(replica: Replica, now: Millis) -> None:
    """A leader whose own entry is outdated replaces it as soon as it may."""
    if must_update_voter(replica):
        propose_change(replica, ReplaceVoter(replica.voter), now)


def _with_added(
    replica: Replica, leading: Leading, voters: VoterSet, voter: Voter, now: Millis
) -> VoterSet:
    key = voter.key
    if voters.find(key.node_id) is not None:
        raise Refused(
            ErrorCode.duplicate_voter,
            f"node {key.node_id} is a voter; remove its old disk first if it was replaced",
        )
    progress = leading.observers.get(key)
    since = now - replica.settings.fetch_timeout_ms
    if progress is None or progress.caught_up_at < since or progress.fetched_at < since:
        raise Refused(
            ErrorCode.request_timed_out,
            f"node {key.node_id} has not caught up with the log; start it as an observer and retry",
        )
    return voters.with_voter(voter)


def _with_removed(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    if key not in voters:
        raise Refused(
            ErrorCode.voter_not_found,
            f"node {key.node_id} with directory {key.directory_id} is not a voter",
        )
    if len(voters.voters) == 1:
        raise Refused(ErrorCode.invalid_request, "the last voter cannot be removed")
    return voters.without_node(key.node_id)


def _with_replaced(leading: Leading, voters: VoterSet, voter: Voter) -> VoterSet:
    key = voter.key
    progress = leading.voters.get(key.node_id)
    known_disks = (key.directory_id, NO_DIRECTORY)
    if key not in voters or (progress and progress.key.directory_id not in known_disks):
        raise Refused(
            ErrorCode.voter_not_found,
            f"node {key.node_id} with directory {key.directory_id} is not a voter",
        )
    return voters.with_voter(voter)


def _check_majority_is_live(
    replica: Replica, leading: Leading, changed: VoterSet, now: Millis
) -> None:
    since = now - replica.settings.check_quorum_timeout_ms
    dead = [
        voter.key.node_id
        for voter in changed.others(replica.node_id)
        if _progress_of(leading, voter.key).fetched_at < since
    ]
    if len(changed.voters) - len(dead) < changed.majority:
        raise Refused(
            ErrorCode.request_timed_out,
            f"{len(changed.voters)} voters need {changed.majority} that run; "
            f"start or remove those that do not fetch: {', '.join(map(str, dead))}",
        )


def _progress_of(leading: Leading, key: ReplicaKey) -> ReplicaProgress:
    return leading.voters.get(key.node_id) or leading.observers[key]
