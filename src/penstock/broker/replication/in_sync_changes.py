"""Proposes changes of in-sync sets to the controller, for the partitions that this broker leads.

A partition has one proposal at a time; proposals that come together go in one request. What the
controller commits comes back as metadata. A proposal whose outcome is unknown is sent again; it is
withdrawn only if the controller certainly did not take it. Partitions whose set is not complete are
looked at again at intervals: in an idle one, the fetch that would do so may never come.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from penstock.broker.background import start_background
from penstock.errors import ErrorCode
from penstock.link.operation import FAILURES
from penstock.protocol.messages.broker_lifecycle import (
    ALTER_PARTITION,
    AlterPartitionRequest,
    AlterPartitionRow,
    AlterPartitionTopic,
    IsrMember,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.controller_client import ControllerClient
    from penstock.broker.metadata_image import MetadataImage
    from penstock.broker.partition import Partition
    from penstock.broker.partitions import Partitions
    from penstock.consensus.replica.leader import Proposal
    from penstock.model import Millis, NodeId
    from penstock.protocol.messages.broker_lifecycle import AlterPartitionResponse

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.05
BATCH_MAX: Final = 2_000
CHECKED_PER_TURN: Final = 500
JOINS_CHECKED_S: Final = 0.5
# The controller knows something newer, which comes as metadata.
_AWAIT_METADATA: Final = frozenset(
    (
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.new_leader_elected,
    )
)


class InSyncChanges:
    """The changes of in-sync sets that this broker wants."""

    def __init__(
        self,
        controller: ControllerClient,
        image: MetadataImage,
        partitions: Partitions,
        *,
        node_id: NodeId,
        clock: Callable[[], Millis],
        lag_max_ms: Millis,
    ) -> None:
        self._controller = controller
        self._image = image
        self._partitions = partitions
        self._node_id = node_id
        self._clock = clock
        self._check_s = lag_max_ms / 2000
        self._broker_epoch = -1
        self._pending: dict[Partition, Proposal] = {}
        self._incomplete: dict[Partition, None] = {}  # led here, and not all are in sync
        self._has_pending = asyncio.Event()
        self._has_incomplete = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, broker_epoch: int) -> None:
        """Send proposals, and look for followers that lag. Needs the running event loop."""
        self._broker_epoch = broker_epoch
        self._tasks = [
            start_background("proposing in-sync sets", self._send_all()),
            start_background("looking for lagging followers", self._find_lagging()),
            start_background("looking for joining followers", self._find_joining()),
        ]

    def close(self) -> None:
        """Propose nothing more."""
        for task in self._tasks:
            task.cancel()

    def on_replica_fetch(self, partition: Partition) -> None:
        """A follower may have caught up."""
        if partition.in_sync is not None and not _is_complete(partition):
            proposal = partition.in_sync.propose_joins()
            if proposal is not None:
                self._add(partition, proposal)

    def follow(self, name: str) -> None:
        """A topic was created, changed or deleted."""
        topic = self._partitions.topics.get(name)
        for partition in () if topic is None else topic.partitions.values():
            if not _is_complete(partition):
                self._incomplete[partition] = None
                self._has_incomplete.set()

    async def _find_joining(self) -> None:
        """A follower may have been unfenced, or fenced, since its last fetch."""
        while True:
            await self._has_incomplete.wait()
            await asyncio.sleep(JOINS_CHECKED_S)
            for number, partition in enumerate(tuple(self._incomplete), 1):
                if _is_complete(partition):
                    self._incomplete.pop(partition, None)
                else:
                    partition.check_followers()
                    self.on_replica_fetch(partition)
                if number % CHECKED_PER_TURN == 0:
                    await asyncio.sleep(0)
            if not self._incomplete:
                self._has_incomplete.clear()

    async def _find_lagging(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            for number, partition in enumerate(tuple(self._partitions), 1):
                if partition.in_sync is not None and partition.is_leader:
                    proposal = partition.in_sync.propose_leaves(
                        partition.log.end_offset, self._clock()
                    )
                    if proposal is not None:
                        self._add(partition, proposal)
                if number % CHECKED_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _add(self, partition: Partition, proposal: Proposal) -> None:
        self._pending[partition] = proposal
        self._has_pending.set()

    # Sending.

    async def _send_all(self) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            batch = dict(list(self._pending.items())[:BATCH_MAX])
            for partition in batch:
                del self._pending[partition]
            if self._pending:
                self._has_pending.set()
            await self._send(batch)

    async def _send(self, batch: dict[Partition, Proposal]) -> None:
        """Send until the outcome of each is known, or metadata says something newer."""
        while batch := {
            partition: proposal
            for partition, proposal in batch.items()
            if _is_current(partition, proposal)
        }:
            try:
                response = await self._controller.call(ALTER_PARTITION, self._request(batch))
            except FAILURES as failure:
                logger.debug("in-sync sets could not be proposed: %s", failure)
            else:
                batch = self._on_response(batch, response)
            if batch:
                await asyncio.sleep(RETRY_S)

    def _request(self, batch: dict[Partition, Proposal]) -> AlterPartitionRequest:
        topics: dict[object, AlterPartitionTopic] = {}
        rows: dict[object, list[AlterPartitionRow]] = {}
        for partition, proposal in batch.items():
            topic_id = partition.topic_id
            if topic_id not in topics:
                rows[topic_id] = []
                topics[topic_id] = AlterPartitionTopic(topic_id, rows[topic_id])
            members = [
                IsrMember(node, self._broker_epoch if node == self._node_id else epoch)
                for node, epoch in proposal.isr
            ]
            rows[topic_id].append(
                AlterPartitionRow(
                    partition.topic_partition.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=members,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(self._node_id, self._broker_epoch, list(topics.values()))

    def _on_response(
        self, batch: dict[Partition, Proposal], response: AlterPartitionResponse
    ) -> dict[Partition, Proposal]:
        """Those to send again."""
        if response.error_code != ErrorCode.none:  # not the controller, or an older broker epoch
            return batch
        codes = {
            (topic.topic_id, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        again = {}
        for partition, proposal in batch.items():
            key = (partition.topic_id, partition.topic_partition.partition)
            code = codes.get(key, ErrorCode.unknown_server_error)
            if code in (ErrorCode.ineligible_replica, ErrorCode.invalid_request):
                if _is_current(partition, proposal):
                    partition.withdraw_proposal()
            elif code != ErrorCode.none and code not in _AWAIT_METADATA:
                again[partition] = proposal
        return again


def _is_complete(partition: Partition) -> bool:
    """Whether all replicas are in sync, or it is not led here."""
    in_sync = partition.in_sync
    return in_sync is None or len(in_sync.isr) == len(partition.leadership.replicas)


def _is_current(partition: Partition, proposal: Proposal) -> bool:
    """Whether no newer metadata has decided what the proposal was about."""
    in_sync = partition.in_sync
    return (
        in_sync is not None
        and in_sync.leader_epoch == proposal.leader_epoch
        and in_sync.partition_epoch == proposal.partition_epoch
    )
