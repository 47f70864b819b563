"""Quorum nodes with real logs on simulated time and disks, sending typed messages to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.broker.quorum.metadata_log import MetadataLog
from penstock.broker.quorum.quorum_node import QuorumNode
from penstock.broker.quorum.quorum_state_file import load_quorum_state
from penstock.broker.quorum.snapshot_files import read_snapshot, write_snapshot
from penstock.consensus.raft import (
    OffsetAndEpoch,
    QuorumState,
    RaftNode,
    RaftSettings,
    ReplicaKey,
    Voter,
    VoterSet,
)
from penstock.log import LogDirectory, OpenFiles
from penstock.log.files import sync_folder
from penstock.machine import JournalRecord
from penstock.model import NO_OFFSET, Millis, Moment, NodeId, Offset, TopicPartition
from tests.support.cluster_simulation.disk import Disk, Disks
from tests.support.cluster_simulation.event_loop import SimulatedLoop
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.world import World
from tests.support.settings import default_log_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.consensus.raft import Reply, Request, RoleChange

METADATA = TopicPartition("__cluster_metadata", 0)
SETTINGS = default_log_settings(segment_bytes=2000, max_message_bytes=1 << 20, flush_messages=1)


class Replica:
    """One node's process: started, killed and started again on the same disk."""

    def __init__(self, cluster: Cluster, node_id: int, path: Path) -> None:
        self.node_id = NodeId(node_id)
        self.disk = Disk(path, cluster.world.rng)
        cluster.disks.add(self.disk)
        self.committed = Offset(0)
        self.roles: list[RoleChange] = []
        self.faults: list[str] = []
        self.is_full = False
        self.installed: list[OffsetAndEpoch] = []
        self._cluster = cluster
        self._path = path
        self.loop: SimulatedLoop | None = None
        self.node: QuorumNode
        self.folder: LogDirectory

    def start(self) -> None:
        cluster = self._cluster
        self.loop = loop = SimulatedLoop(cluster.world, cluster.network, f"node{self.node_id}")
        self.folder = LogDirectory.open(self._path / "data", OpenFiles(100))
        sync_folder(str(self._path))
        log = MetadataLog(self.folder.open_partition(METADATA, SETTINGS, now=Millis(0)))
        place = self._path / "data" / str(METADATA)
        raft = RaftNode(
            Voter(ReplicaKey(self.node_id, UUID(int=self.node_id))),
            log,
            load_quorum_state(place) or QuorumState(),
            log.voter_sets() or [(NO_OFFSET, cluster.voters)],
            RaftSettings(),
            lambda: Millis(cluster.world.rng.randrange(300)),
        )

        def clock() -> Moment:
            return Moment(Millis(loop.steady_ms()), Millis(loop.wall_ms()))

        self.node = QuorumNode(raft, log, place, Wire(cluster, self), self, clock)
        loop.call_soon(self.node.start)

    def kill(self, *, power: bool) -> None:
        assert self.loop is not None
        self.loop.kill()
        self.loop = None
        self.disk.close_descriptors()
        if power:
            self.disk.lose_power()

    @property
    def is_alive(self) -> bool:
        return self.loop is not None and not self.faults

    def records(self) -> list[bytes | None]:
        batches = self.node.log.read_batches(self.node.log.start_offset, self.committed)
        return [value for batch in batches for _, value in batch.pairs]

    # What the node reports.

    def on_role(self, change: RoleChange) -> None:
        self.roles.append(change)

    def on_committed(self, high_watermark: Offset) -> None:
        self.committed = high_watermark

    def on_snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        self.installed.append(snapshot)
        self.committed = snapshot.offset

    def on_fault(self, reason: str) -> None:
        self.faults.append(reason)

    def on_full_disk(self, *, is_full: bool) -> None:
        self.is_full = is_full


class Wire:
    """Messages to other replicas, with a delay and without bytes."""

    def __init__(self, cluster: Cluster, own: Replica) -> None:
        self._cluster = cluster
        self._own = own

    def send(
        self,
        node_id: NodeId | None,
        request: Request,
        on_reply: Callable[[Reply], None],
        on_lost: Callable[[], None],
    ) -> None:
        cluster, loop = self._cluster, self._own.loop
        target = cluster.replicas[node_id or 1]
        assert loop is not None
        if target.loop is None:
            loop.call_later(0.001, on_lost)
            return
        there = target.loop

        def arrive() -> None:
            target.node.request(request).listen(answer)

        def answer(result: Reply | Exception) -> None:
            assert not isinstance(result, Exception)
            loop.call_later(0.001, on_reply, result)

        there.call_later(0.001, arrive)

    def close(self) -> None:
        """Nothing is open."""


class Cluster:
    """Three replicas."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.disks = Disks()
        self.disks.install(patch)
        self.voters = VoterSet(Voter(ReplicaKey(NodeId(number))) for number in (1, 2, 3))
        self.replicas = {number: Replica(self, number, path / str(number)) for number in (1, 2, 3)}

    def start(self) -> None:
        for replica in self.replicas.values():
            replica.start()

    def leader(self) -> Replica:
        def leaders() -> list[Replica]:
            return [
                each for each in self.replicas.values() if each.is_alive and each.node.is_leader
            ]

        assert self.world.run_until(lambda: bool(leaders()), within_s=5)
        return max(leaders(), key=lambda each: each.node.raft.epoch)

    def append(self, value: bytes) -> Offset:
        leader = self.leader()
        assert leader.loop is not None
        appended: list[Offset] = []
        leader.loop.call_soon(
            lambda: appended.append(
                leader.node.append([JournalRecord(b"key", value)], leader.node.raft.epoch)
            )
        )
        assert self.world.run_until(
            lambda: bool(appended) and leader.committed >= appended[0], within_s=5
        )
        return appended[0]

    def wait_equal(self, end_offset: Offset) -> None:
        alive = [replica for replica in self.replicas.values() if replica.is_alive]
        assert self.world.run_until(
            lambda: all(replica.committed >= end_offset for replica in alive), within_s=10
        )


@pytest.fixture(params=range(3))
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    with monkeypatch.context() as patch:
        cluster = Cluster(tmp_path, patch, request.param)
        cluster.start()
        yield cluster
        for replica in cluster.replicas.values():
            if replica.loop is not None:
                replica.kill(power=False)


def test_a_leader_is_elected_and_what_it_appends_reaches_every_replica(cluster: Cluster) -> None:
    for number in range(20):
        end_offset = cluster.append(b"%d" % number)
    cluster.wait_equal(end_offset)
    for replica in cluster.replicas.values():
        assert replica.records() == [b"%d" % number for number in range(20)]
        assert not replica.faults


def test_after_a_power_cut_of_the_leader_the_next_append_is_committed_within_two_seconds(
    cluster: Cluster,
) -> None:
    cluster.append(b"before")
    killed = cluster.leader()
    killed.kill(power=True)
    killed_at_s = cluster.world.now_s
    end_offset = cluster.append(b"after")
    assert cluster.world.now_s - killed_at_s < 2

    killed.start()
    cluster.wait_equal(end_offset)
    for replica in cluster.replicas.values():
        assert replica.records() == [b"before", b"after"]


def test_all_replicas_lose_power_and_keep_what_was_committed(cluster: Cluster) -> None:
    for number in range(10):
        cluster.append(b"%d" % number)
    for replica in cluster.replicas.values():
        replica.kill(power=True)
    cluster.start()
    end_offset = cluster.append(b"again")
    cluster.wait_equal(end_offset)
    for replica in cluster.replicas.values():
        assert replica.records() == [*(b"%d" % number for number in range(10)), b"again"]


def test_a_replica_that_is_behind_the_start_of_the_log_gets_a_snapshot(cluster: Cluster) -> None:
    asleep = next(each for each in cluster.replicas.values() if each is not cluster.leader())
    asleep.kill(power=False)
    leader = cluster.leader()
    for number in range(30):
        cluster.append(b"%d" % number)
        if number in (9, 19):  # the log starts at the older of two snapshots
            snapshot = OffsetAndEpoch(leader.committed, leader.node.raft.epoch)
            voters = leader.node.raft.voters_at(snapshot.offset)
            records = [JournalRecord(b"state", b"up to %d" % number)]
            write_snapshot(leader.node.log.folder, snapshot, voters, records, Millis(0))
            leader.node.snapshot_stored(snapshot)
    assert leader.node.log.start_offset > 0
    asleep.start()
    end_offset = cluster.append(b"after")
    cluster.wait_equal(end_offset)

    assert asleep.installed == [snapshot]
    read = list(read_snapshot(asleep.node.log.folder, snapshot))
    assert read == [cluster.leader().node.raft.voters, [(b"state", b"up to 19")]]
    assert asleep.records() == [*(b"%d" % number for number in range(20, 30)), b"after"]


def test_a_failed_sync_ends_the_replica_and_the_others_go_on(cluster: Cluster) -> None:
    leader = cluster.leader()
    cluster.append(b"before")
    leader.disk.fsync_failure_share = 1.0
    assert leader.loop is not None
    leader.loop.call_soon(
        lambda: leader.node.append([JournalRecord(b"key", b"lost")], leader.node.raft.epoch)
    )
    assert cluster.world.run_until(lambda: bool(leader.faults), within_s=2)
    assert "disk" in leader.faults[0]
    cluster.append(b"after")


@pytest.mark.parametrize("free_bytes", [0, 150, 1_000])
def test_a_follower_on_a_full_disk_pauses_and_follows_when_there_is_space(
    cluster: Cluster, free_bytes: int
) -> None:
    cluster.append(b"before")
    full = next(each for each in cluster.replicas.values() if each is not cluster.leader())
    full.disk.free_bytes = free_bytes
    for number in range(30):
        end_offset = cluster.append(b"%d" % number)
    assert cluster.world.run_until(lambda: full.is_full, within_s=2)
    cluster.world.run_for(5)
    assert full.committed < end_offset
    full.disk.free_bytes = None
    cluster.wait_equal(end_offset)
    assert not full.is_full
    for replica in cluster.replicas.values():
        assert not replica.faults
        assert replica.records() == [b"before", *(b"%d" % number for number in range(30))]


def test_a_leader_on_a_full_disk_lets_another_replica_lead(cluster: Cluster) -> None:
    cluster.append(b"before")
    full = cluster.leader()
    full.disk.free_bytes = 0
    assert full.loop is not None
    refused: list[OSError] = []

    def append() -> None:
        try:
            full.node.append([JournalRecord(b"key", b"refused")], full.node.raft.epoch)
        except OSError as error:
            refused.append(error)

    full.loop.call_soon(append)
    assert cluster.world.run_until(lambda: not full.node.is_leader, within_s=2)
    assert refused
    end_offset = cluster.append(b"after")
    assert cluster.leader() is not full
    full.disk.free_bytes = None
    cluster.wait_equal(end_offset)
    for replica in cluster.replicas.values():
        assert not replica.faults
        assert replica.records() == [b"before", b"after"]


def test_replicas_whose_disks_are_all_full_go_on_when_there_is_space(cluster: Cluster) -> None:
    cluster.append(b"before")
    for replica in cluster.replicas.values():
        replica.disk.free_bytes = 0
    leader = cluster.leader()
    assert leader.loop is not None
    leader.loop.call_soon(leader.node.resign)
    cluster.world.run_for(10)
    assert not any(replica.faults for replica in cluster.replicas.values())
    for replica in cluster.replicas.values():
        replica.disk.free_bytes = None
    cluster.wait_equal(cluster.append(b"after"))
