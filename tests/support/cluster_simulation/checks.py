"""What must hold at every moment in a simulated cluster, read from the brokers' memory and logs.

One leader per epoch, of the metadata and of each partition; committed metadata and committed
records are the same everywhere and never change; every in-sync replica holds all that is committed.
Reads only: looking at a cluster changes nothing.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from penstock.consensus.raft import OffsetAndEpoch, Role
from penstock.model import LeaderEpoch, NodeId, Offset
from penstock.protocol.batch import iterate_headers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from penstock.broker.partition import Partition
    from penstock.node.run_broker import RunningBroker
    from tests.support.cluster_simulation.cluster import Cluster, SimulatedBroker

READ_BYTES = 1 << 20


class ReplicatedPartition(NamedTuple):
    """A partition of one topic, whatever the name is used for later."""

    topic: str
    topic_id: UUID
    number: int


class CommittedBatches:
    """What is known to be committed in one log, by the offset that each batch begins at."""

    def __init__(self) -> None:
        self.end_offset = Offset(0)
        self._batches: dict[int, tuple[int, bytes]] = {}  # end offset and digest

    def add(self, start: int, end: int, digest: bytes) -> str | None:
        """A replica holds this batch below its high watermark; how that differs from others."""
        known = self._batches.setdefault(start, (end, digest))
        self.end_offset = max(self.end_offset, Offset(end))
        if known != (end, digest):
            return f"offsets {start} to {end} differ from what another replica had committed"
        return None


class ClusterChecks:
    """Looks at all brokers; keeps what was seen, to compare with later."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.broken: list[str] = []
        self._controllers: dict[int, NodeId] = {}  # by epoch of the quorum
        self._leaders: dict[tuple[ReplicatedPartition, int], NodeId] = {}
        self._marks: dict[
            tuple[ReplicatedPartition, int], Offset
        ] = {}  # high watermarks of leaders
        self._metadata = CommittedBatches()
        self._logs: defaultdict[ReplicatedPartition, CommittedBatches] = defaultdict(
            CommittedBatches
        )
        self._newest_applied = OffsetAndEpoch(Offset(0), LeaderEpoch(0))
        self._checked: dict[tuple[int, object], Offset] = {}  # by process and log

    def look(self) -> None:
        """Compare everything that changed since the last look."""
        if self.broken:
            return
        for broker, running in self.cluster.running:
            self._look_at_quorum(broker, running)
            for partition in running.partitions:
                self._look_at_partition(broker, partition)
        self._check_in_sync_replicas()

    def _break(self, line: str) -> None:
        self.broken.append(f"{self.cluster.world.now_s - 1000:.3f} {line}")

    # Metadata.

    def _look_at_quorum(self, broker: SimulatedBroker, running: RunningBroker) -> None:
        raft = running.broker.quorum.raft
        if raft.role is Role.LEADER:
            leader = self._controllers.setdefault(raft.epoch, broker.node_id)
            if leader != broker.node_id:
                self._break(f"epoch {raft.epoch} is led by {leader} and by {broker.node_id}")
        place = id(running), "metadata"
        start = max(self._checked.get(place, Offset(0)), running.metadata.start_offset)
        for stored in running.metadata.read_batches(start, raft.high_watermark):
            digest = hashlib.blake2b(
                repr((stored.end, [tuple(map(bytes_of, pair)) for pair in stored.pairs])).encode()
            ).digest()
            wrong = self._metadata.add(start, stored.end.offset, digest)
            if wrong is not None:
                self._break(f"metadata of {broker.host}: {wrong}")
            start = stored.end.offset
        self._checked[place] = start

    # Partitions.

    def _look_at_partition(self, broker: SimulatedBroker, partition: Partition) -> None:
        log, key = partition.log, key_of(partition)
        if not log.start_offset <= log.last_stable_offset <= log.high_watermark <= log.end_offset:
            self._break(f"{broker.host} {partition}: its offsets are out of order")
        if partition.is_leader:
            self._look_at_leader(broker, partition, key)
        place = id(partition.log), key
        start = max(self._checked.get(place, Offset(0)), log.start_offset)
        for begin, end, digest in batches_of(partition, start):
            wrong = self._logs[key].add(begin, end, digest)
            if wrong is not None:
                self._break(f"{broker.host} {partition}: {wrong}")
            start = Offset(end)
        self._checked[place] = start

    def _look_at_leader(
        self, broker: SimulatedBroker, partition: Partition, key: ReplicatedPartition
    ) -> None:
        epoch = partition.leader_epoch
        leader = self._leaders.setdefault((key, epoch), broker.node_id)
        if leader != broker.node_id:
            self._break(f"{partition} epoch {epoch} is led by {leader} and by {broker.node_id}")
        mark = self._marks.get((key, epoch), Offset(0))
        if partition.log.high_watermark < mark and partition.log.high_watermark > 0:
            self._break(f"{broker.host} {partition}: its high watermark went back from {mark}")
        self._marks[key, epoch] = max(mark, partition.log.high_watermark)

    def _check_in_sync_replicas(self) -> None:
        """By the newest metadata that a broker has applied."""
        newest = max(
            (running for _, running in self.cluster.running),
            key=lambda running: running.follower.applied,
            default=None,
        )
        if newest is None or newest.follower.applied < self._newest_applied:
            return  # those that knew more are gone for now
        self._newest_applied = newest.follower.applied
        held = {
            (broker.node_id, key_of(partition)): partition
            for broker, running in self.cluster.running
            for partition in running.partitions
        }
        for topic in newest.image.state.topics.values():
            for index, row in enumerate(topic.partitions):
                key = ReplicatedPartition(topic.name, topic.topic_id, index)
                committed = self._logs[key].end_offset
                for node_id in (*row.isr, *row.elr):
                    partition = held.get((node_id, key))
                    if partition is not None and partition.log.end_offset < committed:
                        self._break(
                            f"broker {node_id} is in sync in {topic.name}-{index} and has"
                            f" {partition.log.end_offset} of {committed} committed offsets:"
                            f" {row}"
                        )


def key_of(partition: Partition) -> ReplicatedPartition:
    """The identity of a partition."""
    name, index = partition.topic_partition
    return ReplicatedPartition(name, partition.topic_id, index)


def batches_of(partition: Partition, start: Offset) -> Iterator[tuple[int, int, bytes]]:
    """First and end offset and digest of each whole batch below the high watermark."""
    log = partition.log
    offset = start
    while offset < log.high_watermark:
        read = log.read(offset, max_bytes=READ_BYTES, end_offset=log.high_watermark)
        before = offset
        for position, header in iterate_headers(read.view):
            if header.base_offset < offset or header.end_offset > log.high_watermark:
                continue
            content = bytes(read.view[position : position + header.size_bytes])
            yield header.base_offset, header.end_offset, hashlib.blake2b(content).digest()
            offset = Offset(header.end_offset)
        if offset == before:
            return


def bytes_of(content: object) -> bytes | None:
    """A key or value as bytes, whatever kind of buffer it is."""
    return None if content is None else bytes(memoryview(content))  # type: ignore[arg-type]  # a buffer
