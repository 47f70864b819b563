"""What a seed decides before the first step, and the faults that it then lets happen.

Every fault ends after a while, by chance. A power cut may take what only the page cache had, so
until that broker is back in every in-sync set no other loses its power: more is not promised. If
every record is synced before it counts, all may lose it at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.cluster_simulation.network import Delays

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.support.cluster_simulation.cluster import Cluster, SimulatedBroker


@dataclass(frozen=True)
class Options:
    """One run's surroundings; printed when it fails."""

    brokers: int
    partitions: int
    producers: int
    transactions: bool
    members: int
    flushes: bool  # every record is on disk before it counts
    leaves_one_down: bool  # when the rest is healed
    duration_s: float
    fault_interval_s: float
    most_delay_s: float
    faults: tuple[str, ...]
    look_s: float = 0.2  # how often the brokers are compared
    trims: bool = False  # a client removes the oldest records of a topic
    changes_voters: bool = False
    snapshot_bytes: int | None = None  # of metadata, after which a snapshot is written
    tries_once: bool = False  # a client sends without retries, and knows what was refused

    @staticmethod
    def draw(rng: Random) -> Options:
        """Few kinds of faults at a time find more than all at once."""
        faults = tuple(dict.fromkeys(rng.choices(_WEIGHTED, k=rng.randint(2, 8))))
        flushes = rng.random() < 0.3
        if "fail_disk" in faults:  # what a failed sync did not write is lost with the power
            faults = tuple(each for each in faults if "power" not in each)
        brokers = 5 if rng.random() < 0.2 else 3
        return Options(
            brokers=brokers,
            partitions=rng.randint(1, 3),
            producers=rng.randint(1, 2),
            transactions=rng.random() < 0.5,
            members=rng.randint(0, 2),
            flushes=flushes,
            leaves_one_down=rng.random() < 0.5,
            duration_s=rng.uniform(4, 10),
            fault_interval_s=rng.choice((0.4, 0.8, 1.6)),
            most_delay_s=rng.choice((0.001, 0.001, 0.01, 0.05)),
            faults=faults,
            trims=rng.random() < 0.4,
            changes_voters=brokers == 5,  # of three, no two may be away
            snapshot_bytes=rng.choice((None, 2_000, 10_000)),
            tries_once=rng.random() < 0.7,
        )


class Faults:
    """Draws faults and ends them."""

    def __init__(self, cluster: Cluster, options: Options, client_hosts: list[str]) -> None:
        self.cluster = cluster
        self.options = options
        self.client_hosts = client_hosts
        self.world = cluster.world
        self.rng = cluster.world.rng
        self._is_healed = False
        self._lost_power: SimulatedBroker | None = None  # and may lack what others have

    def step(self) -> None:
        """Let one fault begin."""
        name = self.rng.choice(self.options.faults)
        KINDS[name](self)

    def heal(self, *, keep_down: SimulatedBroker | None) -> None:
        """End every fault, but leave one broker without power for good."""
        self.cluster.note(f"heal all but {keep_down.host if keep_down else 'none'}")
        self._is_healed = True
        self.cluster.network.heal_all()
        for broker in self.cluster.brokers:
            broker.disk.free_bytes = None
            if broker.disk.fsync_failure_share:
                self._replace_disk(broker)
            broker.slow_disk((0.0002, 0.002))
            if broker is keep_down:
                broker.is_kept_down = True
                broker.lose_power()
                continue
            if broker.loop is not None and broker.loop.is_paused:
                broker.loop.resume()
            broker.start()

    def may_stay_down(self, broker: SimulatedBroker) -> bool:
        """Whether every partition has another complete replica that is there or comes back."""
        if self._lost_power not in (None, broker) and not self._is_back(self._lost_power):
            return False
        rows = [
            row
            for _, running in self.cluster.running
            if running.controller.is_active
            for topic in running.image.state.topics.values()
            for row in topic.partitions
        ]
        return bool(rows) and all({*row.isr, *row.elr} - {broker.node_id} for row in rows)

    def _is_back(self, broker: SimulatedBroker | None) -> bool:
        """Whether a broker has again all that others have, by everything that any broker knows."""
        if broker is None:
            return True
        if not broker.is_serving:
            return False
        return all(
            broker.node_id in row.isr
            for _, running in self.cluster.running
            for topic in running.image.state.topics.values()
            for row in topic.partitions
            if broker.node_id in row.replicas
        )

    # Kinds of faults.

    def _replace_disk(self, broker: SimulatedBroker) -> None:
        """A log whose sync failed is not written until its broker is restarted."""
        broker.disk.fsync_failure_share = 0.0
        self.cluster.note(f"restart {broker.host} after its disk failed")
        broker.crash()

    def _later(self, least_s: float, most_s: float, call: Callable[[], None]) -> None:
        self.cluster.supervisor.call_later(self.rng.uniform(least_s, most_s), call)

    def _broker(self) -> SimulatedBroker:
        return self.rng.choice(self.cluster.brokers)

    def crash(self, broker: SimulatedBroker | None = None) -> None:
        """Kill a process; it is started again."""
        broker = broker or self._broker()
        self.cluster.note(f"kill {broker.host}")
        broker.crash()
        self._later(0.05, 4, broker.start)

    def crash_controller(self) -> None:
        """Kill the process that leads the quorum."""
        for broker, running in self.cluster.running:
            if running.broker.quorum.is_leader:
                self.crash(broker)
                return

    def crash_all(self) -> None:
        """Kill all processes."""
        for broker in self.cluster.brokers:
            self.crash(broker)

    def lose_power(self) -> None:
        """Cut a machine's power, unless another has not recovered from that."""
        broker = self._broker()
        if self._lost_power not in (None, broker) and not self._is_back(self._lost_power):
            return
        self._lost_power = broker
        self.cluster.note(f"cut the power of {broker.host}")
        broker.lose_power()
        self._later(0.5, 4, broker.start)

    def lose_all_power(self) -> None:
        """Cut the power of all machines, if everything acknowledged is known to be on disk."""
        if not self.options.flushes or not self._is_all_marked():
            return
        self.cluster.note("cut the power of all")
        for broker in self.cluster.brokers:
            broker.lose_power()
            self._later(0.1, 3, broker.start)

    def _is_all_marked(self) -> bool:
        """Whether every in-sync replica says on its disk that it has what it acknowledged."""
        running = {broker.node_id: each for broker, each in self.cluster.running}
        rows = [
            (running.get(node), name, index)
            for each in running.values()
            for name, topic in each.image.state.topics.items()
            for index, row in enumerate(topic.partitions)
            for node in row.isr
        ]
        for each, name, index in rows:
            partition = None if each is None else each.partitions.find(name, index)
            if partition is None or not partition.log.has_synced_marker:
                return False
        return True

    def stop(self) -> None:
        """Stop a broker in order."""
        broker = self._broker()
        self.cluster.note(f"stop {broker.host}")
        broker.stop()

    def pause(self) -> None:
        """Pause a process, as SIGSTOP does."""
        loop = self._broker().loop
        if loop is None or loop.is_paused:
            return
        self.cluster.note(f"pause {loop.host}")
        loop.pause()

        def resume() -> None:
            if not loop.is_closed():
                self.cluster.note(f"resume {loop.host}")
                loop.resume()

        self._later(0.1, 4, resume)

    def _cut(self, source: str, target: str) -> None:
        network = self.cluster.network
        network.cut(source, target)
        self._later(0.2, 4, lambda: network.heal(source, target))

    def isolate(self, broker: SimulatedBroker | None = None) -> None:
        """Cut all links of a broker to others, and maybe to clients."""
        if self._is_healed:  # of a swizzle that had begun
            return
        broker = broker or self._broker()
        with_clients = self.rng.random() < 0.5
        self.cluster.note(f"isolate {broker.host}{' from clients too' if with_clients else ''}")
        hosts = [each.host for each in self.cluster.brokers if each is not broker]
        for host in (*hosts, *(self.client_hosts if with_clients else ())):
            self._cut(broker.host, host)
            self._cut(host, broker.host)

    def cut_one_way(self) -> None:
        """Cut one direction between two brokers."""
        source, target = self.rng.sample(self.cluster.brokers, 2)
        self.cluster.note(f"cut {source.host} -> {target.host}")
        self._cut(source.host, target.host)

    def cut_clients(self) -> None:
        """Cut one direction between a broker and a client."""
        broker, client = self._broker(), self.rng.choice(self.client_hosts)
        source, target = self.rng.sample((broker.host, client), 2)
        self.cluster.note(f"cut {source} -> {target}")
        self._cut(source, target)

    def swizzle(self) -> None:
        """Stop the links of some brokers one by one; they come back in another order."""
        count = self.rng.randint(1, len(self.cluster.brokers))
        for broker in self.rng.sample(self.cluster.brokers, count):
            self._later(0, 1, lambda broker=broker: self.isolate(broker))  # type: ignore[misc]  # a default argument binds it now

    def slow_link(self) -> None:
        """Let bytes from one broker to another take long."""
        source, target = self.rng.sample(self.cluster.brokers, 2)
        self.cluster.note(f"slow link {source.host} -> {target.host}")
        slow = self.cluster.network.slow
        link = source.host, target.host
        slow[link] = Delays(0.02, self.rng.choice((0.2, 1.0)))
        self._later(0.5, 4, lambda: (slow.pop(link, None), None)[1])

    def reset(self) -> None:
        """End some connections."""
        self.cluster.note("reset connections")
        self.cluster.network.reset_some(self.rng.random())

    def jump_clock(self) -> None:
        """Set a broker's time of day."""
        broker = self._broker()
        jump_ms = self.rng.randint(-600_000, 600_000)
        self.cluster.note(f"clock of {broker.host} {jump_ms:+d} ms")
        broker.jump_clock(jump_ms)

    def slow_disk(self) -> None:
        """Let a broker's disk take long."""
        broker = self._broker()
        self.cluster.note(f"slow disk of {broker.host}")
        broker.slow_disk((0.01, self.rng.choice((0.1, 0.6))))
        self._later(0.5, 4, lambda: broker.slow_disk((0.0002, 0.002)))

    def fill_disk(self) -> None:
        """Leave a broker little space on its disk."""
        broker = self._broker()
        disk = broker.disk
        self.cluster.note(f"full disk of {broker.host}")
        disk.free_bytes = self.rng.randint(0, 2000)

        def clear() -> None:
            disk.free_bytes = None

        self._later(0.5, 4, clear)

    def fail_disk(self) -> None:
        """Let syncs of a broker's disk fail."""
        broker = self._broker()
        self.cluster.note(f"failing disk of {broker.host}")
        broker.disk.fsync_failure_share = self.rng.choice((0.1, 1.0))

        def clear() -> None:
            if broker.disk.fsync_failure_share:
                self._replace_disk(broker)
                broker.start()

        self._later(0.2, 2, clear)


KINDS: Final[dict[str, Callable[[Faults], None]]] = {
    "crash": Faults.crash,
    "crash_controller": Faults.crash_controller,
    "crash_all": Faults.crash_all,
    "lose_power": Faults.lose_power,
    "lose_all_power": Faults.lose_all_power,
    "stop": Faults.stop,
    "pause": Faults.pause,
    "isolate": Faults.isolate,
    "cut_one_way": Faults.cut_one_way,
    "cut_clients": Faults.cut_clients,
    "swizzle": Faults.swizzle,
    "slow_link": Faults.slow_link,
    "reset": Faults.reset,
    "jump_clock": Faults.jump_clock,
    "slow_disk": Faults.slow_disk,
    "fill_disk": Faults.fill_disk,
    "fail_disk": Faults.fail_disk,
}
_WEIGHTED: Final = (*KINDS, "crash", "isolate")
