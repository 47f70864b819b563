"""A broker whose heartbeats' connection ends is fenced at once if nothing listens at its port."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.handler import Client
from penstock.broker.lost_brokers import LostBrokers
from penstock.coordination.controller.commands import FenceBroker
from penstock.model import NodeId

OWN, OTHER, EPOCH = NodeId(1), NodeId(2), 7


class Controller:
    """Keeps what is submitted."""

    def __init__(self, *, is_active: bool) -> None:
        self.is_active = is_active
        self.commands: list[Any] = []

    def submit(self, make: Any) -> None:
        self.commands.append(make(None))


class OtherBroker:
    """A port that another broker listens on, or that is closed."""

    def __init__(self, *, listens: bool) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        if not listens:
            self._socket.close()

    def close(self) -> None:
        self._socket.close()


def fenced(
    *, listens: bool, is_active: bool = True, takes_over: bool = False, is_ending: bool = False
) -> list[Any]:
    """What is submitted after the connection of broker 2 has ended, or after a takeover."""
    other = OtherBroker(listens=listens)
    endpoints = {
        node: SimpleNamespace(node_id=node, host="127.0.0.1", port=other.port)
        for node in (OWN, OTHER)
    }
    image: Any = SimpleNamespace(
        node_id=OWN,
        brokers=endpoints.values,
        endpoint=endpoints.get,
        state=SimpleNamespace(brokers=dict.fromkeys(endpoints, SimpleNamespace(epoch=EPOCH))),
    )
    controller: Any = Controller(is_active=is_active)

    async def run() -> None:
        lost = LostBrokers(controller, image)
        if is_ending:
            asyncio.get_running_loop().call_later(0.02, other.close)
        if takes_over:
            lost.check_all()
        else:
            client = Client("127.0.0.1", 1)
            lost.watch(client, OTHER, EPOCH)
            assert client.on_closed is not None
            client.on_closed()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)

    try:
        asyncio.run(run())
    finally:
        other.close()
    commands: list[Any] = controller.commands
    return commands


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_broker_whose_port_is_closed_is_fenced(takes_over: bool) -> None:
    (command,) = fenced(listens=False, takes_over=takes_over)
    assert isinstance(command, FenceBroker)
    assert (command.node_id, command.epoch) == (OTHER, EPOCH)


def test_a_broker_that_still_accepts_while_it_ends_is_fenced() -> None:
    assert len(fenced(listens=True, is_ending=True)) == 1


@pytest.mark.parametrize("takes_over", [False, True])
def test_a_broker_that_still_listens_keeps_its_session(takes_over: bool) -> None:
    assert fenced(listens=True, takes_over=takes_over) == []


def test_only_the_active_controller_fences() -> None:
    assert fenced(listens=False, is_active=False) == []
