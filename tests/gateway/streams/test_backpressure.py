"""Clients that do not read: what they cost is bounded, and others are served."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from penstock.testing.platform import Platform
from tests.gateway.streams.conftest import Write, numbered_events
from tests.support.sse_client import sse

EVENTS = 4000
EVENT_BYTES = 2000  # 8 MB in all
IN_FLIGHT_BYTES_MAX = 256 << 10
CHUNK_BYTES = 64 << 10


class StalledClient:
    """A stream that is opened and not read."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=20)
        request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
        self._socket.sendall(request.encode())

    def close(self) -> None:
        self._socket.close()

    def unacknowledged_bytes(self) -> int:
        """In the kernel at the gateway's end."""
        # Both ports: other connections on this machine may have the same port at one end.
        ends = (self._socket.getpeername()[1], self._socket.getsockname()[1])
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if ends == tuple(int(end.partition(":")[2], 16) for end in (local, remote)):
                return int(queues.partition(":")[0], 16)
        raise AssertionError("the connection is closed")

    def wait_until_stalled(self) -> int:
        """Until what is in flight does not change; returns it."""
        before, same = -1, 0
        while same < 5:
            time.sleep(0.1)
            now = self.unacknowledged_bytes()
            before, same = now, same + 1 if now == before and now else 0
        return before

    def read_events(self, count: int) -> int:
        """Read until so many events have come; returns how many bytes that were."""
        size, events, rest = 0, 0, b""
        while events < count + 1:  # and the opening event
            content = self._socket.recv(1 << 20)
            assert content, "the stream ended"
            size += len(content)
            text = rest + content
            events += text.count(b"\ndata: ")
            rest = text[-6:]
        return size


@pytest.fixture(scope="module")
def topic(penstock: Platform) -> str:
    """One for all tests of this module: it takes time to write."""
    name = penstock.make_topic()
    with numbered_events(penstock.bootstrap) as write:
        write(name, 0, EVENTS, size=EVENT_BYTES)
    return name


@pytest.fixture
def stalled(gateway_url: str, topic: str) -> Iterator[StalledClient]:
    client = StalledClient(f"{gateway_url}/topics/{topic}/stream?offset=earliest")
    yield client
    client.close()


def metric(gateway_url: str, name: str) -> float:
    for line in httpx.get(f"{gateway_url}/metrics").text.splitlines():
        if line.startswith(f"penstock_streams_{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def test_what_is_in_flight_to_a_client_that_does_not_read_is_bounded(
    gateway_url: str, stalled: StalledClient
) -> None:
    assert 0 < stalled.wait_until_stalled() <= IN_FLIGHT_BYTES_MAX + CHUNK_BYTES
    in_flight = metric(gateway_url, "in_flight_bytes")
    assert 0 < in_flight <= IN_FLIGHT_BYTES_MAX + 2 * CHUNK_BYTES
    assert metric(gateway_url, "stalled") >= 1
    fetches = metric(gateway_url, "fetches_total")
    time.sleep(0.5)
    assert metric(gateway_url, "fetches_total") == fetches


def test_a_client_that_reads_again_gets_everything_that_it_missed(stalled: StalledClient) -> None:
    stalled.wait_until_stalled()
    assert stalled.read_events(EVENTS) > EVENTS * EVENT_BYTES


def test_others_are_served_while_a_client_does_not_read(
    gateway_url: str, topic: str, stalled: StalledClient, write: Write
) -> None:
    stalled.wait_until_stalled()
    with sse(f"{gateway_url}/topics/{topic}/stream?offset=earliest") as stream:
        numbers = [event.fields["value"]["n"] for event in stream.take(EVENTS)]
        assert numbers == list(range(EVENTS))
        write(topic, EVENTS, EVENTS + 1)
        assert stream.take(1)[0].fields["offset"] == EVENTS
