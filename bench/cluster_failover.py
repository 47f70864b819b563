"""A leader fails: how long until the next message is acknowledged, compared with Apache Kafka.

An idempotent producer writes a message per millisecond to one partition. Its leader is killed; it
is killed while it is the active controller too; it is paused for five seconds. The result is the
longest time, of all rounds, from the fault to the first acknowledgement of a message that was sent
after it. Then everything is read: what was acknowledged must be there, once.

A paused broker keeps its connections open, and only the client's own timeout makes it look for
another leader: it is one second here, for both clusters.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.clusters import BROKERS, Cluster, both_clusters
from bench.figures import LIMIT, Figure, report
from bench.peers import make_topic
from tests.support.apache_kafka import VERSION

KILLED = "leader killed"
KILLED_CONTROLLER = "leader and controller killed"
PAUSED = "leader paused for 5 s"
LIMITS_S = {KILLED: 2.0, KILLED_CONTROLLER: 2.0, PAUSED: 3.0}
PAUSE_S = 5.0
ROUNDS, PEER_ROUNDS = 5, 1  # a round of the peer takes most of a minute
WAIT_S = 60.0
END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
BEFORE_S = 1.0


@dataclass(slots=True)
class Outcome:
    """The rounds of one cluster."""

    seconds: list[float] = field(default_factory=list)
    acknowledged: int = 0
    lost: int = 0
    repeated: int = 0


def measure() -> Iterator[Figure]:
    """Every kind of failure on both clusters."""
    with both_clusters() as clusters:
        for kind, limit_s in LIMITS_S.items():
            ours, *peers = [run_rounds(cluster, kind) for cluster in clusters]
            worst_s = max(ours.seconds)
            name = f"{kind}: next acknowledgement"
            rounds = " ".join(f"{seconds:.2f}" for seconds in ours.seconds)
            yield Figure(name, worst_s, max(peers[0].seconds) if peers else None, "s", "<= 1.0",
                         f"rounds {rounds}")  # fmt: skip
            yield Figure(f"{name}, limit {limit_s:g} s", worst_s, limit_s, "s", "<= 1.0",
                         peer_name=LIMIT)  # fmt: skip
            yield Figure(f"{kind}: messages lost", ours.lost, peers[0].lost if peers else None,
                         "messages", "", f"of {ours.acknowledged} acknowledged")  # fmt: skip
            assert ours.lost == ours.repeated == 0, f"{kind}: {ours}"


def run_rounds(cluster: Cluster, kind: str) -> Outcome:
    """All rounds of one kind of failure, each with a topic of its own."""
    outcome = Outcome()
    for number in range(ROUNDS if cluster.name == "Penstock" else PEER_ROUNDS):
        topic = f"{kind.replace(' ', '-')}-{number}"
        make_topic(cluster.bootstrap, topic, partitions=BROKERS, replicas=BROKERS)
        victim, partition = choose(cluster, topic, kind)
        with Writer(cluster.bootstrap, topic, partition) as writer:
            time.sleep(BEFORE_S)
            seconds = fail(cluster, victim, writer, kind)
        cluster.wait_in_sync(topic)
        stored = read_all(cluster.bootstrap, topic, partition)
        outcome.seconds.append(seconds)
        outcome.acknowledged += len(writer.acknowledged)
        outcome.lost += sum(stored.get(at) != text for at, text in writer.acknowledged.items())
        outcome.repeated += sum(count - 1 for count in Counter(stored.values()).values())
        print(f"{cluster.name}: {kind}: {seconds:.3f} s, {outcome}", file=sys.stderr)
    return outcome


def choose(cluster: Cluster, topic: str, kind: str) -> tuple[int, int]:
    """The broker that will fail, and a partition that it leads."""
    controller, leaders = cluster.controller(), cluster.leaders(topic)
    others = [number for number in leaders if number != controller]
    victim = controller if kind == KILLED_CONTROLLER else others[0]
    return victim, leaders[victim]


def fail(cluster: Cluster, victim: int, writer: "Writer", kind: str) -> float:
    """Let a broker fail and come back; the seconds to the next acknowledgement."""
    if kind == PAUSED:
        cluster.pause(victim)
        began = time.monotonic()
        resume = threading.Timer(PAUSE_S, cluster.resume, [victim])
        resume.start()
        seconds = writer.wait_for_next() - began
        resume.join()
        return seconds
    cluster.kill(victim)
    began = time.monotonic()
    seconds = writer.wait_for_next() - began
    cluster.restart(victim)
    return seconds


class Writer:
    """Writes to one partition, a message per millisecond, and notes what is acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self.acknowledged: dict[int, bytes] = {}  # by offset
        self._errors: list[Any] = []
        self._topic, self._partition = topic, partition
        self._sent = 0
        self._awaited: int | None = None
        self._came_at = 0.0
        self._has_come = threading.Event()
        self._is_stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
                "socket.timeout.ms": 1_000, "retry.backoff.ms": 50, "log_level": 0,
                "reconnect.backoff.max.ms": 500,
            }
        )  # fmt: skip
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0, "not everything was acknowledged"
        assert not self._errors, f"{len(self._errors)} messages failed: {self._errors[0]}"

    def wait_for_next(self) -> float:
        """When the first message that is sent from now on is acknowledged."""
        self._awaited = self._sent
        assert self._has_come.wait(WAIT_S), "nothing is acknowledged any more"
        return self._came_at

    def _write(self) -> None:
        while not self._is_stopping.is_set():
            text = b"%d" % self._sent
            self._producer.produce(
                self._topic, text, partition=self._partition, on_delivery=self._on_delivery
            )
            self._sent += 1
            self._producer.poll(0.001)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error)
            return
        text = message.value()
        self.acknowledged[message.offset()] = text
        if self._awaited is not None and int(text) >= self._awaited and not self._came_at:
            self._came_at = time.monotonic()
            self._has_come.set()


def read_all(bootstrap: str, topic: str, partition: int) -> dict[int, bytes]:
    """Every message of a partition by offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages: dict[int, bytes] = {}
    while True:
        message: Any = consumer.poll(WAIT_S)
        assert message is not None, "the partition cannot be read to its end"
        if message.error() is not None:
            assert message.error().code() == END_OF_PARTITION, message.error()
            break
        messages[message.offset()] = message.value()
    consumer.close()
    return messages


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
