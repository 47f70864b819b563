"""Partitions follow the brokers that are active, in batches that the event loop has time for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.coordination.controller import ClusterState, ControllerMachine, active_replicas
from penstock.coordination.controller.commands import (
    BrokerHeartbeat,
    Command,
    CreateTopics,
    DeleteTopics,
    FenceBroker,
    HeartbeatReply,
    NewTopic,
    RegisterBroker,
    StartSessions,
)
from penstock.coordination.controller.settings import ControllerSettings
from penstock.machine import CallerId
from penstock.model import Millis, Moment, NodeId, Offset, TopicId

if TYPE_CHECKING:
    from penstock.coordination.controller.events import Event
    from penstock.machine import Outcome

CALLER = CallerId(1)
NOW = Moment(Millis(0), Millis(0))
TOPICS = [f"topic-{number}" for number in range(5)]


class Controller:
    """The machine, its state, and how many events each batch had."""

    def __init__(self, state: ClusterState | None = None) -> None:
        settings = ControllerSettings(
            node_id=NodeId(1), default_partition_count=2, session_timeout_ms=Millis(1000),
            static={"default.replication.factor": "3", "min.insync.replicas": "2"},
        )  # fmt: skip
        self.machine = ControllerMachine(settings, {})
        self.state = ClusterState() if state is None else state
        self.batches: list[int] = []
        self.end_offset = Offset(0)

    def submit(self, command: Command) -> object:
        outcome = self.machine.decide(self.state, command, NOW)
        self._apply(outcome)
        return outcome.replies[0].body

    def tick(self) -> None:
        self._apply(self.machine.tick(self.state, NOW))

    def _apply(self, outcome: Outcome[Event]) -> None:
        for event in (*outcome.events, *outcome.notes):
            self.machine.apply(self.state, event)
        self.machine.validate(self.state)
        self.batches.append(len(outcome.events))
        self.end_offset = Offset(self.end_offset + len(outcome.events))

    def start_broker(self, node_id: int) -> None:
        self.submit(
            RegisterBroker(
                CALLER, NodeId(node_id), UUID(int=node_id), "host", 9092, None, previous_epoch=-1,
                new_epoch=self.end_offset, new_cluster_id="id",
            )
        )  # fmt: skip
        self.heartbeat(node_id)

    def heartbeat(self, node_id: int, *, stop: bool = False) -> HeartbeatReply:
        broker = self.state.brokers[NodeId(node_id)]
        reply = self.submit(
            BrokerHeartbeat(
                CALLER, broker.node_id, broker.epoch, self.end_offset, wants_fence=False,
                wants_stop=stop, end_offset=self.end_offset,
            )
        )  # fmt: skip
        assert isinstance(reply, HeartbeatReply)
        return reply

    def fence(self, node_id: int) -> None:
        broker = self.state.brokers[NodeId(node_id)]
        self.submit(FenceBroker(CALLER, broker.node_id, broker.epoch, "it is dead"))

    @property
    def in_sync(self) -> set[int]:
        rows = [row for topic in self.state.topics.values() for row in topic.partitions]
        return {node for row in rows for node in (*row.isr, row.leader)}


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    """Three brokers with five topics of two partitions; a batch changes one topic."""
    monkeypatch.setattr(active_replicas, "CHANGED_MAX", 2)
    monkeypatch.setattr(active_replicas, "TOPICS_PER_STEP", 1)
    controller = Controller()
    for node_id in (1, 2, 3):
        controller.start_broker(node_id)
    new = tuple(NewTopic(name, TopicId(UUID(int=number))) for number, name in enumerate(TOPICS, 1))
    controller.submit(CreateTopics(CALLER, new))
    while controller.state.topics_left:
        controller.tick()
    assert controller.in_sync == {1, 2, 3}
    controller.batches.clear()
    return controller


def test_a_fence_of_many_partitions_follows_in_several_batches(controller: Controller) -> None:
    controller.fence(2)
    assert controller.state.topics_left == tuple(TOPICS[1:])
    while controller.state.topics_left:
        assert controller.machine.wake_at(controller.state) == 0
        controller.tick()
    assert controller.in_sync == {1, 3}
    assert controller.batches == [2, 1, 1, 1, 1]


def test_the_next_controller_goes_on_where_the_last_one_stopped(controller: Controller) -> None:
    controller.fence(2)
    successor = Controller(controller.state.fork())
    successor.submit(StartSessions(CALLER))
    while successor.state.topics_left:
        successor.tick()
    assert successor.in_sync == {1, 3}


def test_a_topic_that_is_deleted_meanwhile_is_skipped(controller: Controller) -> None:
    controller.fence(2)
    controller.submit(DeleteTopics(CALLER, tuple(TOPICS[1:3])))
    while controller.state.topics_left:
        controller.tick()
    assert controller.in_sync == {1, 3}


def test_a_broker_stops_when_the_last_of_its_leaders_has_moved(controller: Controller) -> None:
    replies = []
    for _ in range(len(TOPICS)):
        replies.append(controller.heartbeat(2, stop=True).may_stop)
        controller.tick()
    assert not any(replies)
    assert controller.in_sync == {1, 3}
    for _ in range(2):
        for node_id in (1, 3):
            controller.heartbeat(node_id)
        may_stop = controller.heartbeat(2, stop=True).may_stop
    assert may_stop
