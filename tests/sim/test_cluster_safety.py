"""Simulated clusters lose nothing where brokers disagree, are cut off, or have a bug."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.broker.handlers.quorum import _change_voters
from penstock.broker.metadata_follower import MetadataFollower
from penstock.broker.replication.followed_partition import FollowedPartition
from penstock.consensus.raft import RemoveVoter
from penstock.errors import ErrorCode
from tests.support.cluster_simulation.quiet import (
    QUIET,
    Start,
    broker_of,
    controller_of,
    finish,
    newest_of,
    partition_of,
    row_of,
)
from tests.support.cluster_simulation.scenario import TOPIC, Scenario

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_leader_that_was_started_with_fewer_in_sync_replicas_needs_as_many_as_the_cluster(
    start: Start,
) -> None:
    scenario = start(brokers=5, partitions=5)
    controller, _ = controller_of(scenario)
    odd = next(each for each in scenario.cluster.brokers if each is not controller)
    odd.static = {"min.insync.replicas": "1"}
    odd.crash()
    odd.start()
    rows = newest_of(scenario).image.state.topics[TOPIC].partitions
    index = next(
        index
        for index, row in enumerate(rows)
        if odd.node_id in row.replicas and controller.node_id not in row.replicas
    )
    scenario.until(lambda: odd.node_id in row_of(scenario, index).isr, "be in sync")
    others = [node for node in row_of(scenario, index).replicas if node != odd.node_id]
    for node in others:
        broker_of(scenario, node).crash()
        scenario.run_for(2.0)
    assert row_of(scenario, index).leader == odd.node_id
    assert row_of(scenario, index).isr == (odd.node_id,)
    partition = partition_of(odd, index)
    committed = partition.log.high_watermark
    assert not partition.has_min_insync
    scenario.run_for(5.0)
    assert partition.log.high_watermark == committed
    assert row_of(scenario, index).elr == (others[-1],)
    finish(scenario)


def test_a_voter_change_that_was_undone_is_refused(start: Start) -> None:
    scenario = start()
    cut_off, running = controller_of(scenario)
    others = [each for each in scenario.cluster.brokers if each is not cut_off]
    for other in others:
        scenario.cluster.network.cut(cut_off.host, other.host)
        scenario.cluster.network.cut(other.host, cut_off.host)
    voter = running.broker.quorum.raft.voters.find(others[0].node_id)
    assert voter is not None
    responses: list[Any] = []

    def remove() -> None:
        context: Any = SimpleNamespace(broker=running.broker)
        _change_voters(context, None, RemoveVoter(voter.key)).listen(responses.append)  # type: ignore[union-attr]  # it waits for the quorum

    assert cut_off.loop is not None
    cut_off.loop.call_soon(remove)
    scenario.run_for(4.0)
    scenario.cluster.network.heal_all()
    scenario.run_for(6.0)
    assert [response.error_code for response in responses] == [ErrorCode.not_controller]
    for _, each in scenario.cluster.running:
        assert each.broker.quorum.raft.voters.find(others[0].node_id) is not None
    finish(scenario)


def test_a_bug_in_one_partition_of_a_follower_is_reported_and_the_others_go_on(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scenario = start(partitions=3)
    carry_out = FollowedPartition._carry_out  # noqa: SLF001 - the bug is planted there
    failures: list[FollowedPartition] = []

    def fail_once(followed: FollowedPartition, row: Any, requested: Any) -> None:
        if row.records and not failures:
            failures.append(followed)
            raise ValueError("a bug")
        carry_out(followed, row, requested)

    monkeypatch.setattr(FollowedPartition, "_carry_out", fail_once)
    scenario.until(lambda: bool(failures), "fail once")
    scenario.run_for(20.0)
    assert all(len(row_of(scenario, index).isr) == 3 for index in range(3))
    assert "ValueError: a bug" in caplog.text
    finish(scenario)


def test_a_broker_that_is_killed_while_it_opens_its_logs_is_still_complete(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = start()

    async def idle_never(_follower: Any) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(MetadataFollower, "idle", idle_never)
        for broker in scenario.cluster.brokers:
            broker.crash()
        for broker in scenario.cluster.brokers:
            broker.start()
        scenario.run_for(5.0)
        for broker in scenario.cluster.brokers:
            broker.crash()
    for broker in scenario.cluster.brokers:
        broker.start()
    finish(scenario)


def test_a_single_broker_notices_a_pause_once_another_one_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(1, tmp_path, monkeypatch, {**QUIET, "brokers": 1})
    try:
        (alone,) = scenario.cluster.brokers
        alone.start()
        scenario.until(lambda: alone.is_serving, "start")
        assert alone.running is not None
        assert alone.running.broker.dispatcher.stalls is None
        scenario.cluster.add(alone).start()
        scenario.until(lambda: all(each.is_serving for each in scenario.cluster.brokers), "join")
        assert alone.running.broker.dispatcher.stalls is not None
    finally:
        scenario.close()
