"""Many partitions: an idle cluster, a failover, a restart, and the load of large metadata."""

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from bench.figures import LIMIT, Figure, report
from penstock.broker.held_partitions import HeldPartitions
from penstock.broker.metadata_follower import MetadataFollower
from penstock.broker.metadata_image import MetadataImage
from penstock.broker.quorum.snapshot_files import write_snapshot
from penstock.broker.quotas import Quotas
from penstock.consensus.raft import OffsetAndEpoch, VoterSet
from penstock.coordination.controller.codec import write_event
from penstock.coordination.controller.events import PartitionState, TopicSet
from penstock.model import LeaderEpoch, Millis, NodeId, Offset, TopicId
from penstock.testing.embedded_cluster import EmbeddedCluster

PARTITIONS = 10_000
PER_TOPIC = 500
IDLE_S = 15.0
WAIT_S = 120.0
CLOCK_TICKS = 100  # per second, in /proc
TOPICS, PER_LARGE_TOPIC = 100_000, 5


def measure() -> Iterator[Figure]:
    """A cluster of three brokers on this machine, then the metadata of a larger one."""
    with EmbeddedCluster(3) as cluster:
        yield from measure_cluster(cluster)
    yield Figure(
        f"longest turn of the event loop, {TOPICS} topics x {PER_LARGE_TOPIC} loaded",
        longest_turn_s() * 1000, 100.0, "ms", "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip


def measure_cluster(cluster: EmbeddedCluster) -> Iterator[Figure]:
    """Idle, after the loss of a broker, and after its return."""
    began = time.perf_counter()
    for number in range(PARTITIONS // PER_TOPIC):
        create(cluster, NewTopic(f"topic-{number}", PER_TOPIC, 3))
    wait_for(cluster, lambda row: len(row.isrs) == 3, "create the topics")
    yield Figure(f"{PARTITIONS} partitions x 3 created", took(began), None, "s")
    time.sleep(2)
    yield Figure(
        "CPU of an idle broker, of one core", idle_share(cluster) * 100, 5.0, "%",
        "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip
    cluster.kill(2)
    began = time.perf_counter()
    wait_for(cluster, lambda row: row.leader not in (-1, 2), "elect leaders")
    yield Figure(
        "a broker killed: all its partitions led by others", took(began), 5.0, "s",
        "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip
    began = time.perf_counter()
    cluster.restart(2)
    wait_for(cluster, lambda row: len(row.isrs) == 3, "come back")
    yield Figure(
        "started again: in every in-sync set", took(began), 30.0, "s", "<= 1.0", peer_name=LIMIT
    )


def create(cluster: EmbeddedCluster, topic: NewTopic) -> None:
    """Create a topic; the client leaves it to its user to try again."""
    while True:
        try:
            cluster.admin.create_topics([topic])[topic.topic].result(60)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if not error.args[0].retriable() and code != KafkaError.NOT_CONTROLLER:
                raise
            print(f"{topic.topic}: {error}", file=sys.stderr)
        else:
            return


def took(began: float) -> float:
    """Seconds since then."""
    return time.perf_counter() - began


def wait_for(cluster: EmbeddedCluster, is_done: Callable[[Any], bool], what: str) -> None:
    """Wait until something is true of every partition."""
    give_up_at = time.perf_counter() + WAIT_S
    while True:
        topics = cluster.admin.list_topics(timeout=60).topics
        rows = [row for topic in topics.values() for row in topic.partitions.values()]
        left = sum(not is_done(row) for row in rows)
        if len(rows) >= PARTITIONS and left == 0:
            return
        assert time.perf_counter() < give_up_at, f"could not {what}: {left} partitions are left"
        time.sleep(0.2)


def idle_share(cluster: EmbeddedCluster) -> float:
    """The largest share of a core that a broker uses while nothing happens."""
    before = {number: cpu_s(broker.pid) for number, broker in cluster.brokers.items()}
    time.sleep(IDLE_S)
    shares = {
        number: (cpu_s(broker.pid) - before[number]) / IDLE_S
        for number, broker in cluster.brokers.items()
    }
    print(f"idle shares: {shares}", file=sys.stderr)
    return max(shares.values())


def cpu_s(pid: int) -> float:
    """What a process has used of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


# Large metadata.


class TimedFollower(MetadataFollower):
    """Measures its turns in processor time: what others do on this machine does not count."""

    longest_s = 0.0

    def _work_for_a_turn(self) -> None:
        began = time.thread_time()
        super()._work_for_a_turn()
        self.longest_s = max(self.longest_s, time.thread_time() - began)


def longest_turn_s() -> float:
    """Load a snapshot and act on it, as a broker does that starts and has none of the partitions.

    Every topic is in a state of its own, so that no row is shared.
    """
    events = (
        TopicSet(
            f"topic-{number}", TopicId(UUID(int=number + 1)),
            tuple(
                PartitionState(
                    NodeId(1 + index % 3), LeaderEpoch(number), number + index,
                    (NodeId(1), NodeId(2), NodeId(3)), (NodeId(1), NodeId(2), NodeId(3)),
                )
                for index in range(PER_LARGE_TOPIC)
            ),
        )
        for number in range(TOPICS)
    )  # fmt: skip
    snapshot = OffsetAndEpoch(Offset(TOPICS), LeaderEpoch(1))
    image = MetadataImage(NodeId(9), {}, Quotas(time.monotonic))
    partitions: Any = SimpleNamespace(node_id=NodeId(9), topics={})
    held = HeldPartitions(partitions, image.topic, image.topic_settings)

    async def load(folder: Path) -> float:
        write_snapshot(folder, snapshot, VoterSet(), map(write_event, events), Millis(0))
        follower = TimedFollower(image, held, clock=lambda: Millis(0))
        quorum: Any = SimpleNamespace(log=SimpleNamespace(latest_snapshot=snapshot, folder=folder))
        follower.start(quorum)
        await follower.idle()
        follower.begin()
        await follower.idle()
        return follower.longest_s

    gc.disable()  # as a broker does until it serves
    try:
        with tempfile.TemporaryDirectory() as folder:
            longest_s = asyncio.run(load(Path(folder)))
    finally:
        gc.enable()
    assert sum(1 for _ in image.topics()) == TOPICS
    return longest_s


if __name__ == "__main__":
    report(measure(), __doc__, peer=LIMIT)
