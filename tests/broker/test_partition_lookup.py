"""What clients get for partitions that this broker does not have, or does not lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode
from penstock.model import LeaderEpoch, NodeId

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.partition import Partition
    from tests.broker.conftest import RunningBroker
    from tests.support.wire import Wire

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, EPOCH_END, DESCRIBE_PRODUCERS = 0, 1, 2, 21, 23, 61
OTHER, EPOCH = NodeId(2), LeaderEpoch(7)


def partition_of(broker: RunningBroker, topic: str) -> Partition:
    partition = broker.partitions.find(topic, 0)
    assert partition is not None
    return partition


@pytest.fixture
def led_elsewhere(broker: RunningBroker) -> str:
    """A topic whose partition another broker leads, which is not registered."""
    broker.create_topic("led-elsewhere")
    partition = partition_of(broker, "led-elsewhere")
    leadership = partition.leadership._replace(leader=OTHER, leader_epoch=EPOCH)
    broker.call(lambda: partition.lead(leadership))
    return "led-elsewhere"


@pytest.fixture
def not_here(broker: RunningBroker) -> str:
    """A topic whose partition this broker should lead, and does not have."""
    broker.create_topic("not-here")

    def lose() -> None:
        del broker.partitions.topics["not-here"].partitions[0]
        broker.partitions.generation += 1

    broker.call(lose)
    return "not-here"


def produced(wire: Wire, topic: str, partition: int, records: bytes) -> Any:
    rows = [{"index": partition, "records": records}]
    topics = [{"name": topic, "partition_data": rows}]
    return wire.call(PRODUCE, 12, acks=-1, timeout=1000, topic_data=topics)


def fetched(wire: Wire, topic: str | UUID, partition: int) -> Any:
    rows = [{"partition": partition, "partition_max_bytes": 1000}]
    key = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    version = 12 if isinstance(topic, str) else 18
    return wire.call(FETCH, version, max_wait=0, topics=[{**key, "partitions": rows}])


def test_a_produce_names_the_leader_of_a_partition_that_another_broker_leads(
    wire: Wire, led_elsewhere: str, make_batch: Callable[..., bytearray]
) -> None:
    response = produced(wire, led_elsewhere, 0, bytes(make_batch()))
    (row,) = response.responses[0].partition_responses
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (OTHER, EPOCH)
    assert response.node_endpoints == ()  # the other broker's address is not known


def test_a_fetch_names_the_leader_of_a_partition_that_another_broker_leads(
    wire: Wire, led_elsewhere: str
) -> None:
    (row,) = fetched(wire, led_elsewhere, 0).responses[0].partitions
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (OTHER, EPOCH)


def test_a_partition_that_is_known_but_not_here_is_led_elsewhere(
    broker: RunningBroker, wire: Wire, not_here: str, make_batch: Callable[..., bytearray]
) -> None:
    response = produced(wire, not_here, 0, bytes(make_batch()))
    (row,) = response.responses[0].partition_responses
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert row.current_leader.leader_id == 1
    assert [(node.node_id, node.port) for node in response.node_endpoints] == [(1, broker.port)]
    topic_id = UUID(bytes=broker.topic_id(not_here))
    response = fetched(wire, topic_id, 0)
    assert response.responses[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
    assert [node.port for node in response.node_endpoints] == [broker.port]


@pytest.mark.parametrize("topic", ["led_elsewhere", "not_here"])
def test_every_request_for_a_partition_gives_the_same_error(
    wire: Wire, request: pytest.FixtureRequest, topic: str
) -> None:
    name = request.getfixturevalue(topic)
    row = {"partition_index": 0, "timestamp": -1}
    listed = wire.call(LIST_OFFSETS, 7, topics=[{"name": name, "partitions": [row]}])
    deleted = wire.call(
        DELETE_RECORDS, 2, topics=[{"name": name, "partitions": [{"partition_index": 0}]}]
    )
    ended = wire.call(EPOCH_END, 4, topics=[{"topic": name, "partitions": [{"partition": 0}]}])
    described = wire.call(DESCRIBE_PRODUCERS, 0, topics=[{"name": name, "partition_indexes": [0]}])
    codes = {
        response.topics[0].partitions[0].error_code
        for response in (listed, deleted, ended, described)
    }
    assert codes == {ErrorCode.not_leader_or_follower}


def test_unknown_topics_partitions_and_ids_have_their_own_errors(
    broker: RunningBroker, wire: Wire, make_batch: Callable[..., bytearray]
) -> None:
    broker.create_topic("known")
    batch = bytes(make_batch())
    unknown = ErrorCode.unknown_topic_or_partition
    for topic, index in (("nowhere", 0), ("known", 1), ("known", -1)):
        (row,) = produced(wire, topic, index, batch).responses[0].partition_responses
        assert row.error_code == unknown
        (fetched_row,) = fetched(wire, topic, index).responses[0].partitions
        assert fetched_row.error_code == unknown
    (by_id,) = fetched(wire, UUID(int=77), 0).responses[0].partitions
    assert by_id.error_code == ErrorCode.unknown_topic_id
