"""Fetches from one leader: one connection and one session for all partitions that it leads.

A fetch names only what changed since the last one. When a partition becomes ready to be fetched
while a fetch waits at the leader, a second one is sent, and the leader ends the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.background import start_background
from penstock.broker.broker_links import Purpose
from penstock.errors import ErrorCode, Refused
from penstock.link.operation import FAILURES, request_of
from penstock.protocol.messages.fetch import (
    FETCH,
    FetchingReplica,
    FetchRequest,
    FetchTopic,
    RemovedTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.broker.broker_links import BrokerLinks
    from penstock.broker.partition import Partition
    from penstock.broker.replication.followed_partition import FollowedPartition
    from penstock.broker.suspected_leaders import SuspectedLeaders
    from penstock.consensus.replica.follower import FetchState
    from penstock.link.aio import AsyncLink
    from penstock.link.settings import Address
    from penstock.model import NodeId
    from penstock.protocol.messages.fetch import FetchPartition, FetchResponse

logger: Final = logging.getLogger(__name__)

MAX_WAIT_MS: Final = 500
RESPONSE_BYTES_MAX: Final = 10 << 20
TURN_BYTES_MAX: Final = 1 << 20  # appended in one turn of the loop, as from a client
RETRY_MIN_S: Final = 0.02
RETRY_MAX_S: Final = 1.0
TIMEOUT_S: Final = 5.0
VERSION_MIN: Final = 15  # with the epoch of the fetching broker
_LAST_EPOCH: Final = 2**31 - 1

PartitionKey = tuple[bytes, int]  # topic id, index


class _InFlight(NamedTuple):
    """A fetch without a response yet, and the partitions that it names."""

    response: asyncio.Future[FetchResponse]
    deadline: asyncio.TimerHandle  # ends the connection
    named: dict[PartitionKey, tuple[FollowedPartition, FetchState]]


class ReplicaFetcher:
    """Follows one leader."""

    def __init__(
        self,
        leader: NodeId,
        links: BrokerLinks,
        find_address: Callable[[NodeId], Address | None],
        replica: FetchingReplica,
        suspected: SuspectedLeaders,
    ) -> None:
        self._leader = leader
        self._suspected = suspected
        self._links = links
        self._find_address = find_address
        self._replica = replica
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[PartitionKey, None] = {}  # to be named in the next fetch
        self._removed: dict[PartitionKey, None] = {}
        self._session_id = self._session_epoch = 0
        self._link: AsyncLink | None = None
        self._in_flight: deque[_InFlight] = deque()
        # What each partition requested last, as of the last response
        self._requested: dict[PartitionKey, tuple[FollowedPartition, FetchState]] = {}
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, followed: FollowedPartition) -> None:
        """Fetch a partition too, or again after a pause."""
        key = key_of(followed.partition)
        self._followed[key] = followed
        self._changed[key] = None
        self._removed.pop(key, None)
        self._has_work.set()
        if self._task is None:
            self._task = start_background(f"fetching from broker {self._leader}", self._run())
        elif len(self._in_flight) == 1:
            asyncio.get_running_loop().call_soon(self._send_another)

    def remove(self, followed: FollowedPartition) -> None:
        """Fetch a partition no more."""
        key = key_of(followed.partition)
        if self._followed.get(key) is followed:
            del self._followed[key]
            self._changed.pop(key, None)
            self._requested.pop(key, None)
            self._removed[key] = None

    def close(self) -> None:
        """Fetch nothing more."""
        if self._task is not None:
            self._task.cancel()
        for fetch in self._in_flight:
            fetch.deadline.cancel()

    # Fetching.

    async def _run(self) -> None:
        delay_s = RETRY_MIN_S
        while True:
            if not self._followed:
                self._has_work.clear()
                await self._has_work.wait()
            try:
                await self._fetch()
                delay_s = RETRY_MIN_S
            except FAILURES as failure:
                logger.debug("broker %d cannot be fetched from: %s", self._leader, failure)
                if isinstance(failure, OSError):
                    self._suspected.on_lost(self._leader)
                self._start_over()
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)

    async def _fetch(self) -> None:
        if self._link is None or not self._link.is_open:
            self._start_over()
            address = self._find_address(self._leader)
            if address is None:
                raise Refused(ErrorCode.broker_not_available, "it is not live")
            self._link = await self._links.connect(address, Purpose.REPLICA_FETCH)
        if not self._in_flight:
            self._send(self._link)
        fetch = self._in_flight[0]
        response = await fetch.response
        fetch.deadline.cancel()
        self._suspected.on_response(self._leader)
        self._in_flight.popleft()
        if response.error_code != ErrorCode.none:
            raise Refused(response.error_code, "the session ended")
        self._session_id = response.session_id
        self._requested.update(fetch.named)
        await self._on_response(response)

    def _send_another(self) -> None:
        """Something is ready to be fetched: do not wait for the fetch that waits at the leader."""
        link = self._link
        is_possible = len(self._in_flight) == 1 and self._session_epoch > 1
        if is_possible and link is not None and link.is_open and self._changed:
            self._send(link)

    def _send(self, link: AsyncLink) -> None:
        topics: dict[bytes, list[FetchPartition]] = {}
        named = {}
        for key in self._changed:
            followed = self._followed[key]
            if not followed.is_fetching:
                continue  # it is added again when it may acknowledge what it has
            state = followed.state
            named[key] = followed, state
            topics.setdefault(key[0], []).append(followed.describe_fetch(state))
        removed: dict[bytes, list[int]] = {}
        for topic, index in self._removed:
            removed.setdefault(topic, []).append(index)
        self._changed, self._removed = {}, {}
        request = FetchRequest(
            MAX_WAIT_MS,
            1,
            RESPONSE_BYTES_MAX,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(*each) for each in topics.items()],
            removed_topics=[RemovedTopic(*each) for each in removed.items()],
            replica=self._replica,
        )
        self._session_epoch = 1 if self._session_epoch == _LAST_EPOCH else self._session_epoch + 1
        response = link.start(request_of(FETCH, request, version_min=VERSION_MIN))
        deadline = asyncio.get_running_loop().call_later(TIMEOUT_S, link.abort)
        self._in_flight.append(_InFlight(response, deadline, named))

    def _start_over(self) -> None:
        """The next fetch opens a new session, with every partition that is ready."""
        for fetch in self._in_flight:
            fetch.deadline.cancel()
            fetch.response.cancel()
        self._in_flight.clear()
        self._requested.clear()
        if self._link is not None:
            self._link.abort()
        self._link = None
        self._session_id = self._session_epoch = 0
        self._removed = {}
        self._changed = dict.fromkeys(
            key for key, followed in self._followed.items() if followed.is_fetching
        )

    async def _on_response(self, response: FetchResponse) -> None:
        """Carry out a response in turns: partitions may change hands between two of them."""
        turn_bytes = 0
        for topic, rows in response.topics:
            assert isinstance(topic, bytes)
            for row in rows:
                requested = self._requested.get((topic, row.partition))
                if requested is None:
                    continue
                followed, state = requested
                if self._followed.get((topic, row.partition)) is not followed:
                    continue
                size_bytes = len(row.records or b"")
                if turn_bytes + size_bytes > TURN_BYTES_MAX and turn_bytes:
                    turn_bytes = 0
                    await asyncio.sleep(0)
                turn_bytes += size_bytes
                followed.on_fetched(row, state)


def key_of(partition: Partition) -> PartitionKey:
    """How fetches name a partition."""
    return partition.topic_id.bytes, partition.topic_partition.partition
