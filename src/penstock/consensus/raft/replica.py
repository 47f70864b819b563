"""What all roles of one replica share: durable state, voters, how far the log is safe, effects.

Invariant: a message leaves only while the quorum state that it follows from is on disk. Until then
it waits here; `HELD_MAX` limits how many do. No rule of the protocol is here.
"""

from collections.abc import Callable
from typing import Final

from penstock.consensus.raft.effects import (
    ControlRecord,
    Effects,
    RoleChange,
    SnapshotChunk,
)
from penstock.consensus.raft.messages import QuorumFetchReply, Reply, Request
from penstock.consensus.raft.quorum_state import OffsetAndEpoch, QuorumState, RaftLog
from penstock.consensus.raft.roles import (
    ROLE_MOVES,
    Following,
    Leading,
    PendingSnapshot,
    RoleState,
    Unattached,
)
from penstock.consensus.raft.settings import RaftSettings
from penstock.consensus.raft.voters import NO_DIRECTORY, ReplicaKey, Voter, VoterHistory
from penstock.errors import ErrorCode
from penstock.machine import CallerId
from penstock.model import LeaderEpoch, Millis, NodeId, Offset

HELD_MAX: Final = 256


class PendingEffects:
    """The effects of the step that runs now; the fields are those of `Effects`."""

    __slots__ = (
        "append_control",
        "append_records",
        "fault",
        "high_watermark",
        "install_snapshot",
        "replies",
        "requests",
        "role",
        "state",
        "truncate_to",
        "write_snapshot",
    )

    def __init__(self) -> None:
        self.fault: str | None = None
        self.state: QuorumState | None = None
        self.truncate_to: Offset | None = None
        self.append_records: object | None = None
        self.append_control: tuple[ControlRecord, ...] = ()
        self.write_snapshot: SnapshotChunk | None = None
        self.install_snapshot: OffsetAndEpoch | None = None
        self.role: RoleChange | None = None
        self.high_watermark: Offset | None = None
        self.requests: list[tuple[NodeId | None, Request]] = []
        self.replies: list[tuple[CallerId, Reply]] = []


class Replica:
    """One replica of the quorum, voter or observer."""

    def __init__(
        self,
        voter: Voter,
        log: RaftLog,
        state: QuorumState,
        voters: VoterHistory,
        settings: RaftSettings,
        jitter: Callable[[], Millis],
    ) -> None:
        self.voter = voter
        self.key: ReplicaKey = voter.key
        self.node_id: NodeId = voter.key.node_id
        self.log = log
        self.state: QuorumState = state
        self.saved_state: QuorumState = state
        self.voters = voters
        self.settings = settings
        self.jitter = jitter
        snapshot = log.latest_snapshot
        self.high_watermark: Offset = Offset(0) if snapshot is None else snapshot.offset
        self.synced_offset: Offset = log.end_offset
        self.truncations: int = 0
        self.role: RoleState = Unattached(Millis(0), Millis(0))
        self._reported_role: RoleChange | None = None
        self.download: PendingSnapshot | None = None
        self.search_count = 0
        self.is_stopped: bool = False
        self.pending: PendingEffects = PendingEffects()
        self._held_requests: list[tuple[NodeId | None, Request]] = []
        self._held_replies: list[tuple[CallerId, Reply]] = []

    @property
    def epoch(self) -> LeaderEpoch:
        return self.state.epoch

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters.latest

    @property
    def may_stand(self) -> bool:
        """A voter; also one that was removed by a record which is not known to be committed.

        It may have the longest log, so that no other replica can win; it leads only to commit that.
        """
        if self.is_voter:
            return True
        is_uncommitted = self.voters.latest_offset >= self.high_watermark
        return is_uncommitted and self.voters.was_voter(self.key)

    @property
    def is_saved(self) -> bool:
        return self.state == self.saved_state

    @property
    def is_overloaded(self) -> bool:
        """Whether the disk is so late that no more replies can wait for it."""
        return len(self._held_replies) >= HELD_MAX

    @property
    def leader_id(self) -> NodeId | None:
        """The leader that this replica believes in."""
        role = self.role
        if isinstance(role, Following):
            return role.leader_id
        return self.node_id if isinstance(role, Leading) else None

    @property
    def is_log_synced(self) -> bool:
        return self.synced_offset >= self.log.end_offset

    @property
    def log_end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    def is_addressed_by(self, key: ReplicaKey) -> bool:
        """Whether a request for this key is for this disk; who does not know the disk may ask."""
        return key.node_id == self.node_id and key.directory_id in (
            self.key.directory_id,
            NO_DIRECTORY,
        )

    def election_deadline(self, now: Millis) -> Millis:
        return Millis(now + self.settings.election_timeout_ms + self.jitter())

    def move(self, role: RoleState) -> None:
        """Take another role, and tell the shell."""
        ROLE_MOVES.check(self.role.role, role.role)
        self.role = role
        start_offset = role.start_offset if isinstance(role, Leading) else None
        change = RoleChange(role.role, self.epoch, self.leader_id, start_offset)
        if change != self._reported_role:
            self._reported_role = self.pending.role = change

    def change_state(self, state: QuorumState) -> None:
        """What was not sent in the old state is not sent at all; callers get their replies."""
        assert state.epoch >= self.state.epoch, "an epoch never falls"
        if state != self.state:
            self.state = self.pending.state = state
            self._held_requests.clear()

    def send(self, node_id: NodeId | None, request: Request) -> None:
        self.pending.requests.append((node_id, request))

    def reply(self, caller: CallerId, reply: Reply) -> None:
        self.pending.replies.append((caller, reply))

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Whether it moved; it never moves back."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = self.pending.high_watermark = offset
        return True

    def truncate(self, offset: Offset) -> None:
        """Cut the log, and with it the voter sets that were appended behind the cut."""
        self.pending.truncate_to = offset
        self.voters.truncate_to(offset)
        self.synced_offset = min(self.synced_offset, offset)
        self.truncations += 1

    def stop(self, reason: str) -> None:
        """The quorum broke a promise: nothing this replica does from here on could be right."""
        self.pending.fault = reason
        self.is_stopped = True

    def _reviewed(self, reply: Reply) -> Reply:
        """Records are read when a reply leaves: by then they must still be this leader's."""
        if isinstance(reply, QuorumFetchReply) and reply.read_at is not None:
            is_leader = isinstance(self.role, Leading) and reply.epoch == self.epoch
            if not is_leader or reply.read_at < self.log.start_offset:
                error = ErrorCode.not_leader_or_follower
                return QuorumFetchReply(error, self.epoch, self.leader_id)
        return reply

    def take_effects(self) -> Effects:
        """The effects of this step; its messages only if the state is on disk."""
        pending, self.pending = self.pending, PendingEffects()
        requests, replies = pending.requests, pending.replies
        if self._held_requests:
            self._held_requests += requests
            requests, self._held_requests = self._held_requests, []
        if self._held_replies:
            replies = [(to, self._reviewed(reply)) for to, reply in self._held_replies] + replies
            self._held_replies = []
        if not self.is_saved:
            self._held_requests = requests[-HELD_MAX:]  # a request may be lost, a reply may not
            self._held_replies = replies
            requests, replies = [], []
        return Effects(
            pending.fault,
            pending.state,
            pending.truncate_to,
            pending.append_records,
            pending.append_control,
            pending.write_snapshot,
            pending.install_snapshot,
            pending.role,
            pending.high_watermark,
            tuple(requests),
            tuple(replies),
        )
