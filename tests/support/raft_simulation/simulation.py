"""One seed: first faults anywhere, with the checker after each step; then a majority is healed, the
rest stays broken for good, and a record must be committed within bounded time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tests.support.raft_simulation.faults import INJECT, heal, overthrow
from tests.support.raft_simulation.world import World

if TYPE_CHECKING:
    from penstock.consensus.raft import VoterSet
    from penstock.model import NodeId
    from tests.support.raft_simulation.host import Host

RECOVERY_MAX_MS: Final = 15_000  # of virtual time; a few elections


def run_seed(seed: int) -> Simulation:
    """Run one seed; a failure says how it came about, and how to see all of it."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as error:
        raise AssertionError(_explain(seed, error)) from error
    return simulation


def trace_of(seed: int) -> list[str]:
    """Every step of a seed, up to its end or its failure."""
    simulation = Simulation(seed, is_traced=True)
    with suppress(Exception):
        simulation.run()
    assert simulation.world.trace is not None
    return simulation.world.trace


def _explain(seed: int, error: Exception) -> str:
    world = World(seed)
    lines = [f"seed {seed}: {type(error).__name__}: {error}", f"{world.options}"]
    lines += [line[:300] for line in trace_of(seed)[-30:]]
    lines.append(f"all of it: python -m tests.support.raft_simulation --trace {seed}")
    return "\n".join(lines)


class Simulation:
    """The history of one seed."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, is_traced=is_traced)
        self.recovery_ms = -1
        self._first_value = 0
        self._looked_at = 0

    def run(self) -> None:
        """AssertionError: an invariant is broken, or nothing moves after healing."""
        world, options = self.world, self.world.options
        self._next_fault()
        self._next_proposal()
        world.on_new_leader = self._plan_coup
        world.run_until(options.duration_ms)
        self._recover()

    def _next_fault(self) -> None:
        world, options = self.world, self.world.options
        interval = int(world.rng.expovariate(1 / options.fault_interval_ms))
        if options.faults and world.now + interval < options.duration_ms:
            world.after(interval, self._inject)

    def _inject(self) -> None:
        world = self.world
        fault = world.rng.choice(world.options.faults)
        INJECT[fault](world)
        self._next_fault()

    def _plan_coup(self, host: Host) -> None:
        """Leaders that fall in a row leave logs that part in many places."""
        world = self.world
        if not world.is_healing and world.rng.random() < world.options.coup_rate:
            world.after(world.rng.randrange(200), overthrow, world, host)

    def _next_proposal(self) -> None:
        interval = int(self.world.rng.expovariate(1 / self.world.options.proposal_interval_ms))
        self.world.after(interval, self._propose)

    def _propose(self) -> None:
        """Clients send to whichever host leads or believes so."""
        world = self.world
        if world.is_healing:
            return
        for host in world.hosts.values():
            if world.rng.random() < 0.7:
                world.propose(host)
        self._next_proposal()

    def _recover(self) -> None:
        world = self.world
        started_at = world.now
        healed = self._draw_majority()
        if healed is None:
            return
        world.remark(f"heal {healed}")
        heal(world, healed)
        self._propose_until_committed(world.proposed + 1)
        world.run_until(started_at + RECOVERY_MAX_MS, lambda: self._has_recovered(healed))
        assert self._has_recovered(healed), f"{healed} are healed, and it does not recover"
        self.recovery_ms = world.now - started_at

    def _has_recovered(self, healed: list[NodeId]) -> bool:
        """Whether a new record is committed, and every healed host knows it."""
        committed = self.world.checker.committed
        while self._looked_at < len(committed):
            value = committed[self._looked_at][1]
            if isinstance(value, int) and value >= self._first_value:
                for node_id in healed:
                    node = self.world.hosts[node_id].node
                    if node is None or node.high_watermark <= self._looked_at:
                        return False
                return True
            self._looked_at += 1
        return False

    def _propose_until_committed(self, first_value: int) -> None:
        self._first_value = first_value
        for host in self.world.hosts.values():
            self.world.propose(host)
        self.world.after(100, self._propose_until_committed, first_value)

    def _draw_majority(self) -> list[NodeId] | None:
        """A random majority of every voter set that any host may act on.

        None if there is none: a disk was wiped just before others were removed.
        """
        world = self.world
        sets: dict[VoterSet, bool] = {}
        for host in world.hosts.values():
            for _, voters in host.disk.voter_sets(host.configured)[-2:]:
                sets[voters] = True
        ids = list(world.hosts)
        world.rng.shuffle(ids)
        healed: list[NodeId] = []
        for node_id in ids:
            if any(not self._has_majority(voters, healed) for voters in sets if voters.voters):
                healed.append(node_id)
        if all(self._has_majority(voters, healed) for voters in sets if voters.voters):
            return sorted(healed)
        assert world.checker.lost_disks, "a change of the voters lost the quorum"
        return None

    def _has_majority(self, voters: VoterSet, healed: list[NodeId]) -> bool:
        keys = [self.world.hosts[node_id].voter.key for node_id in healed]
        return sum(key in voters for key in keys) >= voters.majority
