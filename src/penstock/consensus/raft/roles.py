"""The roles of a replica: what each remembers, and which may follow which.

Observers, which have no vote, are unattached or followers. Only data is here; the rules are in
`following`, `leading` and `voting`.
"""

from enum import Enum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from penstock.consensus.raft.messages import QuorumFetch, Request
from penstock.consensus.raft.quorum_state import OffsetAndEpoch
from penstock.consensus.raft.voters import ReplicaKey
from penstock.machine import CallerId
from penstock.machine.transitions import Move, Transitions
from penstock.model import Millis, NodeId, Offset

NEVER: Final = Millis(2**62)


class Role(Enum):
    UNATTACHED = "unattached"  # knows no leader that works
    PROSPECTIVE = "prospective"  # asks whether it could win, without raising the epoch
    CANDIDATE = "candidate"  # raised the epoch, voted for itself and requests votes
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"  # led this epoch and never will again


_R = Role
ROLE_MOVES: Final = Transitions(
    "replica",
    Move(_R.UNATTACHED, _R.UNATTACHED, "the epoch is raised, or a vote is given"),
    Move(_R.UNATTACHED, _R.PROSPECTIVE, "no leader appears in time"),
    Move(_R.UNATTACHED, _R.CANDIDATE, "a leader resigned and named this replica first"),
    Move(_R.UNATTACHED, _R.FOLLOWER, "a leader is known"),
    Move(_R.PROSPECTIVE, _R.UNATTACHED, "the epoch is raised, or a vote is given"),
    Move(_R.PROSPECTIVE, _R.PROSPECTIVE, "the round is not won in time"),
    Move(_R.PROSPECTIVE, _R.CANDIDATE, "a majority would vote for this replica"),
    Move(_R.PROSPECTIVE, _R.FOLLOWER, "a leader is known"),
    Move(_R.CANDIDATE, _R.UNATTACHED, "the epoch is raised"),
    Move(_R.CANDIDATE, _R.PROSPECTIVE, "the round is not won in time"),
    Move(_R.CANDIDATE, _R.LEADER, "a majority votes for this replica"),
    Move(_R.CANDIDATE, _R.FOLLOWER, "another candidate won"),
    Move(_R.LEADER, _R.UNATTACHED, "the epoch is raised"),
    Move(_R.LEADER, _R.FOLLOWER, "a leader of a later epoch is known"),
    Move(_R.LEADER, _R.RESIGNED, "no majority fetches, it stops, or its removal is committed"),
    Move(_R.FOLLOWER, _R.UNATTACHED, "the epoch is raised, or the leader resigns or is lost"),
    Move(_R.FOLLOWER, _R.PROSPECTIVE, "a voter's leader is lost"),
    Move(_R.FOLLOWER, _R.FOLLOWER, "a leader of a later epoch is known"),
    Move(_R.RESIGNED, _R.UNATTACHED, "the epoch is raised; an observer looks for the next leader"),
    Move(_R.RESIGNED, _R.PROSPECTIVE, "no leader appears in time"),
    Move(_R.RESIGNED, _R.FOLLOWER, "a leader of a later epoch is known"),
    name=lambda role: role.value,
)


class Unattached:
    """Waits for a leader; a voter until its deadline, an observer by searching for one."""

    role: ClassVar[Role] = Role.UNATTACHED
    __slots__ = ("deadline", "resend_at", "search")

    def __init__(self, deadline: Millis, resend_at: Millis) -> None:
        self.deadline: Millis = deadline
        self.search: Request | None = None  # a fetch whose reply will name the leader
        self.resend_at: Millis = resend_at  # when an observer searches, again or at all


class VotingRound:
    """One round of votes or pre-votes."""

    __slots__ = ("deadline", "granted", "refused", "resend_at")

    def __init__(self, deadline: Millis) -> None:
        self.deadline: Millis = deadline
        self.granted: dict[NodeId, bool] = {}
        self.refused: dict[NodeId, bool] = {}
        self.resend_at: dict[NodeId, Millis] = {}  # of requests without a reply


class PreVoteRound(VotingRound):
    role: ClassVar[Role] = Role.PROSPECTIVE
    __slots__ = ()


class VoteRound(VotingRound):
    role: ClassVar[Role] = Role.CANDIDATE
    __slots__ = ()


class ParkedFetch(NamedTuple):
    """A fetch that waits for records, or for a higher high watermark."""

    caller: CallerId
    fetch: QuorumFetch
    deadline: Millis


class ReplicaProgress:
    """What a leader knows of another replica."""

    __slots__ = ("caught_up_at", "end_at_fetch", "fetched_at", "key", "offset", "parked", "sent")

    def __init__(self, key: ReplicaKey) -> None:
        self.key: ReplicaKey = key
        self.offset: Offset = Offset(-1)  # everything below is synced there; -1: nothing is known
        self.fetched_at: Millis = Millis(-1)  # -1: not since this replica leads
        self.end_at_fetch: Offset = Offset(-1)  # of the leader's log when this replica fetched last
        self.caught_up_at: Millis = Millis(-1)  # when it had all that the leader had; -1: never
        self.sent: Offset = Offset(-1)  # the high watermark in the last reply
        self.parked: ParkedFetch | None = None

    @property
    def has_fetched(self) -> bool:
        return self.fetched_at >= 0


class Leading:
    """Commits what a majority has synced; resigns when a majority stops fetching."""

    role: ClassVar[Role] = Role.LEADER
    __slots__ = ("begin_at", "has_committed", "observers", "since", "start_offset", "voters")

    def __init__(self, start_offset: Offset, now: Millis, begin_at: Millis) -> None:
        self.start_offset: Offset = start_offset  # of the epoch: where its first record is
        self.since: Millis = now
        self.has_committed: bool = False  # a record of this epoch
        self.begin_at: Millis = begin_at  # when voters that do not fetch are called again
        self.voters: dict[NodeId, ReplicaProgress] = {}  # without the leader
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}

    def parked(self) -> list[tuple[ReplicaProgress, ParkedFetch]]:
        """The replicas with a parked fetch, and that."""
        return [
            (progress, progress.parked)
            for progress in (*self.voters.values(), *self.observers.values())
            if progress.parked is not None
        ]


class Following:
    """Fetches from its leader, one request at a time."""

    role: ClassVar[Role] = Role.FOLLOWER
    __slots__ = (
        "deadline",
        "has_fetched",
        "in_flight",
        "is_leader_lost",
        "leader_high_watermark",
        "leader_id",
        "resend_at",
        "update_at",
    )

    def __init__(self, leader_id: NodeId, deadline: Millis, update_at: Millis) -> None:
        self.leader_id: NodeId = leader_id
        self.deadline: Millis = deadline
        self.has_fetched: bool = False  # once from this leader since it follows it
        self.is_leader_lost: bool = False  # the connection to it ended
        self.in_flight: Request | None = None
        self.resend_at: Millis = NEVER  # of the request in flight, or the end of a backoff
        self.leader_high_watermark: Offset = Offset(0)
        self.update_at: Millis = update_at  # when a voter whose entry is outdated tells its leader


class Resigned:
    """Tells the voters that its epoch has ended."""

    role: ClassVar[Role] = Role.RESIGNED
    __slots__ = ("deadline", "resend_at", "successors")

    def __init__(self, deadline: Millis, successors: tuple[ReplicaKey, ...]) -> None:
        self.deadline: Millis = deadline
        self.successors: tuple[ReplicaKey, ...] = successors
        self.resend_at: dict[NodeId, Millis] = {}


RoleState: TypeAlias = Unattached | PreVoteRound | VoteRound | Leading | Following | Resigned


class PendingSnapshot:
    """A snapshot on its way here. Until it is installed no records are fetched."""

    __slots__ = ("is_complete", "is_stored", "position", "snapshot")

    def __init__(self, snapshot: OffsetAndEpoch) -> None:
        self.snapshot: OffsetAndEpoch = snapshot
        self.position: int = 0
        self.is_complete: bool = False  # all chunks were given to the shell
        self.is_stored: bool = False  # and are synced
