"""The two clusters of the cluster benchmarks: three brokers each, on this machine.

Three copies, two of them required, on both sides. Apache Kafka's nodes are brokers and controllers
at the same time, as Penstock's are, with a gigabyte of heap each.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient

from penstock.link.blocking import BlockingCluster
from penstock.link.cluster_admin import describe_quorum
from penstock.testing.embedded_cluster import EmbeddedCluster
from tests.support.apache_kafka import (
    ApacheKafka,
    PeerUnavailableError,
    fetch_libraries,
    new_cluster_id,
)

BROKERS: Final = 3
WAIT_S: Final = 120.0
POLL_S: Final = 0.05
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "log.segment.delete.delay.ms": "100",  # as in `bench.peers`
}


class Node(Protocol):
    """One broker of a cluster."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def launch(self) -> object: ...
    def wait_ready(self) -> object: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """Three brokers by number, all of which run unless a benchmark has killed one."""

    name: str
    nodes: Mapping[int, Node]

    @property
    def bootstrap(self) -> str:
        """Where clients connect: the addresses of all brokers."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def pids(self) -> list[int]:
        """The processes of all brokers."""
        return [node.pid for node in self.nodes.values()]

    def start(self) -> None:
        """Start all brokers together: none serves before there is a quorum."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_ready()

    def kill(self, number: int) -> None:
        """Kill a broker (kill -9)."""
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Start a broker that was killed; returns when it serves."""
        self.nodes[number].launch()
        self.nodes[number].wait_ready()

    def pause(self, number: int) -> None:
        """Pause a broker (SIGSTOP): connections stay open without responses."""
        os.kill(self.nodes[number].pid, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Resume a broker."""
        os.kill(self.nodes[number].pid, signal.SIGCONT)

    def controller(self) -> int:
        """The number of the broker that is the active controller."""
        with BlockingCluster(self.bootstrap) as cluster:
            return int(cluster.run(describe_quorum()).leader_id)

    def leaders(self, topic: str) -> dict[int, int]:
        """The partition of a topic that each broker leads; one of them, if it leads several."""
        known = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic, timeout=10)
        return {each.leader: index for index, each in known.topics[topic].partitions.items()}

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every replica of a topic is in sync."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        give_up_at = time.monotonic() + WAIT_S
        while time.monotonic() < give_up_at:
            known = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
            if all(each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in known):
                return
            time.sleep(POLL_S)
        raise TimeoutError(f"{self.name}: {topic} is not in sync")


@contextmanager
def penstock_cluster() -> Iterator[Cluster]:
    """Three brokers of Penstock."""
    with EmbeddedCluster(BROKERS, settings=_SETTINGS) as embedded:
        yield Cluster("Penstock", embedded.brokers)


@contextmanager
def apache_cluster() -> Iterator[Cluster]:
    """Three nodes of Apache Kafka."""
    cluster_id = new_cluster_id(fetch_libraries())
    settings = [f"{key}={value}" for key, value in _SETTINGS.items()]
    with tempfile.TemporaryDirectory(prefix="apache-kafka-", ignore_cleanup_errors=True) as folder:
        nodes = {
            number: ApacheKafka(
                settings=[*settings, f"node.id={number}"],
                folder=Path(folder) / f"broker-{number}",
                cluster_id=cluster_id,
            )
            for number in range(1, BROKERS + 1)
        }
        voters = [f"{number}@127.0.0.1:{node.controller_port}" for number, node in nodes.items()]
        for node in nodes.values():
            node.format(f"controller.quorum.voters={','.join(voters)}")
        cluster = Cluster("Apache Kafka", nodes)
        try:
            cluster.start()
            yield cluster
        finally:
            for node in nodes.values():
                node.kill()


@contextmanager
def both_clusters() -> Iterator[list[Cluster]]:
    """Both clusters, to take turns; without a peer only Penstock, with a message."""
    with ExitStack() as stack:
        clusters = [stack.enter_context(penstock_cluster())]
        try:
            clusters.append(stack.enter_context(apache_cluster()))
        except PeerUnavailableError as reason:
            print(f"no peer to compare with: {reason}", file=sys.stderr)
        yield clusters
