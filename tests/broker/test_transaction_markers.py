"""Markers on their way to partitions: appended once, reported when committed."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from penstock.broker.leadership import Leadership
from penstock.broker.partition import Partition
from penstock.broker.settings import topic_settings
from penstock.broker.transaction_markers import MarkerWriter
from penstock.config.resolve import NO_LAYERS
from penstock.errors import ErrorCode
from penstock.model import LeaderEpoch, Millis, Moment, NodeId, ProducerEpoch, ProducerId
from penstock.model import TopicPartition as Target
from penstock.protocol.control_records import Marker
from tests.support.led_partition import lead, open_partition

if TYPE_CHECKING:
    from penstock.broker.remote_transactions import SentMarker

MARKER = Marker(ProducerId(7), ProducerEpoch(0), commit=True, coordinator_epoch=3)
HERE = Target("names", 0)
ELSEWHERE = Target("elsewhere", 0)
DELETED = Target("deleted", 0)


class Scenario:
    """A writer with one partition, and the targets it reported."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.reports: list[frozenset[Target]] = []
        partitions = {HERE: partition}
        self.sent: list[tuple[int, SentMarker]] = []
        topics = {
            HERE.topic: SimpleNamespace(partitions=[SimpleNamespace(leader=1)]),
            ELSEWHERE.topic: SimpleNamespace(partitions=[SimpleNamespace(leader=2)]),
        }
        remote = SimpleNamespace(write_marker=lambda *sent: self.sent.append(sent))
        held = SimpleNamespace(
            find=lambda *target: partitions.get(Target(*target)), node_id=NodeId(1)
        )
        self.writer = MarkerWriter(
            cast("Any", held),
            cast("Any", SimpleNamespace(topic=topics.get)),
            lambda: Moment(Millis(0), Millis(0)),
            cast("Any", remote),
        )

    def write(self, *targets: Target, marker: Marker = MARKER) -> None:
        self.writer.write(marker, targets, self.reports.append)


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    partition = open_partition(tmp_path)
    yield Scenario(partition)
    partition.log.close()


def test_targets_that_are_done_immediately_are_reported_together(scenario: Scenario) -> None:
    scenario.write(HERE, DELETED)
    assert scenario.reports == [{HERE, DELETED}]


def test_a_marker_is_reported_when_it_is_committed_and_appended_only_once(
    scenario: Scenario,
) -> None:
    lead(scenario.partition, 0, 1, 2, replicas=2)
    for _ in range(3):
        scenario.write(HERE)
    assert (scenario.partition.log.end_offset, scenario.reports) == (1, [])
    scenario.partition.on_replica_fetch(NodeId(2), scenario.partition.log.end_offset)
    assert scenario.reports == [{HERE}]
    scenario.write(HERE, marker=MARKER._replace(coordinator_epoch=4))
    assert scenario.partition.log.end_offset == 2, "another coordinator writes its own"


def test_a_marker_that_another_leader_may_have_lost_is_appended_again(scenario: Scenario) -> None:
    two = (NodeId(1), NodeId(2))
    lead(scenario.partition, 0, 1, 2, replicas=2)
    scenario.write(HERE)
    scenario.partition.lead(Leadership(NodeId(2), LeaderEpoch(1), two, two))
    scenario.write(HERE)
    lead(scenario.partition, 2, 1, replicas=2)
    scenario.write(HERE)
    assert scenario.partition.log.end_offset == 2
    assert scenario.reports == [{HERE}]


def test_no_marker_is_written_while_too_few_replicas_are_in_sync(scenario: Scenario) -> None:
    scenario.partition.replace_settings(topic_settings({"min.insync.replicas": "2"}, NO_LAYERS))
    lead(scenario.partition, 0, 1, replicas=2)
    scenario.write(HERE)
    assert (scenario.partition.log.end_offset, scenario.reports) == (0, [])
    lead(scenario.partition, 0, 1, 2, replicas=2)
    scenario.write(HERE)
    assert scenario.partition.log.end_offset == 1


def test_a_marker_is_sent_to_the_leader_of_its_partition_once_at_a_time(scenario: Scenario) -> None:
    scenario.write(ELSEWHERE)
    scenario.write(ELSEWHERE)
    ((leader, sent),) = scenario.sent
    assert (leader, sent.marker, sent.target) == (2, MARKER, ELSEWHERE)
    sent.on_done(None)  # the connection was lost
    assert scenario.reports == []
    scenario.write(ELSEWHERE)
    scenario.sent[1][1].on_done(ErrorCode.none)
    assert scenario.reports == [{ELSEWHERE}]
