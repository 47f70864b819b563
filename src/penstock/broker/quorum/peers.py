"""Sends the messages of the Raft core to other replicas. Implements `quorum_node.Peers`.

What was in flight on a connection that ends, and what could not be sent, is reported as lost, once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.broker_links import Purpose
from penstock.broker.quorum.wire import read_reply, write_request
from penstock.consensus.raft import QuorumFetch, SnapshotFetch
from penstock.link.operation import FAILURES, Request, request_of
from penstock.link.settings import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.broker.broker_links import BrokerLinks
    from penstock.consensus.raft import Reply, VoterSet
    from penstock.consensus.raft import Request as RaftRequest
    from penstock.model import NodeId


class QuorumPeers:
    """The voters by their endpoints, and the servers that a replica without a leader asks."""

    def __init__(
        self,
        links: BrokerLinks,
        voters: Callable[[], VoterSet],
        bootstrap: Sequence[Address],
        cluster_id: Callable[[], str | None],
    ) -> None:
        self._links = links
        self._voters = voters
        self._bootstrap = tuple(bootstrap)
        self._cluster_id = cluster_id
        self._named: dict[NodeId, Address] = {}  # leaders, as replies have named them; few
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._next_bootstrap = 0
        self._is_closed = False

    def send(
        self,
        node_id: NodeId | None,
        request: RaftRequest,
        on_reply: Callable[[Reply], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Send to a node, or to any bootstrap server; one of the two is called, at most once."""
        if self._is_closed:
            return
        exchange = self._exchange(node_id, request, on_reply, on_lost)
        task = asyncio.get_running_loop().create_task(exchange)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def close(self) -> None:
        """Nothing is called any more."""
        self._is_closed = True
        for task in tuple(self._tasks):
            task.cancel()

    async def _exchange(
        self,
        node_id: NodeId | None,
        request: RaftRequest,
        on_reply: Callable[[Reply], None],
        on_lost: Callable[[], None],
    ) -> None:
        try:
            reply = await self._request(node_id, request)
        except FAILURES:
            if not self._is_closed:
                on_lost()
            return
        if not self._is_closed:
            on_reply(reply)

    async def _request(self, node_id: NodeId | None, request: RaftRequest) -> Reply:
        message, body, version_min = write_request(request, self._cluster_id())
        wire: Request[object] = request_of(message, body, version_min=version_min)
        is_fetch = isinstance(request, QuorumFetch | SnapshotFetch)
        purpose = Purpose.QUORUM_FETCH if is_fetch else Purpose.QUORUM
        link = await self._links.connect(self._address(node_id), purpose)
        response = await link.send(wire)
        for node in getattr(response, "node_endpoints", ()):
            self._named[node.node_id] = Address(node.host, node.port)
        return read_reply(request, response)

    def _address(self, node_id: NodeId | None) -> Address:
        """Of a voter; of the next bootstrap server if that one is not known.

        A replica without a log does not know the voters: it asks any of them, and the reply names
        the leader and where that is.
        """
        voter = None if node_id is None else self._voters().find(node_id)
        if voter is not None and voter.endpoints:
            return Address(voter.endpoints[0].host, voter.endpoints[0].port)
        if node_id in self._named:
            return self._named.pop(node_id)  # the next reply names it again, or another one
        if not self._bootstrap:
            raise ConnectionError(f"no address of node {node_id} is known")
        self._next_bootstrap += 1
        return self._bootstrap[self._next_bootstrap % len(self._bootstrap)]
