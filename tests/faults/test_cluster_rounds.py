"""A cluster of three processes that fails again and again, under load.

Clients of confluent-kafka and Java write idempotently and in transactions, move records exactly
once, read in groups and change topics meanwhile. `--rounds` says how often each failure happens;
fifty is the full run. One history judges: nothing acknowledged is lost, nothing is there twice, no
transaction is torn. `-rP` shows how much was judged and how long clients had to wait.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.testing.embedded_cluster import EmbeddedCluster
from tests.support.cluster_load import Load
from tests.support.cluster_load.load import EVENTS
from tests.support.cluster_load.writers import PARTITIONS
from tests.support.network_cluster import NetworkCluster, cannot_cut
from tests.support.small_disk import SmallDiskCluster, cannot_mount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(7200)]

PAUSE_S = 5.0
CUT_S = 4.0
FULL_S = 3.0  # after others have taken over
CHANGE_S_MAX = 30.0  # until the next acknowledged change; far above what is expected


class Rounds:
    """One cluster under load, and the moments at which it was made to fail."""

    def __init__(self, cluster: EmbeddedCluster, load: Load) -> None:
        self.cluster = cluster
        self.load = load
        self.failed_at: list[float] = []

    def fail(self, fault: Callable[[], None]) -> None:
        """Cause a fault whose end clients need not wait for: the cluster goes on without a part."""
        fault()
        self.failed_at.append(time.monotonic())

    def leader(self, number: int) -> int:
        """The broker that leads a partition, another one in each round."""
        return self.cluster.leader(EVENTS, number % PARTITIONS)

    def others(self, broker: int) -> list[int]:
        """All brokers but one."""
        return [number for number in self.cluster.brokers if number != broker]

    def restart(self, *brokers: int) -> None:
        """Start brokers that were killed, together."""
        for broker in brokers:
            self.cluster.brokers[broker].launch()
        for broker in brokers:
            self.cluster.brokers[broker].wait_ready()

    def changes_after_s(self) -> list[float]:
        """How long after each fault the next change of metadata was acknowledged."""
        found = [self.load.changes.first_after(moment) for moment in self.failed_at]
        return [each for each in found if each is not None]


# Kills.


def kill_a_leader(rounds: Rounds, number: int) -> None:
    victim = rounds.leader(number)
    rounds.fail(lambda: rounds.cluster.kill(victim))
    rounds.load.wait_for_progress()
    rounds.restart(victim)


def kill_leader_and_controller(rounds: Rounds, number: int) -> None:
    """One process that is both, or two processes at once: then nothing works until one is back."""
    controller, leader = rounds.cluster.controller(), rounds.leader(number)
    if number % 2 == 0:
        leads = (p for p in range(PARTITIONS) if rounds.cluster.leader(EVENTS, p) == controller)
        if next(leads, None) is not None:
            leader = controller
    rounds.cluster.kill(controller)
    if leader != controller:
        rounds.cluster.kill(leader)
    rounds.fail(lambda: None)
    if leader == controller:
        rounds.load.wait_for_progress()
        rounds.restart(controller)
    else:
        time.sleep(1)
        rounds.failed_at.pop()  # it lasts as long as the test wants
        rounds.restart(controller, leader)


def kill_two_in_turn(rounds: Rounds, number: int) -> None:
    """The second one when the first is in sync again, or as soon as it serves."""
    first = rounds.leader(number)
    rounds.fail(lambda: rounds.cluster.kill(first))
    rounds.load.wait_for_progress()
    rounds.restart(first)
    if number % 2:
        rounds.load.wait_in_sync()
    second = rounds.others(first)[number % 4 // 2]
    rounds.fail(lambda: rounds.cluster.kill(second))
    rounds.load.wait_for_progress()
    rounds.restart(second)


def pause_a_broker(rounds: Rounds, number: int) -> None:
    victim = rounds.leader(number) if number % 2 else rounds.cluster.controller()
    rounds.fail(lambda: rounds.cluster.pause(victim))
    time.sleep(PAUSE_S)
    rounds.cluster.resume(victim)


@contextmanager
def three_processes() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


# A full disk.


@contextmanager
def three_small_disks() -> Iterator[EmbeddedCluster]:
    reason = cannot_mount()
    if reason is not None:
        pytest.skip(reason)
    with SmallDiskCluster() as cluster:
        yield cluster


def fill_a_disk(rounds: Rounds, number: int) -> None:
    """Of a leader or of the controller; some space may be left, so that small writes work."""
    assert isinstance(rounds.cluster, SmallDiskCluster)
    victim = rounds.leader(number) if number % 2 else rounds.cluster.controller()
    disk = rounds.cluster.disks[victim]
    rounds.fail(lambda: disk.fill(left_bytes=(0, 20_000, 0, 4_096)[number % 4]))
    rounds.load.wait_for_progress()
    time.sleep(FULL_S)
    disk.free()


# Cuts.


@contextmanager
def three_networks() -> Iterator[EmbeddedCluster]:
    reason = cannot_cut()
    if reason is not None:
        pytest.skip(reason)
    with NetworkCluster() as cluster:
        yield cluster


def network(rounds: Rounds) -> NetworkCluster:
    assert isinstance(rounds.cluster, NetworkCluster)
    return rounds.cluster


def cut_off_the_controller(rounds: Rounds, number: int) -> None:
    """From all, or from the other brokers only: then clients still reach it."""
    cluster, controller = network(rounds), rounds.cluster.controller()
    if number % 3 == 0:
        rounds.fail(lambda: cluster.isolate(controller))
    else:
        for other in rounds.others(controller):
            cluster.cut(controller, other, silently=number % 3 == 1)
        rounds.fail(lambda: None)
    time.sleep(CUT_S)
    cluster.join()


def cut_one_way(rounds: Rounds, number: int) -> None:
    """A broker hears the others, which do not hear it; or one of two links is affected."""
    cluster = network(rounds)
    victim = rounds.cluster.controller() if number % 2 else rounds.leader(number)
    others = rounds.others(victim)
    for other in others[: 1 + number % 4 // 2]:
        if number % 3 == 0:
            cluster.cut_one_way(other, victim, silently=True)
        else:
            cluster.cut_one_way(victim, other, silently=number % 3 == 1)
    rounds.fail(lambda: None)
    time.sleep(CUT_S)
    cluster.join()


def cut_off_a_minority(rounds: Rounds, number: int) -> None:
    """One broker that is not the controller, from all or from the other brokers only."""
    cluster = network(rounds)
    victim = rounds.others(rounds.cluster.controller())[number % 2]
    if number % 3 == 0:
        cluster.isolate(victim)
    else:
        for other in rounds.others(victim):
            cluster.cut(victim, other, silently=number % 3 == 1)
    rounds.fail(lambda: None)
    time.sleep(CUT_S)
    cluster.join()


def cut_off_a_majority(rounds: Rounds, number: int) -> None:
    """No broker reaches another one: nothing is acknowledged until they do."""
    cluster = network(rounds)
    for broker in rounds.cluster.brokers:
        for other in rounds.others(broker):
            cluster.cut_one_way(broker, other, silently=number % 2 == 1)
    time.sleep(CUT_S)
    cluster.join()


# Slow links and stops in order.


def slow_a_link(rounds: Rounds, number: int) -> None:
    """Of a leader or of the controller: bytes from and to it take long."""
    victim = rounds.leader(number) if number % 2 else rounds.cluster.controller()
    broker = rounds.cluster.brokers[victim]
    broker.add_latency((60, 300)[number % 4 // 2])
    time.sleep(CUT_S)
    broker.add_latency(1)


def stop_in_order(rounds: Rounds, number: int) -> None:
    """A rolling restart, one broker in each round: no client notices."""
    rounds.fail(lambda: rounds.cluster.restart(number % 3 + 1))


class Fault(NamedTuple):
    """What happens to which cluster, how soon metadata changes again, and what clients notice."""

    cluster: Callable[[], AbstractContextManager[EmbeddedCluster]]
    happen: Callable[[Rounds, int], None]
    change_s_max: float = CHANGE_S_MAX  # the longest of all rounds
    is_unnoticed: bool = False  # no application has to handle anything


# After each kill. Two voters are left: if each votes for itself, they vote again, which takes
# 0.3 to 0.6 s. That is included; a client's backoff is not, because this one has none.
KILL_S_MAX = 1.5
FAULTS = {
    "kill-leader": Fault(three_processes, kill_a_leader, KILL_S_MAX),
    "kill-leader-and-controller": Fault(three_processes, kill_leader_and_controller, KILL_S_MAX),
    "kill-two-in-turn": Fault(three_processes, kill_two_in_turn, KILL_S_MAX),
    "stop": Fault(three_processes, stop_in_order, is_unnoticed=True),
    "pause": Fault(three_processes, pause_a_broker),
    "slow-link": Fault(three_processes, slow_a_link),
    "full-disk": Fault(three_small_disks, fill_a_disk),
    "cut-controller": Fault(three_networks, cut_off_the_controller),
    "cut-minority": Fault(three_networks, cut_off_a_minority),
    "cut-majority": Fault(three_networks, cut_off_a_majority),
    "cut-one-way": Fault(three_networks, cut_one_way),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_acknowledged_is_lost_duplicated_or_torn(
    fault: str, rounds: int, kafka_libs: Path, tmp_path: Path
) -> None:
    make_cluster, happen, change_s_max, is_unnoticed = FAULTS[fault]
    with make_cluster() as cluster:
        with Load(cluster, kafka_libs) as load:
            running = Rounds(cluster, load)
            for number in range(rounds):
                happen(running, number)
                load.wait_for_progress()
                load.wait_in_sync()
        problems = load.problems() + (load.interruptions() if is_unnoticed else [])
        after_s = running.changes_after_s()
        print(f"{fault}, {rounds} rounds: {load.summary()}")  # noqa: T201 - the result of the run
        print(f"retried: {load.reports()}")  # noqa: T201 - as above
        longest = {name: round(each, 1) for name, each in load.waits_s.items()}
        print(f"longest waits of clients in seconds: {longest}")  # noqa: T201 - as above
        if after_s:
            print(  # noqa: T201 - as above
                f"next change of metadata after {median(after_s):.2f} s, at most {max(after_s):.2f}"
            )
        if problems:
            load.history.save(tmp_path / "history.jsonl")
        assert problems == []
        assert len(after_s) == len(running.failed_at)
        assert max(after_s, default=0) < change_s_max
