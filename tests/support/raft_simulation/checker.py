"""What must hold after every step of every history, whatever fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.consensus.raft import ReplicaKey, RoleChange, VoterSet
    from penstock.model import LeaderEpoch, NodeId, Offset
    from tests.support.raft_simulation.disk import Entry, Snapshot
    from tests.support.raft_simulation.host import Host


class Checker:
    """Sees the whole cluster, as no replica does."""

    def __init__(self, hosts: dict[NodeId, Host]) -> None:
        self.hosts = hosts
        self.committed: list[Entry] = []  # by offset, since any replica knew it to be committed
        self.commit_ends: dict[LeaderEpoch, int] = {}  # how far each epoch's leader committed
        self.leaders: dict[LeaderEpoch, NodeId] = {}
        self.votes: dict[tuple[ReplicaKey, LeaderEpoch], ReplicaKey] = {}
        self.lost_disks = 0
        self.snapshots: dict[tuple[int, int], Snapshot] = {}

    def on_vote(self, voter: ReplicaKey, epoch: LeaderEpoch, candidate: ReplicaKey) -> None:
        """A replica votes once per epoch, crashes or not."""
        before = self.votes.setdefault((voter, epoch), candidate)
        assert before == candidate, f"{voter.node_id} voted twice in epoch {epoch}"

    def on_leader(self, host: Host, change: RoleChange) -> None:
        """One leader per epoch, and it has all that was committed in the epochs before."""
        node_id = host.voter.key.node_id
        before = self.leaders.get(change.epoch)
        assert before is None, f"{before} and {node_id} lead epoch {change.epoch}"
        self.leaders[change.epoch] = node_id
        disk = host.disk
        ends = [end for epoch, end in self.commit_ends.items() if epoch < change.epoch]
        end = max(ends, default=0)
        assert disk.end_offset >= end, f"leader {node_id} ends before the committed {end}"
        stored = disk.entries[: end - disk.start_offset] if end > disk.start_offset else []
        assert stored == self.committed[disk.start_offset : end], f"leader {node_id} lacks records"

    def on_high_watermark(self, host: Host, before: Offset, after: Offset) -> None:
        """The committed prefix is equal everywhere, and never changes."""
        assert after > before, "a high watermark never moves back"
        disk = host.disk
        first = max(before, disk.start_offset)
        entries = disk.entries[first - disk.start_offset : after - disk.start_offset]
        known = self.committed[first:after]
        assert entries[: len(known)] == known, f"{host.voter.key.node_id} has other records"
        assert len(self.committed) >= first, "a snapshot of what was never committed"
        if len(known) < len(entries):
            self.committed += entries[len(known) :]
            assert host.node is not None
            self.commit_ends[host.node.epoch] = after
            self._check_majority(host, after)

    def _check_majority(self, leader: Host, end_offset: Offset) -> None:
        """What is committed is on the disks of a majority of the voters."""
        assert leader.node is not None
        voters = leader.node.voters
        last = self.committed[end_offset - 1]
        having = 0
        for host in self.hosts.values():
            disk = host.disk
            if host.voter.key in voters and disk.synced_offset >= end_offset:
                index = end_offset - 1 - disk.start_offset
                having += index < 0 or disk.entries[index] == last
        having += self.lost_disks  # what a wiped disk had promised was true then
        assert having >= voters.majority, f"{end_offset} is on {having} of {len(voters.voters)}"
        assert last[0] == leader.node.epoch, "a record of an earlier epoch, committed by count"

    def on_voters_appended(self, host: Host, offset: Offset, voters: VoterSet) -> None:
        """One change at a time: the previous one is committed, and one voter differs."""
        assert host.node is not None
        history = host.disk.voter_sets(host.configured)
        index = next(i for i, row in enumerate(history) if row[0] == offset)
        previous_offset, previous = history[index - 1]
        before = {voter.key.node_id for voter in previous.voters}
        after = {voter.key.node_id for voter in voters.voters}
        assert len(before ^ after) <= 1, f"{previous} to {voters}"
        assert previous_offset < host.node.high_watermark, "two changes in progress"

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Two snapshots of one offset hold the same."""
        assert snapshot.end.offset <= len(self.committed), "a snapshot of uncommitted records"
        before = self.snapshots.setdefault(snapshot.end, snapshot)
        assert before == snapshot, f"{before} and {snapshot}"
        assert self.committed[snapshot.end.offset - 1][0] == snapshot.end.epoch
