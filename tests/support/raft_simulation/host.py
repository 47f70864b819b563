"""The shell of a simulated replica: carries out effects on a disk and a bus, as a broker would."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

from penstock.consensus.raft import (
    Effects,
    OffsetAndEpoch,
    QuorumFetchReply,
    QuorumState,
    RaftNode,
    RaftSettings,
    ReplicaKey,
    Reply,
    Request,
    Role,
    SnapshotFetch,
    SnapshotFetchReply,
    Vote,
    Voter,
    VoterEndpoint,
    VoteReply,
    VoterSet,
    VotersRecord,
)
from penstock.errors import ErrorCode
from penstock.model import Millis, NodeId, Offset
from tests.support.raft_simulation.disk import Disk, Entry, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.machine import CallerId
    from tests.support.raft_simulation.checker import Checker

SNAPSHOT_BYTES = b"abc"  # its chunks only count bytes; the content is known to the checker


def make_voter(node_id: NodeId, life: int = 0) -> Voter:
    """Of a node with its first disk, or with one that replaced it."""
    directory_id = UUID(int=node_id * 100 + life + 1)
    endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", 9000 + node_id)
    return Voter(ReplicaKey(node_id, directory_id), (endpoint,))


class Bus(Protocol):
    """What surrounds a host: the network, and a disk that takes its time."""

    checker: Checker

    def send(self, host: Host, to: NodeId | None, request: Request) -> None: ...
    def reply(self, host: Host, caller: CallerId, reply: Reply) -> None: ...
    def save(self, host: Host, state: QuorumState) -> None: ...
    def sync(self, host: Host) -> None: ...
    def store_snapshot(self, host: Host, snapshot: OffsetAndEpoch) -> None: ...
    def is_damaged(self) -> bool: ...
    def fault(self, host: Host, reason: str) -> None: ...
    def note(self, host: Host, effects: Effects) -> None: ...


class Caller(NamedTuple):
    """Where a reply goes, and to what."""

    source: NodeId
    incarnation: int
    request: Request
    sender: NodeId | None  # what the reply is said to come from: None, if any server would do


class Host:
    """One machine. Its disk outlives its process."""

    def __init__(
        self,
        voter: Voter,
        configured: VoterSet,
        settings: RaftSettings,
        bus: Bus,
        jitter: Callable[[], Millis],
    ) -> None:
        self.voter = voter
        self.configured = configured
        self.settings = settings
        self.bus = bus
        self.jitter = jitter
        self.disk = Disk()
        self.node: RaftNode | None = None  # None: the process does not run
        self.incarnation = 0
        self.fetch_count_max = 4
        self.chunk_bytes = 1
        self.callers: dict[CallerId, Caller] = {}
        self.high_watermark = Offset(0)
        self.clock_offset = 0
        self.paused_until = 0
        self.timer_at: int | None = None  # of the tick that is scheduled, in the bus's time
        self.is_syncing = False
        self.is_saving = False
        self.is_disk_stuck = False
        self.sync_max_ms = 1
        self.is_dead = False  # for good

    def start(self, now: Millis) -> None:
        assert self.node is None
        self.incarnation += 1
        disk = self.disk
        self.node = RaftNode(
            self.voter,
            disk,
            disk.state,
            disk.voter_sets(self.configured),
            self.settings,
            self.jitter,
        )
        self.high_watermark = self.node.high_watermark
        self.carry_out(self.node.start(now), now)

    def stop(self) -> None:
        self.node = None
        self.callers.clear()

    def append(self, values: list[object], now: Millis) -> None:
        """A client's records; only at a leader."""
        assert self.node is not None
        assert self.node.role is Role.LEADER
        epoch = self.node.epoch
        self.disk.append([(epoch, value) for value in values])
        self.bus.sync(self)
        self.carry_out(self.node.on_appended(now), now)

    def take_snapshot(self, end_offset: Offset) -> None:
        """Of what is applied, which is below the high watermark."""
        node, disk = self.node, self.disk
        assert node is not None
        assert disk.start_offset < end_offset <= node.snapshot_limit
        epoch = disk.entries[end_offset - 1 - disk.start_offset][0]
        snapshot = Snapshot(OffsetAndEpoch(end_offset, epoch), node.voters_at(end_offset))
        self.bus.checker.on_snapshot(snapshot)
        disk.take_snapshot(snapshot)

    def carry_out(self, effects: Effects, now: Millis) -> None:
        """All effects in their order, then the report of what was done to the log, and so on."""
        following: Effects | None = effects
        while following is not None:
            following = self._step(following, now)
        assert self.node is not None
        self.node.validate()

    def _step(self, effects: Effects, now: Millis) -> Effects | None:
        node, bus, checker = self.node, self.bus, self.bus.checker
        assert node is not None
        bus.note(self, effects)
        if effects.fault is not None:
            bus.fault(self, effects.fault)
            return None
        if effects.state is not None:
            bus.save(self, effects.state)
        report = self._change_log(effects, now)
        role = effects.role
        if role is not None and role.role is Role.LEADER:
            checker.on_leader(self, role)
        if effects.high_watermark is not None:
            checker.on_high_watermark(self, self.high_watermark, effects.high_watermark)
            self.high_watermark = effects.high_watermark
        for to, request in effects.requests:
            if isinstance(request, Vote) and not request.is_pre_vote:
                checker.on_vote(self.voter.key, request.epoch, self.voter.key)
            bus.send(self, to, request)
        for caller, reply in effects.replies:
            if isinstance(reply, VoteReply) and reply.is_granted:
                self._check_vote(caller)
            bus.reply(self, caller, self._filled_in(caller, reply))
        return report() if report is not None else None

    def _change_log(self, effects: Effects, now: Millis) -> Callable[[], Effects] | None:
        """Change the log; what to report then."""
        node, disk, checker = self.node, self.disk, self.bus.checker
        assert node is not None
        if effects.truncate_to is not None:
            disk.truncate(effects.truncate_to)
            self.bus.sync(self)
            return lambda: node.on_truncated(now)
        if effects.append_records is not None:
            if self.bus.is_damaged():
                return lambda: node.on_records_refused(now)
            offset, entries = _entries_of(effects.append_records)
            assert offset == disk.end_offset, "records that do not follow the log"
            fetched_sets = disk.append(entries)
            self.bus.sync(self)
            return lambda: node.on_appended(now, fetched_sets)
        if effects.append_control:
            values: list[object] = [
                record.voters if isinstance(record, VotersRecord) else f"leader {record.leader_id}"
                for record in effects.append_control
            ]
            voter_sets = disk.append([(node.epoch, value) for value in values])
            self.bus.sync(self)
            for offset, voters in voter_sets:
                checker.on_voters_appended(self, offset, voters)
            return lambda: node.on_appended(now, voter_sets)
        if effects.write_snapshot is not None and effects.write_snapshot.is_last:
            self.bus.store_snapshot(self, effects.write_snapshot.snapshot)
        if effects.install_snapshot is not None:
            snapshot = checker.snapshots[effects.install_snapshot]
            disk.install(snapshot)
            return lambda: node.on_snapshot_installed(snapshot.end, snapshot.voters, now)
        return None

    def _check_vote(self, caller: CallerId) -> None:
        request = self.callers[caller].request
        assert isinstance(request, Vote)
        if not request.is_pre_vote:
            self.bus.checker.on_vote(self.voter.key, request.epoch, request.candidate)

    def _filled_in(self, caller: CallerId, reply: Reply) -> Reply:
        """With what only the shell has: records, and bytes of a snapshot."""
        disk = self.disk
        if isinstance(reply, QuorumFetchReply) and reply.read_at is not None:
            records = disk.read(reply.read_at, self.fetch_count_max)
            return reply._replace(records=(reply.read_at, records))
        if isinstance(reply, SnapshotFetchReply) and reply.error is ErrorCode.none:
            request = self.callers[caller].request
            assert isinstance(request, SnapshotFetch)
            if disk.latest_snapshot != request.snapshot:
                return reply._replace(error=ErrorCode.snapshot_not_found)
            chunk = SNAPSHOT_BYTES[reply.position : reply.position + self.chunk_bytes]
            return reply._replace(size_bytes=len(SNAPSHOT_BYTES), chunk=chunk)
        return reply


def _entries_of(records: object) -> tuple[Offset, list[Entry]]:
    assert isinstance(records, tuple)
    offset, entries = records
    return offset, entries
