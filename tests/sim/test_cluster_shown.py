"""What brokers say of a cluster that lacks some of its brokers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.partition_survey import PartitionSurvey
from penstock.link.operation import request_of
from penstock.link.routing import Routes
from penstock.protocol.messages.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    NamedTopic,
)
from tests.support.cluster_simulation.clients import Client
from tests.support.cluster_simulation.quiet import (
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
    from penstock.link.operation import Request


def responses(scenario: Scenario, *requests: Request[Any]) -> list[Any]:
    """What some broker responds to a client."""
    client = Client(scenario.cluster, scenario.history, "describer")
    received: list[Any] = []

    async def send() -> None:
        link = client.link()
        received.extend(
            [await link.run(partial(Routes.send_to_any, request=request)) for request in requests]
        )
        await link.close()

    sending = client.start(send())
    scenario.until(sending.done, "answer")
    return received


def shown(scenario: Scenario, index: int) -> tuple[Any, Any]:
    """A partition as Metadata and DescribeTopicPartitions show it."""
    metadata, described = responses(
        scenario,
        request_of(METADATA, MetadataRequest([MetadataRequestTopic(TOPIC)]), version_min=12),
        request_of(
            DESCRIBE_TOPIC_PARTITIONS,
            DescribeTopicPartitionsRequest([NamedTopic(TOPIC)]),
            version_min=0,
        ),
    )
    return metadata.topics[0].partitions[index], described.topics[0].partitions[index]


def test_clients_see_which_replicas_are_offline_and_which_may_still_lead(start: Start) -> None:
    scenario = start(brokers=5, partitions=5)
    controller, _ = controller_of(scenario)
    rows = newest_of(scenario).image.state.topics[TOPIC].partitions
    index = next(i for i, row in enumerate(rows) if controller.node_id not in row.replicas)
    leader, first, second = rows[index].replicas
    row, described = shown(scenario, index)
    assert set(row.isr_nodes) == {leader, first, second}
    assert list(row.offline_replicas) == list(described.offline_replicas) == []
    assert not described.eligible_leader_replicas

    broker_of(scenario, first).crash()
    scenario.until(lambda: first not in row_of(scenario, index).isr, "leave the in-sync set")
    row, described = shown(scenario, index)
    assert list(row.offline_replicas) == list(described.offline_replicas) == [first]
    assert not described.eligible_leader_replicas

    broker_of(scenario, second).crash()
    scenario.until(lambda: second not in row_of(scenario, index).isr, "leave the in-sync set")
    row, described = shown(scenario, index)
    assert list(row.offline_replicas) == list(described.offline_replicas) == [first, second]
    assert list(described.eligible_leader_replicas) == [second]
    assert list(described.isr_nodes) == [leader]

    broker_of(scenario, first).start()
    broker_of(scenario, second).start()
    finish(scenario)
    _, described = shown(scenario, index)
    assert not described.eligible_leader_replicas


def test_the_lag_of_followers_is_measured(start: Start) -> None:
    scenario = start()
    leader = broker_of(scenario, row_of(scenario).leader)
    assert leader.running is not None
    survey = PartitionSurvey(leader.running.broker)

    def lag() -> int:
        survey._due_s = 0.0  # noqa: SLF001 - a pass now
        list(survey.refresh())
        return survey.result.lag[TOPIC]

    down = next(node for node in row_of(scenario).replicas if node != leader.node_id)
    broker_of(scenario, down).crash()
    before = partition_of(leader).log.end_offset
    scenario.until(lambda: partition_of(leader).log.end_offset > before + 5, "go on")
    assert lag() >= 5
    broker_of(scenario, down).start()
    finish(scenario)
    assert lag() == 0


def test_no_fault_begins_after_the_faults_have_ended(start: Start) -> None:
    scenario = start()
    hosts = [broker.host for broker in scenario.cluster.brokers]
    for _ in range(5):
        scenario.faults.swizzle()  # begins up to a second later
    scenario.faults.heal(keep_down=None)
    for _ in range(10):
        scenario.run_for(0.2)
        network = scenario.cluster.network
        assert not any(network.is_cut(a, b) for a in hosts for b in hosts)
    finish(scenario)
