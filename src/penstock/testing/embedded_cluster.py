"""A real cluster for tests: brokers as child processes on free loopback ports.

with EmbeddedCluster() as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    cluster.kill(cluster.leader("orders"))

Each broker is an `EmbeddedBroker` with its faults, and keeps its address through all of them.
"""

import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import AdminClient

from penstock.node.broker_process import BrokerOptions
from penstock.node.local_cluster import local_cluster
from penstock.testing.embedded import EmbeddedBroker, Startable

WAIT_S: Final = 60.0
POLL_S: Final = 0.05


class EmbeddedCluster(Startable):
    """Several brokers, numbered from 1. Their folders survive kills and restarts, not `stop`.

    `settings` are broker settings by Kafka's names, for all brokers. Topics have three copies
    unless they or the settings say otherwise.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        racks: Sequence[str] = (),
        log_level: str = "ERROR",
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        shared = BrokerOptions(
            kafka_port=0, settings=dict(settings or {}), quick=True, log_level=log_level
        )
        self.brokers: Final = dict(enumerate(self._make(shared, brokers, racks), 1))
        self._admin: AdminClient | None = None

    def _make(
        self, shared: BrokerOptions, count: int, racks: Sequence[str]
    ) -> Iterable[EmbeddedBroker]:
        """The brokers, not started."""
        options = local_cluster(shared, self._folder, count, racks)
        return [EmbeddedBroker(options=each) for each in options]

    @property
    def bootstrap(self) -> str:
        """Where clients connect: the addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def admin(self) -> AdminClient:
        """An admin client of the cluster."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def start(self) -> Self:
        """Start the brokers that do not run; returns when all serve."""
        started = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_ready()
        return self

    def kill(self, broker: int) -> None:
        """Kill a broker (kill -9)."""
        self.brokers[broker].kill()

    def restart(self, broker: int) -> None:
        """Stop a broker cleanly if it runs, and start it again; returns when it serves."""
        self.brokers[broker].restart()

    def pause(self, broker: int) -> None:
        """Pause a broker (SIGSTOP): connections stay open without responses."""
        self.brokers[broker].pause()

    def resume(self, broker: int) -> None:
        """Resume a broker."""
        self.brokers[broker].resume()

    def heal(self) -> None:
        """End all faults; returns when all brokers serve."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.resume()
                broker.free_disk()
        self.start()
        for broker in self.brokers.values():
            broker.add_latency(0)

    def controller(self) -> int:
        """The broker that is the active controller; waits until there is one."""
        give_up_at = time.monotonic() + WAIT_S
        while True:
            metadata: Any = self.admin.list_topics(timeout=WAIT_S)
            if metadata.controller_id in self.brokers:
                return int(metadata.controller_id)
            assert time.monotonic() < give_up_at, "the cluster has no controller"
            time.sleep(POLL_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition; waits until there is one."""
        give_up_at = time.monotonic() + WAIT_S
        while True:
            leader = self._partitions(topic).get(partition, (-1, 0, 0))[0]
            if leader > 0:
                return leader
            assert time.monotonic() < give_up_at, f"{topic}-{partition} has no leader"
            time.sleep(POLL_S)

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every replica of a topic is in sync."""
        give_up_at = time.monotonic() + WAIT_S
        while True:
            partitions = self._partitions(topic)
            if partitions and all(in_sync == total for _, in_sync, total in partitions.values()):
                return
            assert time.monotonic() < give_up_at, f"{topic} is not in sync: {partitions}"
            time.sleep(POLL_S)

    def _partitions(self, topic: str) -> dict[int, tuple[int, int, int]]:
        """Leader, replicas in sync and replicas by partition."""
        metadata: Any = self.admin.list_topics(topic, timeout=WAIT_S)
        return {
            index: (each.leader, len(each.isrs), len(each.replicas))
            for index, each in metadata.topics[topic].partitions.items()
        }

    def stop(self) -> None:
        """Stop all brokers and remove their folders."""
        for broker in self.brokers.values():
            broker.halt(hand_over=False)
        shutil.rmtree(self._folder, ignore_errors=True)
