"""The live socket of pages: overview, tail, errors, and resuming where a page stopped."""

import json
import socket as sockets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from penstock.testing.platform import Platform
from tests.console.conftest import Write


@pytest.fixture
def live_url(penstock: Platform) -> str:
    return f"{penstock.registry_url.replace('http', 'ws', 1)}/console/live"


@pytest.fixture
def socket(live_url: str) -> Iterator[ClientConnection]:
    with connect(live_url) as connection:
        yield connection


def ask(socket: ClientConnection, **message: Any) -> None:
    if "from_" in message:
        message["from"] = message.pop("from_")
    socket.send(json.dumps(message))


def wait_for(socket: ClientConnection, kind: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(socket.recv(timeout=30))
        if message["type"] == kind:
            return message


def test_the_overview_comes_at_once_and_again(socket: ClientConnection) -> None:
    ask(socket, subscribe="overview")
    first = wait_for(socket, "overview")
    assert first["brokers"]
    second = wait_for(socket, "overview")
    assert int(second["time"]) > int(first["time"])


def test_a_tail_shows_new_records_to_every_page(
    socket: ClientConnection, live_url: str, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("tail", partitions=2)
    write(topic, [("before", "0")])
    with connect(live_url) as other:
        for each in (socket, other):
            ask(each, subscribe="tail", topics=[topic])
            assert wait_for(each, "subscribed")["name"] == "tail"
        write(topic, [("a", "1")], 0)
        write(topic, [("b", "2")], 1)
        for each in (socket, other):
            records: list[dict[str, Any]] = []
            while len(records) < 2:
                message = wait_for(each, "tail")
                assert message["dropped"] == 0
                records += message["records"]
            assert {record["key"]["data"] for record in records} == {"a", "b"}


def test_a_page_resumes_where_it_stopped(
    socket: ClientConnection, penstock: Platform, write: Write
) -> None:
    topic = penstock.make_topic("resumed")
    write(topic, [(f"k{number}", "v") for number in range(20)])
    ask(socket, subscribe="tail", topics=[topic], from_={"offsets": {topic: {"0": "17"}}})
    records = wait_for(socket, "tail")["records"]
    assert [record["offset"] for record in records] == ["17", "18", "19"]
    write(topic, [("k20", "v")])
    (record,) = wait_for(socket, "tail")["records"]
    assert record["offset"] == "20"
    ask(socket, unsubscribe="tail")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no json", "invalid_body"),
        ('{"subscribe": "tail"}', "invalid_request"),
        ('{"subscribe": "all"}', "invalid_request"),
        ("{}", "invalid_request"),
        ('{"subscribe": "tail", "topics": ["no-such-topic"]}', "unknown_topic_or_partition"),
    ],
)
def test_an_invalid_message_is_answered_and_the_socket_stays(
    socket: ClientConnection, message: str, code: str
) -> None:
    socket.send(message)
    assert wait_for(socket, "error")["error"]["code"] == code
    ask(socket, subscribe="overview")
    wait_for(socket, "overview")


def test_a_request_to_another_host_is_refused(live_url: str) -> None:
    """As a page of another site sends it after its name was bound to this address."""
    parts = urlsplit(live_url)
    with (
        sockets.create_connection((parts.hostname, parts.port)) as connection,
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://evil.example:{parts.port}{parts.path}", sock=connection),
    ):
        pass
    assert refused.value.response.status_code in (400, 403, 421)


def test_a_page_of_another_site_is_refused(live_url: str) -> None:
    with pytest.raises(InvalidStatus), connect(live_url, origin=Origin("http://evil.example")):
        pass
