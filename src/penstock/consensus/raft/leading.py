"""A leader: serves fetches, commits, notices that it has lost its majority, and resigns.

Invariant: the high watermark is what a majority of the voters has *synced*, the leader's own disk
counted by the same rule, and moves only to records of the leader's own epoch. Records of earlier
epochs are committed with them, never by count.
"""

from penstock.consensus.raft.effects import ControlRecord, LeaderChange, VotersRecord
from penstock.consensus.raft.following import refuse_parked
from penstock.consensus.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochReply,
    QuorumFetch,
    QuorumFetchReply,
    SnapshotFetch,
    SnapshotFetchReply,
    UpdateVoter,
)
from penstock.consensus.raft.quorum_state import Diverging, QuorumState, find_position
from penstock.consensus.raft.replica import Replica
from penstock.consensus.raft.roles import (
    NEVER,
    Leading,
    ParkedFetch,
    ReplicaProgress,
    Resigned,
)
from penstock.consensus.raft.voter_changes import ReplaceVoter, propose_change, update_own_entry
from penstock.consensus.raft.voters import NO_DIRECTORY, ReplicaKey
from penstock.errors import ErrorCode, Refused
from penstock.machine import CallerId
from penstock.model import NO_OFFSET, LeaderEpoch, Millis, NodeId, Offset


def become_leader(replica: Replica, granting: tuple[NodeId, ...], now: Millis) -> None:
    """Won the election: begin the epoch with a record of its own, and call the voters."""
    replica.change_state(QuorumState(replica.epoch, replica.node_id, replica.key))
    replica.download = None
    begin_at = Millis(now + replica.settings.begin_epoch_interval_ms)
    leading = Leading(replica.log.end_offset, now, begin_at)
    replica.move(leading)
    track_voters(replica, leading)
    voters = replica.voters.latest
    records: tuple[ControlRecord, ...] = (LeaderChange(replica.node_id, voters, granting),)
    if replica.voters.latest_offset == NO_OFFSET:
        records = (*records, VotersRecord(voters))
    replica.pending.append_control = records
    for voter in voters.others(replica.node_id):
        _call(replica, voter.key)


def track_voters(replica: Replica, leading: Leading) -> None:
    """Follow a new voter set; what is known of a replica stays known when its part changes."""
    known = {progress.key: progress for progress in leading.voters.values()}
    known |= leading.observers
    voters = replica.voters.latest
    leading.voters = {}
    for voter in voters.others(replica.node_id):
        matching = [key for key in known if key.node_id == voter.key.node_id and key in voters]
        progress = known.pop(matching[0]) if matching else ReplicaProgress(voter.key)
        leading.voters[voter.key.node_id] = progress
    leading.observers = {key: progress for key, progress in known.items() if progress.has_fetched}


def on_leader_log_grown(replica: Replica, leading: Leading, now: Millis) -> None:
    """Records were appended, perhaps with a new voter set."""
    advance_commit(replica, leading, now)
    if replica.role is leading:
        _release(replica, leading, now)


def advance_commit(replica: Replica, leading: Leading, now: Millis) -> None:
    """Move the high watermark as far as a majority has synced."""
    voters = replica.voters.latest
    synced = [progress.offset for progress in leading.voters.values()]
    if replica.is_voter:
        synced.append(replica.synced_offset)
    synced.sort()
    offset = synced[-voters.majority]
    if not ends_in_own_epoch(leading, offset) or not replica.advance_high_watermark(offset):
        return
    leading.has_committed = True
    _release(replica, leading, now)
    if replica.voters.latest_offset < offset:
        if replica.is_voter:
            update_own_entry(replica, now)
        else:
            resign(replica, leading, now)  # its own removal is committed


def ends_in_own_epoch(leading: Leading, offset: Offset) -> bool:
    """Whether the record before `offset` is of the leader's epoch, so that it can be committed."""
    return offset > leading.start_offset


def check_leader(replica: Replica, epoch: LeaderEpoch) -> ErrorCode:
    """What to reply to a request that only the leader of this epoch serves."""
    if epoch < replica.epoch:
        return ErrorCode.fenced_leader_epoch
    if epoch > replica.epoch:
        return ErrorCode.unknown_leader_epoch
    if not isinstance(replica.role, Leading):
        return ErrorCode.not_leader_or_follower
    return ErrorCode.none


def on_fetch(replica: Replica, fetch: QuorumFetch, caller: CallerId, now: Millis) -> None:
    """Records, a diverging end or a snapshot now; else the fetch is parked."""
    leading = replica.role
    error = check_leader(replica, fetch.epoch)
    if error is not ErrorCode.none or not isinstance(leading, Leading):
        replica.reply(caller, QuorumFetchReply(error, replica.epoch, replica.leader_id))
        return
    progress = _progress_for(replica, leading, fetch.replica, now)
    if progress is None:
        error = ErrorCode.request_timed_out
        replica.reply(caller, QuorumFetchReply(error, replica.epoch, replica.node_id))
        return
    if progress.parked is not None:
        _reply_to(replica, progress, progress.parked)
    mismatch = find_position(replica.log, fetch.position)
    if mismatch is not None:
        progress.fetched_at = now
        reply = QuorumFetchReply(ErrorCode.none, replica.epoch, replica.node_id)
        if isinstance(mismatch, Diverging):
            replica.reply(caller, reply._replace(diverging=mismatch.end))
        else:
            replica.reply(caller, reply._replace(snapshot=mismatch.snapshot))
        return
    _note_fetch(replica, progress, fetch.position.offset, now)
    wait_ms = min(fetch.max_wait_ms, replica.settings.fetch_wait_max_ms)
    progress.parked = ParkedFetch(caller, fetch, Millis(now + wait_ms))
    advance_commit(replica, leading, now)
    if replica.role is leading:
        _release(replica, leading, now)


def on_snapshot_fetch(
    replica: Replica, request: SnapshotFetch, caller: CallerId, now: Millis
) -> None:
    """The shell reads the chunk; here it is only a sign of life."""
    leading = replica.role
    error = check_leader(replica, request.epoch)
    if isinstance(leading, Leading) and error is ErrorCode.none:
        progress = _progress_for(replica, leading, request.replica, now)
        if progress is not None:
            progress.fetched_at = now
    replica.reply(
        caller, SnapshotFetchReply(error, replica.epoch, replica.leader_id, request.position)
    )


def on_update_voter(replica: Replica, request: UpdateVoter, caller: CallerId, now: Millis) -> None:
    """A voter reports its directory or endpoints; it repeats that until they are in the set."""
    error = check_leader(replica, request.epoch)
    if error is ErrorCode.none:
        try:
            propose_change(replica, ReplaceVoter(request.voter), now)
        except Refused as refusal:
            error = refusal.code
    replica.reply(caller, EpochReply(error, replica.epoch, replica.leader_id))


def quorum_deadline(replica: Replica, leading: Leading) -> Millis:
    """When this leader must resign, unless a majority fetches until then."""
    needed = replica.voters.latest.majority - replica.is_voter
    if needed == 0:
        return NEVER
    fetched_at = sorted(progress.fetched_at for progress in leading.voters.values())
    since = max(fetched_at[-needed], leading.since)
    return Millis(since + replica.settings.check_quorum_timeout_ms)


def leader_wake_at(replica: Replica, leading: Leading) -> Millis:
    parked = [parked.deadline for _, parked in leading.parked()]
    begin_at = leading.begin_at if leading.voters else NEVER
    return min(quorum_deadline(replica, leading), begin_at, *parked)


def on_leader_tick(replica: Replica, leading: Leading, now: Millis) -> None:
    """Resign without a majority; reply to fetches that waited long enough; call silent voters."""
    if quorum_deadline(replica, leading) <= now:
        resign(replica, leading, now)
        return
    _release(replica, leading, now)
    if leading.begin_at <= now:
        interval_ms = replica.settings.begin_epoch_interval_ms
        leading.begin_at = Millis(now + interval_ms)
        for voter in replica.voters.latest.others(replica.node_id):
            if leading.voters[voter.key.node_id].fetched_at <= now - interval_ms:
                _call(replica, voter.key)


def resign(replica: Replica, leading: Leading, now: Millis) -> None:
    """Lead no more in this epoch, and name the voters with the longest logs as successors."""
    ranked = sorted(leading.voters.values(), key=lambda progress: -progress.offset)
    successors = tuple([progress.key for progress in ranked])
    deadline = Millis(now + replica.settings.fetch_timeout_ms + replica.jitter())
    resigned = Resigned(deadline, successors)
    replica.move(resigned)
    refuse_parked(replica, leading)
    for voter in replica.voters.latest.others(replica.node_id):
        resigned.resend_at[voter.key.node_id] = now
    on_resigned_tick(replica, resigned, now)


def on_resigned_tick(replica: Replica, resigned: Resigned, now: Millis) -> None:
    """Repeat to each voter that the epoch has ended until it knows."""
    for node_id, resend_at in resigned.resend_at.items():
        if resend_at <= now:
            resigned.resend_at[node_id] = Millis(now + replica.settings.request_timeout_ms)
            replica.send(
                node_id, EndQuorumEpoch(replica.epoch, replica.node_id, resigned.successors)
            )


def on_end_epoch_reply(replica: Replica, sender: NodeId) -> None:
    """This voter knows."""
    if isinstance(replica.role, Resigned):
        replica.role.resend_at.pop(sender, None)


def _call(replica: Replica, voter: ReplicaKey) -> None:
    replica.send(voter.node_id, BeginQuorumEpoch(replica.epoch, replica.node_id, voter))


def _progress_for(
    replica: Replica, leading: Leading, key: ReplicaKey, now: Millis
) -> ReplicaProgress | None:
    """A set that does not know a voter's disk counts the first one that fetches.

    None: there are too many observers. To drop one that fetches for another would make all of them
    fetch again and again.
    """
    progress = leading.voters.get(key.node_id)
    if progress is not None and progress.key.directory_id in (key.directory_id, NO_DIRECTORY):
        progress.key = key
        return progress
    observers = leading.observers
    if key not in observers:
        if len(observers) >= replica.settings.observers_max:
            oldest = min(observers.values(), key=lambda observer: observer.fetched_at)
            if oldest.fetched_at >= now - replica.settings.check_quorum_timeout_ms:
                return None
            del observers[oldest.key]
        observers[key] = ReplicaProgress(key)
    return observers[key]


def _note_fetch(replica: Replica, progress: ReplicaProgress, offset: Offset, now: Millis) -> None:
    """A late fetch may name an older offset; what was promised before still holds."""
    progress.offset = max(progress.offset, offset)
    end_offset = replica.log.end_offset
    if offset >= end_offset:
        progress.caught_up_at = now
    elif offset >= progress.end_at_fetch >= 0:
        progress.caught_up_at = max(progress.caught_up_at, progress.fetched_at)
    progress.end_at_fetch, progress.fetched_at = end_offset, now


def _release(replica: Replica, leading: Leading, now: Millis) -> None:
    """Reply to every parked fetch that has something to learn, or waited long enough."""
    end_offset, high_watermark = replica.log.end_offset, replica.high_watermark
    for progress, parked in leading.parked():
        has_more = parked.fetch.position.offset < end_offset or progress.sent < high_watermark
        if has_more or parked.deadline <= now:
            _reply_to(replica, progress, parked)


def _reply_to(replica: Replica, progress: ReplicaProgress, parked: ParkedFetch) -> None:
    progress.parked = None
    progress.sent = replica.high_watermark
    offset = parked.fetch.position.offset
    replica.reply(
        parked.caller,
        QuorumFetchReply(
            ErrorCode.none,
            replica.epoch,
            replica.node_id,
            replica.high_watermark,
            read_at=offset if offset < replica.log.end_offset else None,
        ),
    )
