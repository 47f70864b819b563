"""Reports to the controller how this broker's replicas are, until it has taken each report.

A report that the controller refuses because the replica is needed is repeated: another one may be
in sync later. One that is true for a moment only, of a full disk, is dropped instead. Reports that
come together go in one request.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.background import start_background
from penstock.coordination.controller.commands import ReplicaCondition
from penstock.errors import ErrorCode
from penstock.link.operation import FAILURES
from penstock.protocol.messages.broker_lifecycle import (
    ASSIGN_REPLICAS_TO_DIRS,
    COMPLETE_DIRECTORY,
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from penstock.broker.controller_client import ControllerClient
    from penstock.model import NodeId, TopicId
    from penstock.protocol.messages.broker_lifecycle import AssignReplicasToDirsResponse

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.05
NEEDED_RETRY_S: Final = 1.0  # the controller needs the replica for now
BATCH_MAX: Final = 2_000
_RESERVED: Final = {
    ReplicaCondition.EMPTY: UNASSIGNED_DIRECTORY,
    ReplicaCondition.OFFLINE: LOST_DIRECTORY,
    ReplicaCondition.COMPLETE: COMPLETE_DIRECTORY,
}


class OwnReplica(NamedTuple):
    """This broker's replica of one partition."""

    topic_id: TopicId
    partition_index: int


class _Report(NamedTuple):
    condition: ReplicaCondition
    on_taken: Callable[[], None]
    on_replaced: Callable[[], None]
    is_repeated: bool


class ReplicaReports:
    """The reports of one broker: the last one of each replica."""

    def __init__(
        self, controller: ControllerClient, *, node_id: NodeId, directory_id: UUID
    ) -> None:
        self._controller = controller
        self._node_id = node_id
        self._directory_id = directory_id
        self._broker_epoch = -1
        self._pending: dict[OwnReplica, _Report] = {}
        self._has_pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, broker_epoch: int) -> None:
        """This broker is registered: send reports. Needs the running event loop."""
        self._broker_epoch = broker_epoch
        self._task = start_background("reporting replicas", self._send_all())

    def close(self) -> None:
        """Report nothing more."""
        if self._task is not None:
            self._task.cancel()

    def add(
        self,
        replica: OwnReplica,
        condition: ReplicaCondition,
        on_taken: Callable[[], None] = lambda: None,
        on_replaced: Callable[[], None] = lambda: None,
        *,
        is_repeated: bool = True,
    ) -> None:
        """Report a replica; one is called when that is committed, or a later report replaces it."""
        last = self._pending.get(replica)
        self._pending[replica] = _Report(condition, on_taken, on_replaced, is_repeated)
        self._has_pending.set()
        if last is not None:
            last.on_replaced()

    async def taken(self, replicas: Iterable[OwnReplica], condition: ReplicaCondition) -> None:
        """Report these replicas, and wait until the controller has taken every report."""
        left = set(replicas)
        is_over = asyncio.Event()

        def on_over(replica: OwnReplica) -> None:
            left.discard(replica)
            if not left:
                is_over.set()

        for replica in tuple(left):
            over = partial(on_over, replica)
            self.add(replica, condition, over, on_replaced=over)
        if left:
            await is_over.wait()

    async def _send_all(self) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            batch = dict(list(self._pending.items())[:BATCH_MAX])
            response = await self._send(batch)
            is_needed = response is not None and self._on_response(batch, response)
            if self._pending:
                self._has_pending.set()
            if response is None or is_needed:
                await asyncio.sleep(RETRY_S if response is None else NEEDED_RETRY_S)

    async def _send(self, batch: dict[OwnReplica, _Report]) -> AssignReplicasToDirsResponse | None:
        directories: dict[UUID, dict[UUID, list[AssignedPartition]]] = {}
        for replica, report in batch.items():
            directory_id = _RESERVED.get(report.condition, self._directory_id)
            topics = directories.setdefault(directory_id, {})
            topics.setdefault(replica.topic_id, []).append(
                AssignedPartition(replica.partition_index)
            )
        request = AssignReplicasToDirsRequest(
            self._node_id,
            self._broker_epoch,
            [
                AssignedDirectory(directory_id, [AssignedTopic(*each) for each in topics.items()])
                for directory_id, topics in directories.items()
            ],
        )
        try:
            response = await self._controller.call(ASSIGN_REPLICAS_TO_DIRS, request)
        except FAILURES as failure:
            logger.debug("a report of replicas was not received: %s", failure)
            return None
        return response if response.error_code == ErrorCode.none else None

    def _on_response(
        self, batch: dict[OwnReplica, _Report], response: AssignReplicasToDirsResponse
    ) -> bool:
        """Whether the controller needs a replica that was reported."""
        is_needed = False
        for directory in response.directories:
            for topic in directory.topics:
                for row in topic.partitions:
                    replica = OwnReplica(topic.topic_id, row.partition_index)  # type: ignore[arg-type]  # no topic has no id
                    report = batch.get(replica)
                    if row.error_code == ErrorCode.eligible_leaders_not_available:
                        is_needed = True
                        is_last = report is self._pending.get(replica)
                        if is_last and report is not None and not report.is_repeated:
                            del self._pending[replica]
                    elif self._pending.get(replica) is batch.get(replica):
                        report = self._pending.pop(replica, None)  # also if the topic is gone
                        if report is not None:
                            report.on_taken()
        return is_needed
