"""A client whose machine vanishes without closing its connection, in a network namespace."""

import os
import shutil
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
        ip("netns", "del", NAMESPACE)


def test_a_client_that_vanished_is_dropped_within_a_minute(namespace: tuple[str, ...]) -> None:
    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("orders", b"{}")
        assert producer.flush(30) == 0
        process = HttpProcess()
        process.configure(HttpOptions(broker.bootstrap, host=SERVER, http_port=0, insecure=True))
        try:
            url = str(process.wait_ready()["http"]).rstrip("/")
            stream = f"{url}/topics/orders/stream?offset=earliest"
            curl = subprocess.Popen(
                [*namespace, "curl", "--silent", "--no-buffer", stream], stdout=subprocess.PIPE
            )
            assert curl.stdout is not None
            assert any(b"orders" in curl.stdout.readline() for _ in range(6))
            assert open_streams(url) == 1
            ip("netns", "exec", NAMESPACE, "ip", "link", "set", "psk1", "down")
            deadline_s = time.monotonic() + DROPPED_S
            while open_streams(url):
                assert time.monotonic() < deadline_s, "the client is still served"
                time.sleep(0.5)
            curl.kill()
            curl.communicate()
        finally:
            process.stop()


def open_streams(url: str) -> int:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return int(next(line for line in lines if line.startswith("penstock_streams_open ")).split()[1])
