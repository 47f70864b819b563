"""Reports of replicas reach the controller, and are repeated while it needs the replica."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from penstock.broker.replication import replica_reports
from penstock.broker.replication.replica_reports import OwnReplica, ReplicaReports
from penstock.coordination.controller.commands import ReplicaCondition
from penstock.errors import ErrorCode
from penstock.model import NodeId, TopicId
from penstock.protocol.messages.broker_lifecycle import (
    COMPLETE_DIRECTORY,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    AssignedDirectoryResult,
    AssignedPartitionResult,
    AssignedTopicResult,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

TOPIC = TopicId(UUID(int=5))
DIRECTORY = UUID(int=1 << 100)


class Controller:
    """Responds with the next of its codes; keeps what was reported."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.reported: list[tuple[UUID | None, int]] = []

    async def call(self, _message: object, request: AssignReplicasToDirsRequest) -> Any:
        code = self.codes.pop(0) if self.codes else ErrorCode.none
        if code is ErrorCode.not_controller:
            return AssignReplicasToDirsResponse(code)
        rows = [
            (directory.id_, row.partition_index)
            for directory in request.directories
            for topic in directory.topics
            for row in topic.partitions
        ]
        self.reported += rows
        return AssignReplicasToDirsResponse(
            directories=[
                AssignedDirectoryResult(
                    id_, [AssignedTopicResult(TOPIC, [AssignedPartitionResult(index, code)])]
                )
                for id_, index in rows
            ]
        )


def run(
    controller: Controller, scenario: Callable[[ReplicaReports], Awaitable[None]]
) -> list[tuple[UUID | None, int]]:
    """What the controller received."""

    async def main() -> None:
        reports = ReplicaReports(
            controller,  # type: ignore[arg-type]  # has the one method that is called
            node_id=NodeId(1),
            directory_id=DIRECTORY,
        )
        reports.start(broker_epoch=7)
        await scenario(reports)
        reports.close()

    asyncio.run(asyncio.wait_for(main(), 10))
    return controller.reported


def test_each_condition_has_a_directory_of_its_own() -> None:
    async def scenario(reports: ReplicaReports) -> None:
        for index, condition in enumerate(ReplicaCondition):
            await reports.taken([OwnReplica(TOPIC, index)], condition)

    assert run(Controller(), scenario) == [
        (DIRECTORY, 0),
        (COMPLETE_DIRECTORY, 1),
        (LOST_DIRECTORY, 2),
        (UNASSIGNED_DIRECTORY, 3),
    ]


@pytest.mark.parametrize(
    "code", [ErrorCode.eligible_leaders_not_available, ErrorCode.not_controller]
)
def test_a_report_that_is_not_taken_is_repeated(
    code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reports, "NEEDED_RETRY_S", 0.01)
    controller = Controller(code, code)

    async def scenario(reports: ReplicaReports) -> None:
        await reports.taken([OwnReplica(TOPIC, 0)], ReplicaCondition.EMPTY)

    reported = run(controller, scenario)
    assert set(reported) == {(UNASSIGNED_DIRECTORY, 0)}
    assert not controller.codes


def test_a_report_of_a_moment_is_dropped_when_the_replica_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_reports, "NEEDED_RETRY_S", 0.01)

    async def scenario(reports: ReplicaReports) -> None:
        reports.add(OwnReplica(TOPIC, 0), ReplicaCondition.OFFLINE, is_repeated=False)
        await asyncio.sleep(0.1)
        await reports.taken([OwnReplica(TOPIC, 1)], ReplicaCondition.ONLINE)

    reported = run(Controller(ErrorCode.eligible_leaders_not_available), scenario)
    assert reported == [(LOST_DIRECTORY, 0), (DIRECTORY, 1)]


def test_the_last_report_of_a_replica_counts() -> None:
    taken: list[str] = []

    async def scenario(reports: ReplicaReports) -> None:
        replica = OwnReplica(TOPIC, 0)
        reports.add(replica, ReplicaCondition.OFFLINE, lambda: taken.append("offline"))
        reports.add(replica, ReplicaCondition.EMPTY, lambda: taken.append("empty"))
        await reports.taken([OwnReplica(TOPIC, 1)], ReplicaCondition.ONLINE)

    assert run(Controller(), scenario) == [(UNASSIGNED_DIRECTORY, 0), (DIRECTORY, 1)]
    assert taken == ["empty"]


def test_what_waits_for_a_report_ends_with_a_later_one() -> None:
    async def scenario(reports: ReplicaReports) -> None:
        replica = OwnReplica(TOPIC, 0)
        waiting = asyncio.create_task(reports.taken([replica], ReplicaCondition.COMPLETE))
        await asyncio.sleep(0)
        reports.add(replica, ReplicaCondition.OFFLINE)
        await waiting

    run(Controller(), scenario)


def test_a_topic_that_is_gone_needs_no_report() -> None:
    async def scenario(reports: ReplicaReports) -> None:
        await reports.taken([OwnReplica(TOPIC, 0)], ReplicaCondition.OFFLINE)

    run(Controller(ErrorCode.unknown_topic_id), scenario)
