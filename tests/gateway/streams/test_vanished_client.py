"""A client whose machine vanishes without closing its connection, in a network namespace."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer

from penstock.node.http_process import HttpOptions
from penstock.node.supervisor import HttpProcess
from penstock.testing.embedded import EmbeddedBroker

SERVER, CLIENT = "10.99.77.1", "10.99.77.2"
NAMESPACE = "penstock-vanished"
DROPPED_S = 60
STALLED_S = 75

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("curl"),
        reason="needs root, ip and curl",
    ),
]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def namespace() -> Iterator[tuple[str, ...]]:
    """A network of two machines; what runs a command on the client's."""
    try:
        ip("netns", "add", NAMESPACE)
    except subprocess.CalledProcessError as failure:
        pytest.skip(f"no network namespaces here: {failure.stderr.decode()}")
    inside = ("netns", "exec", NAMESPACE, "ip")
    try:
        ip("link", "add", "psk0", "type", "veth", "peer", "name", "psk1", "netns", NAMESPACE)
        ip("addr", "add", f"{SERVER}/24", "dev", "psk0")
        ip("link", "set", "psk0", "up")
        ip(*inside, "addr", "add", f"{CLIENT}/24", "dev", "psk1")
        ip(*inside, "link", "set", "psk1", "up")
        yield ("ip", "netns", "exec", NAMESPACE)
    finally:
        ip("link", "del", "psk0")  # goes with the namespace, but some time later
        ip("netns", "del", NAMESPACE)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def url(broker: EmbeddedBroker, namespace: tuple[str, ...]) -> Iterator[str]:
    """Of a gateway that the client's machine can reach."""
    assert namespace, "its network must exist first"
    process = HttpProcess()
    process.configure(HttpOptions(broker.bootstrap, host=SERVER, http_port=0, insecure=True))
    try:
        yield str(process.wait_ready()["http"]).rstrip("/")
    finally:
        process.stop()


@pytest.fixture
def curl(
    broker: EmbeddedBroker, url: str, namespace: tuple[str, ...], events: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A client of a stream on the other machine, which has read the first event."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(events):
        producer.produce("orders", b'{"fill": "%s"}' % (b"x" * 2000))
    assert producer.flush(30) == 0
    stream = f"{url}/topics/orders/stream?offset=earliest"
    client = subprocess.Popen(
        [*namespace, "curl", "--silent", "--no-buffer", stream], stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    assert any(b"orders" in client.stdout.readline() for _ in range(6))
    assert open_streams(url) == 1
    yield client
    client.kill()
    client.communicate()


def unplug() -> None:
    """The client's machine is gone, without a word."""
    ip("netns", "exec", NAMESPACE, "ip", "link", "set", "psk1", "down")


def wait_until_dropped(url: str) -> None:
    deadline_s = time.monotonic() + DROPPED_S
    while open_streams(url):
        assert time.monotonic() < deadline_s, "the client is still served"
        time.sleep(0.5)


@pytest.mark.parametrize("events", [1])
@pytest.mark.usefixtures("curl")
def test_a_client_that_vanished_is_dropped_within_a_minute(url: str) -> None:
    unplug()
    wait_until_dropped(url)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("events", [8000])
def test_a_client_that_does_not_read_stays_and_is_dropped_when_it_vanishes(
    url: str, curl: subprocess.Popen[bytes]
) -> None:
    curl.send_signal(signal.SIGSTOP)
    end_s = time.monotonic() + STALLED_S
    while time.monotonic() < end_s:
        assert open_streams(url) == 1, "a client that lives was dropped"
        time.sleep(1)
    unplug()
    wait_until_dropped(url)


def open_streams(url: str) -> int:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith("penstock_streams_open ")).split()[1])
