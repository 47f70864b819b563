"""One run from a seed: start a cluster, use it, break it, heal a majority, and check everything.

with faults: clients work, faults come and go, the brokers are compared at every look
healed: a majority serves again, every client makes progress, the in-sync sets are complete
at the end: all is read, and the history of the clients is checked against it
"""

from __future__ import annotations

import gc
import random
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.broker import metadata_follower
from penstock.link.operation import FAILURES
from penstock.model import TopicPartition
from tests.support.cluster_simulation.administrator import TRIMMED, Administrator, Trimmer
from tests.support.cluster_simulation.checks import ClusterChecks
from tests.support.cluster_simulation.clients import (
    Client,
    GroupConsumer,
    IdempotentProducer,
    Reader,
)
from tests.support.cluster_simulation.cluster import Cluster
from tests.support.cluster_simulation.faults import Faults, Options
from tests.support.cluster_simulation.network import Delays
from tests.support.cluster_simulation.one_try import OneTryProducer
from tests.support.cluster_simulation.world import SimulationError, World
from tests.support.history import History, check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.cluster_simulation.cluster import SimulatedBroker

TOPIC: Final = "events"
GROUP: Final = "readers"
HEAL_S: Final = 60.0  # longer than any time-out in the cluster
STEPS_MAX: Final = 2_000_000


class Scenario:
    """The cluster, its clients and its faults."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        patch: pytest.MonkeyPatch,
        changes: Mapping[str, Any],
    ) -> None:
        self.options = replace(Options.draw(random.Random(f"options {seed}")), **changes)
        self.world = World(seed, steps_max=STEPS_MAX)
        static = {"log.flush.interval.messages": "1"} if self.options.flushes else {}
        if self.options.snapshot_bytes is not None:
            patch.setattr(metadata_follower, "SNAPSHOT_BYTES", self.options.snapshot_bytes)
        self.cluster = Cluster(self.world, folder, patch, count=self.options.brokers, static=static)
        self.cluster.network.delays = Delays(0.0001, self.options.most_delay_s)
        self.history = History()
        self.checks = ClusterChecks(self.cluster)
        self.given_ids: list[tuple[int, int]] = []
        self.partitions = [TopicPartition(TOPIC, index) for index in range(self.options.partitions)]
        self.admin = Administrator(
            self.cluster, self.history, "admin", topic=TOPIC,
            changes_voters=self.options.changes_voters,
        )  # fmt: skip
        self.producers = self._make_producers()
        self.trimmer: Trimmer | None = None
        if self.options.trims:
            self.trimmer = Trimmer(self.cluster, "trimmer", given_ids=self.given_ids)
            self.producers.append(self.trimmer)
        self.members = [
            GroupConsumer(
                self.cluster, self.history, f"member-{number}", group=GROUP,
                partitions=self.partitions,
            )
            for number in range(self.options.members)
        ]  # fmt: skip
        self.tail = Reader(
            self.cluster, self.history, "tail", partitions=self.partitions, repeats=True
        )
        self.clients: list[Client] = [self.admin, *self.producers, *self.members, self.tail]
        if self.options.tries_once:
            self.clients.append(
                OneTryProducer(
                    self.cluster, self.history, "one-try", partitions=self.partitions,
                    flushes=self.options.flushes,
                )
            )  # fmt: skip
        hosts = [client.name for client in self.clients]
        self.faults = Faults(self.cluster, self.options, hosts)

    def _make_producers(self) -> list[IdempotentProducer]:
        names = {f"producer-{number}": "" for number in range(self.options.producers)}
        if self.options.transactions:
            names["transactions"] = "payments"
        return [
            IdempotentProducer(
                self.cluster, self.history, name, partitions=self.partitions,
                transactional_id=transactional_id or None, given_ids=self.given_ids,
            )
            for name, transactional_id in names.items()
        ]  # fmt: skip

    # The phases.

    def run(self) -> str:
        """Everything, in order; the trace. SimulationError says what broke."""
        self.begin()
        self._run_with_faults()
        self.heal()
        self.check_end()
        self._cut_all_power()
        return self.world.trace

    def begin(self) -> None:
        """Start the brokers and the clients."""
        for broker in self.cluster.brokers:
            broker.start()
        self.until(lambda: all(broker.is_serving for broker in self.cluster.brokers), "start")
        creating = self.admin.start(self._create_topic())
        self.until(creating.done, "create the topic")
        for client in self.clients:
            client.start(client.run())  # type: ignore[attr-defined]  # every kind of client has it

    async def _create_topic(self) -> None:
        link = self.admin.link()
        await self.admin.create(link, TOPIC, partitions=len(self.partitions))
        if self.trimmer is not None:
            await self.admin.create(link, TRIMMED.topic, partitions=1)
        await link.close()

    def _run_with_faults(self) -> None:
        until_s = self.world.now_s + self.options.duration_s
        next_fault_s = self.world.now_s + 0.5
        while self.world.now_s < until_s:
            self.run_for(self.options.look_s)
            if self.world.now_s >= next_fault_s:
                self.faults.step()
                mean_s = self.options.fault_interval_s
                next_fault_s = self.world.now_s + self.world.rng.uniform(0.1, 2 * mean_s)

    def heal(self) -> None:
        """End all faults; everything must work again, and the clients stop."""
        down = self.world.rng.choice(self.cluster.brokers)
        keep_down = None
        if self.options.leaves_one_down and self.faults.may_stay_down(down):
            keep_down = down
        self.faults.heal(keep_down=keep_down)
        alive = [broker for broker in self.cluster.brokers if broker is not keep_down]
        self.until(lambda: all(broker.is_serving for broker in alive), "serve again")
        before = [client.acknowledged for client in self.producers]
        self.until(
            lambda: all(
                client.acknowledged > count
                for client, count in zip(self.producers, before, strict=True)
            ),
            "acknowledge records of every producer",
        )
        if self.members:
            count = sum(member.commits for member in self.members)
            self.until(
                lambda: sum(member.commits for member in self.members) > count, "commit offsets"
            )
        changes = self.admin.acknowledged
        self.until(
            lambda: self.admin.acknowledged > changes, "acknowledge a change of the metadata"
        )
        for client in self.clients:
            client.is_stopping = True
        self.until(lambda: all(client.is_done for client in self.clients), "stop the clients")
        self.until(lambda: self._is_in_sync(alive), "complete the in-sync sets")
        self.until(self._is_stable, "end every transaction")

    def check_end(self, name: str = "reader") -> None:
        """Read everything, and compare it with what the clients did."""
        reader = Reader(self.cluster, self.history, name, partitions=self.partitions, repeats=False)
        self.clients.append(reader)
        reading = reader.start(reader.run())
        self.until(reading.done, "read everything")
        broken = [*self._read_trimmed(name), *self._broken_metadata(), *check(self.history)]
        for client in self.clients:
            broken += client.findings
        if broken:
            raise SimulationError(self._shown("; ".join(broken[:5])))

    def _read_trimmed(self, name: str) -> list[str]:
        """What is wrong with the topic whose oldest records are removed."""
        if self.trimmer is None:
            return []
        name = f"{name} of what is left"
        reader = Reader(self.cluster, History(), name, partitions=[TRIMMED], repeats=False)
        self.clients.append(reader)
        reading = reader.start(reader.run_from_start())
        self.until(reading.done, "read what is left of the trimmed topic")
        return self.trimmer.broken(reader, may_return=len(self.cluster.crashed) > 1)

    def _cut_all_power(self) -> None:
        """Metadata is synced before it is acknowledged; of records that is a topic's choice.

        Nothing is promised of disks that failed before.
        """
        if "fail_disk" in self.options.faults:
            return
        for broker in self.cluster.brokers:
            broker.lose_power()
        for broker in self.cluster.brokers:
            broker.start()
        alive = [broker for broker in self.cluster.brokers if not broker.is_kept_down]
        self.until(lambda: all(broker.is_serving for broker in alive), "serve after a power cut")
        broken = [*self._broken_metadata(), *check(self.history)]
        if broken:
            raise SimulationError(self._shown(broken[0]))
        if self.options.flushes:
            self.until(lambda: self._is_in_sync(alive), "lead every partition after a power cut")
            self.check_end("reader after the power cut")

    def _broken_metadata(self) -> list[str]:
        """What is given twice; what every broker knows of the changes is added to the history."""
        for _, running in self.cluster.running:
            self.admin.see(running)
        if len(set(self.given_ids)) != len(self.given_ids):
            return [f"a producer id was given twice: {sorted(self.given_ids)}"]
        return []

    def _is_stable(self) -> bool:
        """Whether no transaction is open: one that a client abandoned ends by its time-out."""
        return all(
            partition.log.last_stable_offset == partition.log.end_offset
            for _, running in self.cluster.running
            for partition in running.partitions
            if partition.is_leader
        )

    def _is_in_sync(self, alive: list[SimulatedBroker]) -> bool:
        nodes = {broker.node_id for broker in alive}
        images = [running.image.state for _, running in self.cluster.running]
        return all(
            nodes & set(row.replicas) <= set(row.isr) and row.leader in nodes
            for image in images
            for topic in image.topics.values()
            for row in topic.partitions
        )

    def close(self) -> None:
        """End everything; what was in the middle of something is dropped without a word."""
        for broker in self.cluster.brokers:
            broker.crash()
        for client in self.clients:
            client.loop.kill()
        self.world.drop_events()
        loops = [loop for loop, _, _ in self.cluster.remains] + [each.loop for each in self.clients]
        patch = pytest.MonkeyPatch()
        patch.setattr(sys, "unraisablehook", lambda _: None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for loop in loops:
                loop.close_coroutines()
            self.cluster.remains.clear()
            gc.collect()
        patch.undo()

    # Time.

    def run_for(self, span_s: float) -> None:
        """Let time pass, then compare the brokers."""
        self.world.run_for(span_s)
        self.checks.look()
        if self.checks.broken:
            raise SimulationError(self._shown(self.checks.broken[0]))

    def until(self, is_over: Callable[[], bool], what: str) -> None:
        """Let time pass until something has happened."""
        until_s = self.world.now_s + HEAL_S
        while not is_over():
            if self.world.now_s > until_s:
                raise SimulationError(self._shown(f"could not {what} within {HEAL_S} s"))
            self.world.run_until(is_over, within_s=self.options.look_s)
            self.run_for(0.0)

    def _shown(self, line: str) -> str:
        events = "\n".join(self.cluster.log[-60:])
        return f"seed {self.world.seed}: {line}\n{self.options}\n{events}"


def run_seed(
    seed: int,
    folder: Path,
    prepare: Callable[[pytest.MonkeyPatch], None] = lambda _: None,
    **changes: Any,
) -> str:
    """Run one seed; its trace. SimulationError when something is broken.

    `prepare` may change the product, to see whether that is found; `changes` are of the options.
    """
    gc.disable()  # what is collected when would depend on what ran before
    try:
        with pytest.MonkeyPatch.context() as patch:
            prepare(patch)
            scenario = Scenario(seed, folder / str(seed), patch, changes)
            try:
                return scenario.run()
            except FAILURES as failure:
                raise SimulationError(f"seed {seed}: {scenario.options}: {failure!r}") from failure
            finally:
                scenario.close()
    finally:
        gc.enable()
