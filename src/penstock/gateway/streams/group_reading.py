"""A stream of a consumer group: the group assigns partitions, and processed events are committed.

At least once: a stream starts at the committed offsets, and commits what its client acknowledged,
or what was sent if the client chose that. Each assignment is a new epoch. Nothing is committed past
an unreadable event that is not in quarantine yet; the stream is held meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.gateway.errors import GatewayError
from penstock.gateway.gateway_node import GatewayNode
from penstock.gateway.groups.group_membership import GroupMembership, Positions
from penstock.gateway.groups.group_offsets import GroupOffsets
from penstock.gateway.groups.group_quarantine import GroupQuarantine
from penstock.gateway.groups.group_subscription import GroupSubscription, UnreadablePolicy
from penstock.gateway.streams.stream_frames import UnreadableRow
from penstock.gateway.streams.stream_hub import HubStream, Offsets, StreamHub, StreamStart
from penstock.link.offsets import CommittingMember
from penstock.link.operation import FAILURES

OnProcessed: TypeAlias = Callable[[Offsets], None]
OnUnreadableRecords: TypeAlias = Callable[[Sequence[UnreadableRow]], None]

logger: Final = logging.getLogger(__name__)

COMMIT_S: Final = 0.2
_RETRY_S: Final = 0.5
_partition_of = itemgetter(0)
_REVOKE_S: Final = 2.0  # how long a rebalance waits for what is being quarantined


class GroupStream(HubStream, Protocol):
    """A stream whose partitions change."""

    is_held: bool  # sends nothing

    def assign(self, start: StreamStart, member: str, *, hides_unreadable: bool) -> None:
        """Say which partitions the stream reads from now on, and from where."""

    def revoke(self) -> None:
        """Say that it reads none."""


class GroupStreams(NamedTuple):
    """What streams of groups share."""

    node: GatewayNode
    hub: StreamHub
    quarantine: GroupQuarantine
    offsets: GroupOffsets


class GroupReading:
    """The membership behind one stream."""

    def __init__(
        self, groups: GroupStreams, subscription: GroupSubscription, stream: GroupStream
    ) -> None:
        self._node, self._hub, self._quarantine, self._offsets = groups
        self._subscription = subscription
        self._stream = stream
        self._pending: Positions = {}  # processed and not committed
        self._unreadable: list[UnreadableRow] = []  # not in quarantine
        self._quarantining: asyncio.Task[None] | None = None
        self._membership = GroupMembership(
            self._node,
            subscription,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
        )

    def on_processed(self, offsets: Offsets) -> None:
        """Everything before this position is processed."""
        partitions = self._stream.subscription.partitions
        self._pending |= dict(zip(partitions, offsets, strict=True))

    def on_unreadable(self, rows: Sequence[UnreadableRow]) -> None:
        """The stream's position passed events that cannot be decoded."""
        if self._subscription.on_unreadable is not UnreadablePolicy.QUARANTINE:
            return
        self._unreadable += rows
        self._stream.is_held = True
        if self._quarantining is None:
            self._quarantining = asyncio.create_task(self._write_unreadable())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Join the group; at the end commit what is processed, and leave."""
        await self._membership.start()
        committing = asyncio.create_task(self._commit_regularly())
        try:
            yield
        finally:
            committing.cancel()
            await asyncio.wait((committing,))
            await self._membership.leave()

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_S)
            await self._commit()

    async def _commit(self) -> None:
        if not self._pending or self._committer() is None:
            return
        pending, group = dict(self._pending), self._subscription.group
        try:
            await self._offsets.advance(group, pending, self._membership.id)
        except (GatewayError, *FAILURES):
            return  # with the next ones; what is not committed in the end comes again
        committed = pending.items()
        self._pending = dict(row for row in self._pending.items() if row not in committed)

    async def _write_unreadable(self) -> None:
        """Until all is in quarantine; then the stream goes on."""
        rows = sorted(self._unreadable, key=_partition_of)  # no more come while it is held
        left = [(each, [row[1] for row in some]) for each, some in groupby(rows, _partition_of)]
        while left:
            try:
                await self._quarantine.write(self._subscription.group, *left[-1])
                left.pop()
            except (GatewayError, *FAILURES) as failure:
                logger.warning("group %s: %s", self._subscription.group, failure)
                await asyncio.sleep(_RETRY_S)
        self._unreadable, self._quarantining = [], None
        self._stream.is_held = False
        self._hub.pump.wake(self._stream)

    def _on_assigned(self, positions: Positions) -> None:
        self._pending = {}
        partitions = tuple(sorted(positions))
        start = StreamStart(partitions, tuple(positions[each] for each in partitions))
        member = self._membership.id
        self._node.stream_members[self._subscription.group, member] = self._committer
        hides = self._subscription.on_unreadable is not UnreadablePolicy.RETURN
        self._stream.assign(start, member, hides_unreadable=hides)
        if partitions:
            self._hub.pump.add(self._stream)

    def _committer(self) -> CommittingMember | None:
        return None if self._unreadable else self._membership.committer

    async def _on_revoked(self) -> None:
        self._hub.pump.remove(self._stream)
        if self._quarantining is not None:
            await asyncio.wait((self._quarantining,), timeout=_REVOKE_S)
        await self._commit()
        if self._quarantining is not None:
            self._quarantining.cancel()
            self._quarantining = None
        self._unreadable, self._stream.is_held = [], False
        self._node.stream_members.pop((self._subscription.group, self._membership.id), None)
        self._stream.revoke()
