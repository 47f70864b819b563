"""Log lines of a cluster's life, as the active controller writes them."""

import logging
from uuid import UUID

import pytest

from penstock.broker.cluster_log import ClusterLog, changes_of
from penstock.coordination.controller.apply import apply
from penstock.coordination.controller.events import (
    NO_LEADER,
    BrokerRemoved,
    BrokerSet,
    Event,
    PartitionSet,
    PartitionState,
    TopicSet,
)
from penstock.coordination.controller.state import ClusterState
from penstock.model import LeaderEpoch, NodeId, TopicId
from tests.broker.conftest import StartBroker

TOPIC_ID = TopicId(UUID(int=7))
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
IN_SYNC = PartitionState(ONE, LeaderEpoch(0), 0, (ONE, TWO, THREE), (ONE, TWO, THREE))
BROKER = BrokerSet(TWO, "host", 9092, None, epoch=5)


@pytest.fixture
def state() -> ClusterState:
    """A topic of four partitions, and a broker."""
    state = ClusterState()
    apply(state, TopicSet("t", TOPIC_ID, (IN_SYNC,) * 4))
    apply(state, BROKER)
    return state


def lines(state: ClusterState, *events: Event, step: str = "") -> list[tuple[int, str]]:
    return [(line.level, line.text) for line in changes_of(state, events, lambda _: step)]


def moved(index: int, **changes: object) -> PartitionSet:
    partition = IN_SYNC._replace(**changes)  # type: ignore[arg-type]  # of its own fields
    return PartitionSet("t", TOPIC_ID, index, partition)


def test_a_batch_of_elections_is_one_line(state: ClusterState) -> None:
    events = [moved(index, leader=TWO) for index in range(3)]
    assert lines(state, *events) == [(logging.INFO, "3 partitions got another leader")]


def test_unclean_elections_and_lost_leaders_are_warnings(state: ClusterState) -> None:
    unclean = moved(0, leader=TWO, is_recovering=True)
    assert lines(state, unclean, moved(1, leader=NO_LEADER)) == [
        (logging.INFO, "1 partition got another leader"),
        (logging.WARNING, "1 partition got a leader that may lack committed records"),
        (logging.WARNING, "1 partition lost the last leader"),
    ]


def test_changes_of_in_sync_replicas_are_one_line(state: ClusterState) -> None:
    shrunk = [moved(index, isr=(ONE,)) for index in range(3)]
    (line,) = lines(state, *shrunk)
    assert line == (logging.INFO, "in-sync replicas: 3 partitions lost some, 0 gained some")
    for event in shrunk:
        apply(state, event)
    whole = TopicSet("t", TOPIC_ID, (IN_SYNC,) * 4)
    (line,) = lines(state, whole)
    assert line == (logging.INFO, "in-sync replicas: 0 partitions lost some, 3 gained some")


def test_a_new_topic_is_no_event_of_its_partitions(state: ClusterState) -> None:
    assert lines(state, TopicSet("new", TopicId(UUID(int=8)), (IN_SYNC,))) == []


def test_the_life_of_a_broker(state: ClusterState) -> None:
    again = BROKER._replace(epoch=9, is_fenced=True)
    assert lines(state, again) == [(logging.INFO, "broker 2 registered at host:9092")]
    fenced = BROKER._replace(is_fenced=True)
    (line,) = lines(state, fenced, step="fenced: no heartbeat")
    assert line == (logging.WARNING, "broker 2 is fenced: no heartbeat")
    stopping = BROKER._replace(is_stopping=True)
    assert lines(state, stopping) == [(logging.INFO, "broker 2 is stopping")]
    apply(state, stopping)
    gone = lines(state, stopping._replace(is_fenced=True), step="fenced: its port is closed")
    assert gone == [(logging.INFO, "broker 2 is fenced: its port is closed")]
    apply(state, fenced)
    assert lines(state, BROKER) == [(logging.INFO, "broker 2 is unfenced")]
    assert lines(state, BrokerRemoved(TWO)) == [(logging.INFO, "broker 2 was unregistered")]


def test_only_the_active_controller_logs(
    state: ClusterState, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ClusterLog(lambda: False, lambda _: "").note(state, [moved(0, leader=TWO)])
    assert caplog.messages == []
    ClusterLog(lambda: True, lambda _: "").note(state, [moved(0, leader=TWO)])
    assert caplog.messages == ["1 partition got another leader"]


def test_a_broker_logs_what_its_controller_commits(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    port = start_broker().port
    assert f"broker 1 registered at 127.0.0.1:{port}" in caplog.messages
    assert "broker 1 is unfenced" in caplog.messages
