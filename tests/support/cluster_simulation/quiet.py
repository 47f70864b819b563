"""Simulated clusters without faults of their own: a test causes them one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tests.support.cluster_simulation.scenario import TOPIC, Scenario

if TYPE_CHECKING:
    from penstock.broker.partition import Partition
    from penstock.coordination.controller.events import PartitionState
    from penstock.node.run_broker import RunningBroker
    from tests.support.cluster_simulation.cluster import SimulatedBroker

QUIET = {
    "brokers": 3, "partitions": 1, "producers": 1, "transactions": False, "members": 0,
    "flushes": False, "leaves_one_down": False, "most_delay_s": 0.001, "faults": (),
    "trims": False, "changes_voters": False, "snapshot_bytes": None,
    "tries_once": False,
}  # fmt: skip


class Start(Protocol):
    """Start brokers and clients that write and read a topic; `options` as in Options."""

    def __call__(self, **options: Any) -> Scenario: ...


def newest_of(scenario: Scenario) -> RunningBroker:
    """The broker that has applied most."""
    return max((each for _, each in scenario.cluster.running), key=lambda b: b.follower.applied)


def row_of(scenario: Scenario, index: int = 0) -> PartitionState:
    """A partition as the broker knows it that has applied most."""
    return newest_of(scenario).image.state.topics[TOPIC].partitions[index]


def broker_of(scenario: Scenario, node_id: int) -> SimulatedBroker:
    return scenario.cluster.brokers[node_id - 1]


def controller_of(scenario: Scenario) -> tuple[SimulatedBroker, RunningBroker]:
    return next(each for each in scenario.cluster.running if each[1].controller.is_active)


def partition_of(broker: SimulatedBroker, index: int = 0) -> Partition:
    assert broker.running is not None
    partition = broker.running.partitions.find(TOPIC, index)
    assert partition is not None
    return partition


def finish(scenario: Scenario) -> None:
    """All serve, every producer makes progress, and what was acknowledged is read."""
    scenario.heal()
    scenario.check_end()
