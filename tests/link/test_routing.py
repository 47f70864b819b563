"""Which broker is asked for metadata."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.link.operation import Drive, Pause, Receive, Send
from penstock.link.routing import Routes
from penstock.link.settings import Address, LinkSettings
from penstock.link.topic_admin import TOPIC, alter_configs
from penstock.model import Millis
from penstock.protocol.api import Api
from penstock.protocol.fields import NodeEndpoint
from penstock.protocol.messages.configs import AlterConfigsResponse, AlteredConfigs
from penstock.protocol.messages.metadata import (
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

BROKERS = (Address("a", 1), Address("b", 2))


def asked_for_topic(routes: Routes) -> list[Address]:
    """The brokers that were asked for the topic's metadata, if any was."""
    partition = MetadataPartition(ErrorCode.none, 0, leader_id=1, leader_epoch=0)
    rows = [NodeEndpoint(number, *address) for number, address in enumerate(BROKERS, 1)]
    response = MetadataResponse(rows, [MetadataTopic("orders", [partition])])
    asked = []
    drive = Drive(routes.topic_metadata(["orders"]))
    while drive.effect is not None:
        match drive.effect:
            case Send(address, _):
                asked.append(address)
                drive.resume(response)
            case Receive(outcome):
                drive.resume(outcome)
            case unexpected:
                raise AssertionError(unexpected)
    return asked


def test_another_broker_is_asked_after_metadata_that_proved_wrong() -> None:
    routes = Routes(BROKERS, LinkSettings(), lambda: Millis(0), lambda: 0.5)
    first, second = BROKERS
    assert asked_for_topic(routes) == [first]
    assert asked_for_topic(routes) == []
    routes.invalidate_topics(["orders"])
    assert asked_for_topic(routes) == [second]
    routes.invalidate_topics(["orders", "unknown"])
    assert asked_for_topic(routes) == [first]


def test_the_broker_that_responded_is_asked_first() -> None:
    routes = Routes(BROKERS, LinkSettings(), lambda: Millis(0), lambda: 0.5)
    assert asked_for_topic(routes) == [BROKERS[0]]
    routes.topics.clear()
    assert asked_for_topic(routes) == [BROKERS[0]]


def test_the_controller_is_found_again_when_it_does_not_respond() -> None:
    routes = Routes(BROKERS, LinkSettings(), lambda: Millis(0), lambda: 0.5)
    rows = [NodeEndpoint(number, *address) for number, address in enumerate(BROKERS, 1)]
    requested: list[Address] = []
    drive = Drive(alter_configs("t", {"retention.ms": "1"})(routes))
    while drive.effect is not None:
        match drive.effect:
            case Send(_, request) if request.api is Api.METADATA:
                drive.resume(MetadataResponse(rows, [], controller_id=len(requested) + 1))
            case Send(address, _):
                requested.append(address)
                drive.resume(AlterConfigsResponse([AlteredConfigs(TOPIC, "t")]))
            case Receive(AlterConfigsResponse()) if len(requested) == 1:
                drive.fail(ConnectionError("it is dead"))
            case Receive(response):
                drive.resume(response)
            case Pause():
                drive.resume(None)
            case unexpected:
                raise AssertionError(unexpected)
    assert requested == list(BROKERS)
