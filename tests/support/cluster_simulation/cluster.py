"""Brokers of one cluster on virtual hosts, and what can happen to their processes and machines.

A broker is the real one: `RunningBroker` with its listener, quorum, logs and links. Its process may
be killed (the page cache stays), lose its power (what was not synced may be lost, and the boot id
changes), stop in order, or pause. A process that ends by itself is started again, as a
supervisor would do.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any, Final, cast

import penstock.broker.client_connection
import penstock.broker.dispatch
import penstock.link.aio
import penstock.node.run_broker
from penstock.link.settings import Address
from penstock.log import LogDirectoryError
from penstock.machine import Runner
from penstock.model import Millis, Moment, NodeId
from penstock.node.clocks import Clocks
from penstock.node.data_folder import open_folder
from penstock.node.run_broker import RunningBroker
from penstock.node.settings import NodeSettings, VoterAddress
from tests.support.cluster_simulation.disk import Disk, Disks
from tests.support.cluster_simulation.event_loop import SimulatedLoop
from tests.support.cluster_simulation.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pytest

    from tests.support.cluster_simulation.world import World

KAFKA_PORT: Final = 9092
RESTART_S: Final = 0.3  # a supervisor waits this long
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
    "log.retention.ms": "-1",
    "min.insync.replicas": "2",
    "log.cleaner.backoff.ms": "3600000",  # compaction runs in a process of its own
    "replica.lag.time.max.ms": "2000",
}


class SimulatedBroker:
    """One broker's machine: its disk stays, its processes come and go."""

    def __init__(self, cluster: Cluster, node_id: NodeId, folder: Path) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = f"broker-{node_id}"
        self.disk = Disk(folder, random.Random(cluster.world.rng.random()))
        self.loop: SimulatedLoop | None = None  # None: no process
        self.running: RunningBroker | None = None
        self.is_serving = False
        self.boots = 1
        self.wall_offset_ms = 0
        self.executor_delay_s = (0.0002, 0.002)
        self.is_kept_down = False  # not to be started again
        self.static: dict[str, str] = {}  # settings that only this broker is started with
        self.joins: str | None = None  # a host of the cluster, which it joins without a vote
        self._stopping: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a process, unless there is one."""
        if self.loop is not None or self.is_kept_down:
            return
        loop = self.loop = SimulatedLoop(self.cluster.world, self.cluster.network, self.host)
        loop.wall_offset_ms = self.wall_offset_ms
        loop.executor_delay_s = self.executor_delay_s
        self.cluster.note(f"{self.host} starts")
        self._task = loop.start(self._serve(loop))
        self._task.add_done_callback(self._on_ended)

    async def _serve(self, loop: SimulatedLoop) -> None:
        """As `serve_broker` does, without signals."""
        self._stopping = stopping = asyncio.Event()
        try:
            folder, identity = open_folder(self._settings())
            running = RunningBroker(self._settings(), folder, identity, _clocks(loop))
            self.running = running
            running.failed.add_done_callback(lambda _: stopping.set())
            start, stop = loop.create_task(running.start()), loop.create_task(stopping.wait())
            await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
            if not start.done():
                start.cancel()
                await asyncio.wait((start,))
            if not start.cancelled():
                start.result()
                self.is_serving = True
                self.cluster.note(f"{self.host} serves")
                await stop
                self.is_serving = False
            await running.stop()
        except (OSError, LogDirectoryError) as error:
            self.cluster.note(f"{self.host} ends: {type(error).__name__}")

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """The process ended by itself, or as it was asked to: start another one."""
        loop = self.loop
        if loop is None or task is not self._task:
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "the broker ended", "exception": error})
            return
        self._end(silently=False)
        self.cluster.supervisor.call_later(RESTART_S, self.start)

    def _settings(self) -> NodeSettings:
        cluster = self.cluster
        return NodeSettings(
            folder=self.cluster.folder / self.host,
            node_id=self.node_id,
            host=self.host,
            kafka_port=KAFKA_PORT,
            voters=cluster.voters if self.joins is None else (),
            join=() if self.joins is None else (Address(self.joins, KAFKA_PORT),),
            static={**cluster.static, **self.static, "node.id": str(self.node_id)},
        )

    # What happens to it.

    def crash(self) -> None:
        """Kill the process: what it wrote is in the page cache."""
        self.cluster.crashed.add(self.node_id)
        self._end(silently=False)

    def lose_power(self) -> None:
        """Cut the machine's power: connections are not closed, and unsynced bytes may be lost."""
        self.cluster.crashed.add(self.node_id)
        self._end(silently=True)
        self.disk.lose_power()
        self.boots += 1

    def _end(self, *, silently: bool) -> None:
        loop, self.loop = self.loop, None
        if loop is None:
            return
        loop.kill()
        self.cluster.remains.append((loop, self.running, self._task))
        self.running = self._stopping = self._task = None
        self.is_serving = False
        self.cluster.network.kill_host(self.host, silently=silently)
        self.disk.close_descriptors()

    def stop(self) -> None:
        """Stop in order; another process starts after that."""
        if self.loop is not None and self._stopping is not None:
            self.is_serving = False
            self.loop.call_soon(self._stopping.set)

    def jump_clock(self, jump_ms: int) -> None:
        """Set the time of day."""
        self.wall_offset_ms += jump_ms
        if self.loop is not None:
            self.loop.wall_offset_ms = self.wall_offset_ms

    def slow_disk(self, delays_s: tuple[float, float]) -> None:
        """Let everything that runs in threads take this long."""
        self.executor_delay_s = delays_s
        if self.loop is not None:
            self.loop.executor_delay_s = delays_s


class Cluster:
    """Brokers that are each other's voters, on one network."""

    def __init__(
        self,
        world: World,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        count: int,
        static: Mapping[str, str],
    ) -> None:
        self.world = world
        self.folder = folder
        self.network = Network(world)
        self.static = {**SETTINGS, **static}
        self.log: list[str] = []
        self.crashed: set[NodeId] = set()  # brokers that were killed or lost their power
        self.supervisor = SimulatedLoop(world, self.network, "supervisor")
        self.remains: list[Any] = []  # of killed processes: nothing of them may be finalized early
        nodes = [NodeId(number) for number in range(1, count + 1)]
        self.voters = tuple(VoterAddress(node, f"broker-{node}", KAFKA_PORT) for node in nodes)
        self._take_control(patch)
        self.brokers = [SimulatedBroker(self, node, folder / f"broker-{node}") for node in nodes]
        self._by_host = {broker.host: broker for broker in self.brokers}
        self._disks = Disks()
        for broker in self.brokers:
            self._disks.add(broker.disk)
        self._disks.install(patch)

    def add(self, joins: SimulatedBroker) -> SimulatedBroker:
        """A further broker, which is given one that runs."""
        node_id = NodeId(len(self.brokers) + 1)
        broker = SimulatedBroker(self, node_id, self.folder / f"broker-{node_id}")
        broker.joins = joins.host
        self.brokers.append(broker)
        self._by_host[broker.host] = broker
        self._disks.add(broker.disk)
        return broker

    @property
    def bootstrap(self) -> str:
        """Where clients connect first."""
        return ",".join(f"{broker.host}:{KAFKA_PORT}" for broker in self.brokers)

    @property
    def running(self) -> Iterator[tuple[SimulatedBroker, RunningBroker]]:
        """The processes that have come as far as joining the quorum."""
        for broker in self.brokers:
            if broker.running is not None and hasattr(broker.running.broker, "quorum"):
                yield broker, broker.running

    def note(self, line: str) -> None:
        """Something happened: part of the trace, and shown when the seed fails."""
        self.world.note(line)
        self.log.append(f"{self.world.now_s - 1000:9.3f} {line}")

    def _take_control(self, patch: pytest.MonkeyPatch) -> None:
        """Everything that the processes read from their machine comes from the seed."""
        chance = random.Random(self.world.seed)
        world = self.world
        patch.setattr(os, "urandom", chance.randbytes)
        patch.setattr(random, "_urandom", chance.randbytes)
        patch.setattr(random, "random", chance.random)
        patch.setattr(random, "randrange", chance.randrange)
        for module in (penstock.broker.client_connection, penstock.broker.dispatch):
            patch.setattr(module, "perf_counter", lambda: world.now_s)
        patch.setattr(penstock.link.aio, "monotonic_ms", lambda: Millis(int(world.now_s * 1000)))
        patch.setattr(penstock.node.run_broker, "boot_id", self._boot_id)
        patch.setattr(penstock.node.run_broker, "gc", _NoCollector)
        patch.setattr(Runner, "_carry_out", _validated(Runner._carry_out))  # noqa: SLF001 - each step

    def _boot_id(self) -> str:
        loop = cast("SimulatedLoop", asyncio.get_running_loop())
        return f"{loop.host} {self._by_host[loop.host].boots}"


def _validated(carry_out: Callable[..., object]) -> Callable[..., object]:
    """Check the invariants of a machine after each of its steps."""

    def validated(runner: Runner[Any, Any, Any], *outcome: Any) -> object:
        reply = carry_out(runner, *outcome)
        runner.machine.validate(runner.state)
        return reply

    return validated


class _NoCollector:
    """The garbage collector as a broker steers it: it is the test's, not the broker's."""

    @staticmethod
    def freeze() -> None:
        """Has no effect here."""

    @staticmethod
    def set_threshold(_objects: int) -> None:
        """Has no effect here."""

    @staticmethod
    def enable() -> None:
        """Has no effect here."""


def _clocks(loop: SimulatedLoop) -> Clocks:
    return Clocks(
        wall=lambda: Millis(loop.wall_ms()),
        steady=lambda: Millis(loop.steady_ms()),
        moment=lambda: Moment(Millis(loop.steady_ms()), Millis(loop.wall_ms())),
        monotonic_s=loop.time,
    )
