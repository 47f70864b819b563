"""A replica that does not lead: it learns who leads, fetches that log, and cuts its own back.

Invariant: a fetch at an offset is sent only when everything below it is synced here, by observers
too, so that an observer which becomes a voter has promised nothing that it cannot keep. Elections
are not started here; see `voting`.
"""

from penstock.consensus.raft.effects import SnapshotChunk
from penstock.consensus.raft.messages import (
    BeginQuorumEpoch,
    EpochReply,
    QuorumFetch,
    QuorumFetchReply,
    Reply,
    Request,
    SnapshotFetch,
    SnapshotFetchReply,
    UpdateVoter,
)
from penstock.consensus.raft.quorum_state import EMPTY_LOG, OffsetAndEpoch, QuorumState
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import (
    NEVER,
    Following,
    Leading,
    PendingSnapshot,
    RoleState,
    Unattached,
    VotingRound,
)
from penstock.consensus.raft.voters import VoterSet
from penstock.errors import ErrorCode
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, Millis, NodeId, Offset


def become_unattached(replica: Replica, epoch: LeaderEpoch, now: Millis) -> None:
    """No leader is known that works. An election that is due stays due."""
    role = replica.role
    if not replica.may_stand:
        deadline = NEVER
    elif isinstance(role, Unattached | VotingRound):
        deadline = role.deadline
    else:
        deadline = replica.election_deadline(now)
    if epoch > replica.epoch:
        replica.change_state(QuorumState(epoch))
    replica.move(Unattached(deadline, now))
    refuse_parked(replica, role)
    search_leader(replica, now)


def become_follower(replica: Replica, epoch: LeaderEpoch, leader_id: NodeId, now: Millis) -> None:
    """Fetch from this leader. It leads the epoch for good, so a repeated call changes nothing."""
    role = replica.role
    voted = replica.state.voted if epoch == replica.epoch else None
    replica.change_state(QuorumState(epoch, leader_id, voted))
    timeout_ms = replica.settings.fetch_timeout_ms
    replica.move(Following(leader_id, Millis(now + timeout_ms), Millis(now + timeout_ms)))
    refuse_parked(replica, role)
    if replica.download is not None and not replica.download.is_complete:
        replica.download = None  # chunks of different leaders do not make one file
    _install_if_stored(replica)
    fetch_next(replica, now)


def may_follow(replica: Replica, epoch: LeaderEpoch, leader_id: NodeId) -> bool:
    """Whether a replica that claims to lead, or is said to, contradicts nothing known here."""
    if leader_id == replica.node_id:
        return False
    return epoch > replica.epoch or replica.state.leader_id in (None, leader_id)


def learn_epoch(replica: Replica, sender: NodeId | None, reply: Reply, now: Millis) -> bool:
    """Take a newer epoch, or a leader that is not followed, from a reply; whether it had one."""
    epoch, leader_id = reply.epoch, reply.leader_id
    if epoch < replica.epoch:
        return False
    is_newer = epoch > replica.epoch
    if leader_id is not None and may_follow(replica, epoch, leader_id):
        if not is_newer and (
            isinstance(replica.role, Following) or _is_outdated_referral(replica, sender, leader_id)
        ):
            return False
        become_follower(replica, epoch, leader_id, now)
    elif is_newer:
        become_unattached(replica, epoch, now)
    else:
        return False
    return True


def _is_outdated_referral(replica: Replica, sender: NodeId | None, leader_id: NodeId) -> bool:
    """Whether another replica names the leader from which this voter gets no responses.

    If it followed that leader again, voters could refer each other to a dead leader indefinitely.
    """
    return replica.may_stand and replica.state.leader_id == leader_id and sender != leader_id


def on_begin_quorum_epoch(
    replica: Replica, request: BeginQuorumEpoch, caller: CallerId, now: Millis
) -> None:
    """A leader presents itself."""
    error = ErrorCode.none
    if not replica.is_addressed_by(request.voter):
        error = ErrorCode.invalid_voter_key
    elif request.epoch < replica.epoch:
        error = ErrorCode.fenced_leader_epoch
    elif not may_follow(replica, request.epoch, request.leader_id):
        error = ErrorCode.invalid_request
    elif replica.epoch < request.epoch or replica.leader_id is None:
        become_follower(replica, request.epoch, request.leader_id, now)
    replica.reply(caller, EpochReply(error, replica.epoch, replica.leader_id))


def search_leader(replica: Replica, now: Millis) -> None:
    """An observer fetches from any voter, or bootstrap server, to be referred to the leader."""
    role = replica.role
    if not isinstance(role, Unattached) or replica.may_stand or now < role.resend_at:
        return
    targets: list[NodeId | None] = [None]
    targets += [voter.key.node_id for voter in replica.voters.latest.others(replica.node_id)]
    target = targets[replica.search_count % len(targets)]
    replica.search_count += 1
    # It may reach the leader, to which a position is a promise even if the reply is not used.
    position = replica.log_end if replica.is_log_synced else EMPTY_LOG
    role.search = QuorumFetch(replica.epoch, replica.key, position, Millis(0))
    role.resend_at = Millis(now + replica.settings.request_timeout_ms)
    replica.send(target, role.search)


def fetch_next(replica: Replica, now: Millis) -> None:
    """Send the next request to the leader, unless one is under way or the disk comes first."""
    role = replica.role
    if not isinstance(role, Following) or role.in_flight is not None:
        return
    download = replica.download
    if download is not None:
        if download.is_complete:
            return
        role.in_flight = SnapshotFetch(
            replica.epoch, replica.key, download.snapshot, download.position
        )
    elif replica.is_log_synced:
        wait_ms = replica.settings.fetch_wait_max_ms
        role.in_flight = QuorumFetch(replica.epoch, replica.key, replica.log_end, wait_ms)
    else:
        return
    role.resend_at = Millis(now + replica.settings.request_timeout_ms)
    replica.send(role.leader_id, role.in_flight)


def on_following_tick(replica: Replica, now: Millis) -> None:
    """Repeat what was lost."""
    role = replica.role
    if isinstance(role, Unattached):
        search_leader(replica, now)
        return
    assert isinstance(role, Following)
    if role.resend_at <= now:
        role.in_flight, role.resend_at = None, NEVER
        fetch_next(replica, now)
    if role.update_at <= now:
        role.update_at = Millis(now + replica.settings.fetch_timeout_ms)
        if must_update_voter(replica):
            replica.send(role.leader_id, UpdateVoter(replica.epoch, replica.voter))


def must_update_voter(replica: Replica) -> bool:
    """Whether this replica votes, and its directory or endpoints are not those in the set."""
    entry = replica.voters.latest.find(replica.node_id)
    return entry is not None and entry != replica.voter and replica.is_voter


def on_search_reply(replica: Replica, request: Request, now: Millis) -> None:
    """A reply to an observer's search that named no leader."""
    role = replica.role
    if isinstance(role, Unattached) and role.search is request:
        role.search = None
        role.resend_at = Millis(now + replica.settings.retry_backoff_ms)


def on_leader_reply(
    replica: Replica,
    sender: NodeId | None,
    request: Request,
    reply: QuorumFetchReply | SnapshotFetchReply,
    now: Millis,
) -> None:
    """Only the reply to the request in flight counts, compared by identity.

    If an equal earlier request were taken for it, two fetches would replace each other without end.
    """
    role = replica.role
    if not isinstance(role, Following) or role.in_flight is not request:
        return
    role.in_flight = None
    is_of_leader = sender == role.leader_id and reply.epoch == replica.epoch
    if reply.error is not ErrorCode.none or not is_of_leader:
        if reply.error is ErrorCode.not_leader_or_follower and is_of_leader:
            become_unattached(replica, replica.epoch, now)  # it resigned, or it was restarted
        else:
            replica.download = None
            back_off(replica, role, now)
        return
    role.deadline = Millis(now + replica.settings.fetch_timeout_ms)
    role.resend_at, role.has_fetched, role.is_leader_lost = NEVER, True, False
    if isinstance(reply, SnapshotFetchReply):
        _on_snapshot_chunk(replica, role, reply, now)
    elif reply.diverging is not None:
        _cut_back(replica, role, reply.diverging, now)
    elif reply.snapshot is not None:
        _start_download(replica, role, reply.snapshot, now)
    else:
        role.leader_high_watermark = max(role.leader_high_watermark, reply.high_watermark)
        if reply.records is not None:
            replica.pending.append_records = reply.records
        else:
            on_log_grown(replica, now)


def on_log_grown(replica: Replica, now: Millis) -> None:
    """As far as this log reaches, the leader's high watermark is its own."""
    role = replica.role
    if isinstance(role, Following):
        replica.advance_high_watermark(min(role.leader_high_watermark, replica.log.end_offset))
        fetch_next(replica, now)


def back_off(replica: Replica, role: Following, now: Millis) -> None:
    """Send nothing for a while."""
    role.resend_at = Millis(now + replica.settings.retry_backoff_ms)


def on_leader_lost(replica: Replica, role: Following, now: Millis) -> None:
    """A hint to start an election early. That is safe: a pre-vote does not raise the epoch."""
    role.in_flight, role.is_leader_lost = None, True
    back_off(replica, role, now)
    role.deadline = min(role.deadline, Millis(now + replica.jitter()))


def refuse_parked(replica: Replica, left: RoleState) -> None:
    """Fetches that wait at a leader learn that it leads no more."""
    if isinstance(left, Leading):
        reply = QuorumFetchReply(ErrorCode.not_leader_or_follower, replica.epoch, replica.leader_id)
        for _, parked in left.parked():
            replica.reply(parked.caller, reply)


def _cut_back(replica: Replica, role: Following, diverging: OffsetAndEpoch, now: Millis) -> None:
    log = replica.log
    if diverging.offset < 0:
        back_off(replica, role, now)
        return
    offset = min(diverging.offset, log.end_offset_for(diverging.epoch).offset)
    if offset < replica.high_watermark:
        replica.stop(
            f"the leader {role.leader_id} of epoch {replica.epoch} lacks committed records: "
            f"its log parts from this one at offset {offset}, "
            f"and {replica.high_watermark} is committed"
        )
    elif offset < log.end_offset:
        replica.truncate(offset)
    else:
        back_off(replica, role, now)


def _start_download(
    replica: Replica, role: Following, snapshot: OffsetAndEpoch, now: Millis
) -> None:
    if snapshot.offset < 0:
        back_off(replica, role, now)
        return
    if snapshot.offset < replica.high_watermark:
        replica.stop(
            f"the leader {role.leader_id} of epoch {replica.epoch} offers a snapshot up to offset "
            f"{snapshot.offset}, and {replica.high_watermark} is committed"
        )
        return
    replica.download = PendingSnapshot(snapshot)
    fetch_next(replica, now)


def _on_snapshot_chunk(
    replica: Replica, role: Following, reply: SnapshotFetchReply, now: Millis
) -> None:
    download = replica.download
    if download is None:
        return
    end = reply.position + len(reply.chunk)
    if reply.position != download.position or not download.position < end <= reply.size_bytes:
        replica.download = None
        back_off(replica, role, now)
        return
    replica.pending.write_snapshot = SnapshotChunk(
        download.snapshot, download.position, reply.chunk, end == reply.size_bytes
    )
    download.position, download.is_complete = end, end == reply.size_bytes
    fetch_next(replica, now)


def on_snapshot_stored(
    replica: Replica, snapshot: OffsetAndEpoch, is_valid: bool, now: Millis
) -> None:
    """All chunks are synced; a snapshot that cannot be read is fetched again."""
    download = replica.download
    if download is None or download.snapshot != snapshot or not download.is_complete:
        return
    if is_valid:
        download.is_stored = True
        _install_if_stored(replica)
    else:
        replica.download = None
        if isinstance(replica.role, Following):
            back_off(replica, replica.role, now)


def _install_if_stored(replica: Replica) -> None:
    """A snapshot is installed by followers only, whose log nothing else changes meanwhile."""
    download = replica.download
    if download is not None and download.is_stored and isinstance(replica.role, Following):
        replica.pending.install_snapshot = download.snapshot


def on_snapshot_installed(
    replica: Replica, snapshot: OffsetAndEpoch, voters: VoterSet, now: Millis
) -> None:
    """The log is replaced: it starts and ends where the snapshot ends."""
    replica.download = None
    replica.voters.replace(snapshot.offset, voters)
    replica.synced_offset = Offset(snapshot.offset)
    replica.truncations += 1
    replica.advance_high_watermark(snapshot.offset)
    fetch_next(replica, now)
