"""A stream of a consumer group: the group assigns partitions, and processed events are committed.

At least once: a stream starts at the committed offsets, and commits what its client acknowledged,
or what was sent if the client chose that. Each assignment is a new epoch.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, Protocol, TypeAlias

from penstock.errors import Malformed, Refused
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.kafka.group_admin import CommittingMember
from penstock.gateway.kafka.http_group_member import HttpGroupMember
from penstock.gateway.streams.stream_hub import HubStream, Offsets, StreamHub, StreamStart
from penstock.gateway.streams.stream_request import EARLIEST, GroupRequest
from penstock.link.offsets import committed_offsets
from penstock.model import Offset, TopicPartition

OnProcessed: TypeAlias = Callable[[Offsets], None]

COMMIT_S: Final = 0.2
_RETRY_S: Final = 0.5


class GroupStream(HubStream, Protocol):
    """A stream whose partitions change."""

    def assign(self, start: StreamStart, member: str) -> None:
        """Say which partitions the stream reads from now on, and from where."""

    def revoke(self) -> None:
        """Say that it reads none."""


class GroupReading:
    """The membership behind one stream."""

    def __init__(
        self, node: GatewayNode, hub: StreamHub, request: GroupRequest, stream: GroupStream
    ) -> None:
        self._node = node
        self._hub = hub
        self._request = request
        self._stream = stream
        self._pending: dict[TopicPartition, Offset] = {}  # processed and not committed
        self._member = HttpGroupMember(
            node,
            request.group,
            request.topics,
            session_ms=request.session_ms,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    def on_processed(self, offsets: Offsets) -> None:
        """Everything before this position is processed."""
        partitions = self._stream.subscription.partitions
        self._pending |= dict(zip(partitions, offsets, strict=True))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Join the group; at the end commit what is processed, and leave."""
        self._member.start()
        committing = asyncio.create_task(self._commit_regularly())
        try:
            yield
        finally:
            committing.cancel()
            await asyncio.wait((committing,))
            await self._member.leave()

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit()

    async def _commit(self) -> None:
        pending, self._pending = self._pending, {}
        if not pending:
            return
        with suppress(OSError, Refused, Malformed):  # events that are not committed come again
            await self._member.commit(pending)

    async def _on_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        offsets = await self._offsets_of(partitions)
        start = StreamStart(partitions, offsets)
        self._pending = {}
        self._node.stream_members[self._request.group, self._member.id] = self._committer
        self._stream.assign(start, self._member.id)
        if partitions:
            self._hub.pump.add(self._stream)

    def _committer(self) -> CommittingMember | None:
        return self._member.committer

    async def _offsets_of(self, partitions: tuple[TopicPartition, ...]) -> Offsets:
        while True:
            try:
                run, group = self._node.run, self._request.group
                committed = await run(committed_offsets(group, partitions))
                missing = [each for each in partitions if each not in committed]
                ranges = await self._hub.ranges(missing) if missing else {}
                break
            except (OSError, Refused, Malformed):
                await asyncio.sleep(_RETRY_S)
        is_earliest = self._request.offset_reset == EARLIEST
        starts = {
            each: known.earliest if is_earliest else known.latest for each, known in ranges.items()
        }
        return tuple(
            committed[each].offset if each in committed else starts[each] for each in partitions
        )

    async def _on_revoked(self) -> None:
        self._hub.pump.remove(self._stream)
        await self._commit()
        self._node.stream_members.pop((self._request.group, self._member.id), None)
        self._stream.revoke()
