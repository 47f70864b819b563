"""A forwarded request keeps its client; a new cluster gets producer ids of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from penstock.broker.controller_client import ControllerClient
from penstock.broker.handler import Client, Context
from penstock.broker.handlers.broker_lifecycle import envelope, register_broker
from penstock.machine import Deferred
from penstock.protocol.messages.broker_lifecycle import (
    BrokerListener,
    BrokerRegistrationRequest,
    EnvelopeRequest,
)
from penstock.protocol.messages.topics import DELETE_TOPICS, DeleteTopicsRequest

ALICE = "User:alice"


def forwarded(client: Client) -> EnvelopeRequest:
    """What a broker that is not the controller sends to it."""
    sent: list[EnvelopeRequest] = []

    async def call(_message: object, request: EnvelopeRequest) -> None:
        sent.append(request)
        raise ConnectionError

    async def connect(*_: object) -> Any:
        return SimpleNamespace(call=call)

    place = SimpleNamespace(host="10.0.0.9", port=9092)
    raft = SimpleNamespace(
        leader_id=9, voters=SimpleNamespace(find=lambda _: SimpleNamespace(endpoints=[place]))
    )
    broker: Any = SimpleNamespace(settings=SimpleNamespace(node_id=1))
    inactive: Any = SimpleNamespace(is_active=False)
    links: Any = SimpleNamespace(connect=connect)
    follower: Any = None
    forwarder = ControllerClient(broker, inactive, follower, links)
    quorum: Any = SimpleNamespace(raft=raft)
    forwarder.attach(quorum)
    counts: Any = None
    context = Context(broker, client, "tool", DELETE_TOPICS, 5, 0, True, counts)

    async def forward() -> None:
        response = forwarder.forward(context, DeleteTopicsRequest([]))
        came = asyncio.get_running_loop().create_future()
        response.listen(came.set_result)
        await came

    asyncio.run(forward())
    (request,) = sent
    return request


@pytest.mark.parametrize("host", ["10.1.2.3", "2001:db8::7"])
def test_the_controller_knows_whose_request_was_forwarded_and_from_where(host: str) -> None:
    request = forwarded(Client(host, 5555, principal=ALICE))
    clients: list[Client] = []

    def begin(client: Client, _frame: memoryview, *, only_forwarded: bool) -> tuple[None, Any]:
        assert only_forwarded
        clients.append(client)
        return None, Deferred()

    broker = SimpleNamespace(
        controller=SimpleNamespace(is_active=True), dispatcher=SimpleNamespace(begin=begin)
    )
    context: Any = SimpleNamespace(broker=broker)
    envelope(context, request)
    (client,) = clients
    assert (client.host, client.principal) == (host, ALICE)


def first_producer_id() -> int:
    """Where a new cluster begins with its producer ids."""
    commands: list[Any] = []

    def submit(make: Any) -> Deferred[Any]:
        commands.append(make(None))
        return Deferred()

    broker = SimpleNamespace(
        controller=SimpleNamespace(submit=submit, end_offset=0),
        cluster=SimpleNamespace(cluster_id=""),
    )
    context: Any = SimpleNamespace(broker=broker)
    listener = BrokerListener("PLAINTEXT", "127.0.0.1", 9092, 0)
    register_broker(context, BrokerRegistrationRequest(1, "", uuid4(), [listener], []))
    return int(commands[0].first_producer_id)


def test_clusters_begin_with_different_producer_ids() -> None:
    bases = [first_producer_id() for _ in range(4)]
    assert len(set(bases)) == 4
    for base in bases:
        assert 0 <= base < 1 << 63
        assert base % (1 << 32) == 0  # so that their ranges do not meet
