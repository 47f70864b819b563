"""Start, 2 000 topics, restarts, 10 000 and 50 000 partitions, compared with Apache Kafka."""

import sys
import time
from collections.abc import Iterator

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.figures import LIMIT, Figure, report
from bench.peers import PeerUnavailableError, Server, apache_kafka, cost_of, make_topic, penstock
from tests.support.apache_kafka import VERSION

TOPICS = 2_000
PER_CALL = 100
PARTITIONS = 10_000
MANY = 50_000
MANY_PER_TOPIC = 1_000
MANY_S = 10.0  # for the stop, and for the start


def measure() -> Iterator[Figure]:
    """Run the same steps on both servers; idle memory on Penstock only."""
    ours = measure_server(penstock())
    try:
        theirs: dict[str, float] = measure_server(apache_kafka())
    except PeerUnavailableError as reason:
        print(f"no peer to compare with: {reason}", file=sys.stderr)
        theirs = {}
    targets = {"create 2 000 topics": "<= 1.0"}
    for name, seconds in ours.items():
        yield Figure(name, seconds, theirs.get(name), "s", targets.get(name, ""))
    yield Figure(f"resident with {PARTITIONS} idle partitions", idle_megabytes(), None, "MB")
    for name, seconds in many_partitions().items():
        yield Figure(name, seconds, MANY_S, "s", "<= 1.0", peer_name=LIMIT)


def measure_server(server: Server) -> dict[str, float]:
    """From the first start to a restart after a crash."""
    took: dict[str, float] = {}
    started = time.perf_counter()
    with server:
        acknowledge(server.bootstrap)
        took["start to first acknowledged message"] = time.perf_counter() - started
        took["create 2 000 topics"] = create_topics(server.bootstrap)
        server.halt()
        took["restart, clean, to first acknowledged message"] = restart(server)
        server.kill()
        took["restart, killed, to first acknowledged message"] = restart(server)
    print(f"{type(server).__name__}: {took}", file=sys.stderr)
    return took


def restart(server: Server) -> float:
    """Start again and wait for one acknowledged message."""
    started = time.perf_counter()
    server.start()
    acknowledge(server.bootstrap)
    return time.perf_counter() - started


def acknowledge(bootstrap: str) -> None:
    """One message with acks=all to a topic that the broker may have to create."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    failures: list[object] = []
    producer.produce("first", b"message", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0, "no acknowledgement"
    assert failures == [None], f"the message failed: {failures}"


def create_topics(bootstrap: str) -> float:
    """2 000 topics of one partition, a hundred per call."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    started = time.perf_counter()
    for first in range(0, TOPICS, PER_CALL):
        names = [f"topic-{number:04}" for number in range(first, first + PER_CALL)]
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(60)
    return time.perf_counter() - started


def many_partitions() -> dict[str, float]:
    """A clean stop and the start after it, with so many partitions that every step per one shows.

    One of them was written to: the others have never been opened for a client.
    """
    with penstock() as server:
        acknowledge(server.bootstrap)
        make_idle(server, MANY)
        began = time.perf_counter()
        server.halt()
        stopped_s = time.perf_counter() - began
        started_s = restart(server)
    print(f"{MANY} partitions: stop {stopped_s:.1f} s, start {started_s:.1f} s", file=sys.stderr)
    return {
        f"stop with {MANY} partitions": stopped_s,
        f"start with {MANY} partitions to first acknowledged message": started_s,
    }


def make_idle(server: Server, partitions: int) -> None:
    """Topics that are not used."""
    for number in range(partitions // MANY_PER_TOPIC):
        make_topic(server.bootstrap, f"idle-{number}", partitions=MANY_PER_TOPIC)


def idle_megabytes() -> float:
    """Memory of a broker with many idle partitions."""
    with penstock() as server:
        make_idle(server, PARTITIONS)
        server.halt()
        server.start()
        with cost_of(server.pid) as cost:
            time.sleep(2)
    return cost.resident_bytes / 1e6


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
