"""Simulated clusters recover automatically from lost power and bad disks, with all that counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.model import Offset
from tests.support.cluster_simulation.clients import Reader
from tests.support.cluster_simulation.quiet import (
    Start,
    broker_of,
    finish,
    partition_of,
    row_of,
)
from tests.support.cluster_simulation.scenario import TOPIC, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.cluster_simulation.cluster import SimulatedBroker


def test_all_partitions_return_after_a_power_cut_of_all_brokers(start: Start) -> None:
    scenario = start(flushes=True, partitions=3, transactions=True, members=1)
    for broker in scenario.cluster.brokers:
        broker.lose_power()
    scenario.run_for(1.0)
    for broker in scenario.cluster.brokers:
        broker.start()
    finish(scenario)


def test_a_broker_joins_a_cluster_through_any_voter(start: Start) -> None:
    scenario = start()
    for voter in tuple(scenario.cluster.brokers):
        broker = scenario.cluster.add(voter)
        broker.start()
        scenario.until(lambda broker=broker: broker.is_serving, "join")  # type: ignore[misc]  # a default argument binds it now


def test_without_a_flush_policy_no_replica_claims_to_be_complete(start: Start) -> None:
    scenario = start(flushes=False)
    for broker in scenario.cluster.brokers:
        assert not partition_of(broker).log.has_synced_marker
        broker.lose_power()
        broker.start()
    scenario.until(lambda: all(each.is_serving for each in scenario.cluster.brokers), "serve")
    scenario.run_for(5.0)
    assert row_of(scenario).leader == -1
    assert not row_of(scenario).isr


def test_a_leader_whose_disk_fails_lets_another_lead_until_it_is_restarted(start: Start) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    leader.disk.bad_folder = f"{TOPIC}-0"
    scenario.until(lambda: row_of(scenario).leader not in (-1, leader.node_id), "move the leader")
    scenario.until(lambda: row_of(scenario).offline == (leader.node_id,), "show it as offline")
    assert leader.is_serving
    before = scenario.producers[0].acknowledged
    scenario.until(lambda: scenario.producers[0].acknowledged > before, "go on")
    leader.disk.bad_folder = None
    leader.crash()
    leader.start()
    finish(scenario)
    assert not row_of(scenario).offline


def test_a_follower_whose_disk_fails_leaves_the_in_sync_set(start: Start) -> None:
    scenario = start()
    follower = broker_of(scenario, row_of(scenario).leader % 3 + 1)
    follower.disk.bad_folder = f"{TOPIC}-0"
    scenario.until(lambda: row_of(scenario).offline == (follower.node_id,), "show it as offline")
    assert follower.node_id not in row_of(scenario).isr
    follower.disk.bad_folder = None
    follower.crash()
    follower.start()
    finish(scenario)


def starts_of(scenario: Scenario, broker: SimulatedBroker) -> int:
    return sum(f"{broker.host} starts" in line for line in scenario.cluster.log)


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("is_leader", [False, True])
def test_others_go_on_without_a_full_disk_and_it_is_in_sync_soon_after_there_is_space(
    start: Start, flushes: bool, is_leader: bool
) -> None:
    scenario = start(flushes=flushes)
    leader = row_of(scenario).leader
    full = broker_of(scenario, leader if is_leader else leader % 3 + 1)
    full.disk.free_bytes = 1000
    scenario.until(lambda: full.node_id not in row_of(scenario).isr, "go on without it")
    before = scenario.producers[0].acknowledged
    scenario.until(lambda: scenario.producers[0].acknowledged > before + 10, "go on")
    scenario.run_for(10.0)
    full.disk.free_bytes = None
    freed_at_s = scenario.world.now_s
    scenario.until(lambda: full.node_id in row_of(scenario).isr, "be in sync")
    assert scenario.world.now_s - freed_at_s < 5
    assert starts_of(scenario, full) == 1
    finish(scenario)


def test_full_disks_of_all_brokers_end_no_process_and_all_is_written_again(start: Start) -> None:
    scenario = start(members=1, transactions=True)
    for broker in scenario.cluster.brokers:
        broker.disk.free_bytes = 500
    scenario.run_for(10.0)
    for broker in scenario.cluster.brokers:
        broker.disk.free_bytes = None
    finish(scenario)
    assert all(starts_of(scenario, broker) == 1 for broker in scenario.cluster.brokers)


def damage(broker: SimulatedBroker, change: Callable[[bytearray], None]) -> None:
    """Change the bytes of a broker's log without its knowledge."""
    (path,) = sorted((broker.cluster.folder / broker.host / f"{TOPIC}-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    change(content)
    with path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))


def set_aside(broker: SimulatedBroker) -> list[Path]:
    return list((broker.cluster.folder / broker.host).glob(f"{TOPIC}-0.*-damaged"))


def cut_in_half(content: bytearray) -> None:
    del content[len(content) // 2 :]


def test_a_log_that_lost_records_while_its_broker_was_down_is_copied_again(start: Start) -> None:
    scenario = start()
    broker = broker_of(scenario, row_of(scenario).leader)
    broker.stop()
    scenario.until(lambda: broker.loop is None, "stop")
    damage(broker, cut_in_half)
    scenario.until(lambda: len(set_aside(broker)) == 1, "set the log aside")
    finish(scenario)
    assert broker.node_id in row_of(scenario).isr


def alter_second_header(content: bytearray) -> None:
    second = 12 + int.from_bytes(content[8:12])
    content[second + 8 : second + 12] = bytes(4)  # its length


def alter_a_record(content: bytearray) -> None:
    content[-1] ^= 1


def test_a_leader_that_cannot_read_its_log_lets_another_lead_and_copies_it(start: Start) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    damage(leader, alter_second_header)
    reader = Reader(
        scenario.cluster, scenario.history, "late", partitions=scenario.partitions, repeats=False,
        start=Offset(8),
    )  # fmt: skip
    reading = reader.start(reader.run())
    scenario.until(lambda: len(set_aside(leader)) == 1, "set the log aside")
    scenario.until(reading.done, "read everything in spite of it")
    finish(scenario)


def test_a_leader_whose_records_no_follower_accepts_copies_them_from_another(start: Start) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    slow = broker_of(scenario, row_of(scenario).leader % 3 + 1)
    slow.crash()
    scenario.run_for(2.0)  # the other two go on
    damage(leader, alter_a_record)
    slow.start()
    scenario.until(lambda: len(set_aside(leader)) == 1, "set the log aside")
    for client in scenario.clients:  # a reader may have met the damage: its checksum shows it
        client.findings[:] = [each for each in client.findings if "checksum" not in each]
    finish(scenario)


def test_a_leader_that_was_paused_serves_again_once_it_knows_who_leads(start: Start) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    assert leader.loop is not None
    assert leader.running is not None
    dispatcher = leader.running.broker.dispatcher
    leader.loop.pause()
    scenario.until(lambda: row_of(scenario).leader not in (-1, leader.node_id), "move the leader")
    scenario.run_for(3.0)
    leader.loop.resume()
    assert scenario.world.run_until(lambda: not dispatcher.is_open, within_s=1.0)
    assert scenario.world.run_until(lambda: dispatcher.is_open, within_s=10.0)
    assert partition_of(leader).leader_epoch == row_of(scenario).leader_epoch
    finish(scenario)


def test_a_leader_that_was_paused_twice_serves_by_what_it_learnt_after_the_second_time(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    assert leader.loop is not None
    assert leader.running is not None
    dispatcher, lifecycle = leader.running.broker.dispatcher, leader.running.lifecycle
    renew, renewals = lifecycle.renewed, []

    async def renewed() -> None:
        began_s = scenario.world.now_s
        await renew()
        renewals.append(began_s)

    monkeypatch.setattr(lifecycle, "renewed", renewed)
    for _ in range(2):
        leader.loop.pause()
        scenario.run_for(6.0)
        resumed_s = scenario.world.now_s
        leader.loop.resume()
        assert scenario.world.run_until(lambda: not dispatcher.is_open, within_s=1.0)
    assert scenario.world.run_until(lambda: dispatcher.is_open, within_s=10.0)
    scenario.run_for(3.0)
    assert [began_s >= resumed_s for began_s in renewals] == [True]
    finish(scenario)
