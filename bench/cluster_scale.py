"""Many partitions: an idle cluster, a failover, a restart, and the load of large metadata."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from bench.figures import LIMIT, Figure, report
from penstock.broker.metadata_follower import DECODED_PER_STEP, TURN_S
from penstock.broker.metadata_image import MetadataImage
from penstock.broker.quotas import Quotas
from penstock.coordination.controller import ClusterState
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.codec import read_events, write_event
from penstock.coordination.controller.events import Event, PartitionState, TopicSet
from penstock.model import LeaderEpoch, NodeId, TopicId
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


def longest_turn_s() -> float:
    """Read a snapshot's records into an image, in turns as a broker that starts does."""
    rows = [
        PartitionState(
            NodeId(leader), LeaderEpoch(0), 0, tuple(NodeId(node) for node in (1, 2, 3)),
            tuple(NodeId(node) for node in (1, 2, 3)),
        )
        for leader in (1, 2, 3)
    ]  # fmt: skip
    records = [
        write_event(
            TopicSet(
                f"topic-{number}", TopicId(UUID(int=number + 1)),
                tuple(rows[(number + index) % 3] for index in range(PER_LARGE_TOPIC)),
            )
        )
        for number in range(TOPICS)
    ]  # fmt: skip
    image = MetadataImage(NodeId(1), {}, Quotas(time.monotonic))
    longest = 0.0

    def load() -> Iterator[None]:
        state = ClusterState()
        for first in range(0, TOPICS, DECODED_PER_STEP):
            events: list[Event] = []
            for record in records[first : first + DECODED_PER_STEP]:
                events += read_events(record)
            for event in events:
                apply(state, event)
            yield
        yield from image.replace(state)

    async def run() -> None:
        nonlocal longest
        work = load()
        is_done = False
        while not is_done:
            began = time.thread_time()  # what others do on this machine does not count
            is_done = True
            for _ in work:
                if time.thread_time() - began >= TURN_S:
                    is_done = False
                    break
            longest = max(longest, time.thread_time() - began)
            await asyncio.sleep(0)

    gc.disable()  # as a broker does until it serves
    asyncio.run(run())
    gc.enable()
    assert sum(1 for _ in image.topics()) == TOPICS
    return longest


if __name__ == "__main__":
    report(measure(), __doc__, peer=LIMIT)
