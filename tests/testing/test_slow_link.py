"""The slow network of the fixtures: it forwards bytes late, and leaves nothing open when closed."""

import gc
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.testing.slow_link import SlowLink

LINKS = 20
CLIENTS = 4


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it receives."""
    stopping = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not stopping.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=echo, args=(connection,)).start()

    def echo(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while received := connection.recv(1 << 16):
                connection.sendall(received)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield listener.getsockname()[1]
        stopping.set()
        thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def open_link(target: int, latency_ms: int) -> tuple[SlowLink, int]:
    port = free_port()
    link = SlowLink(port, latency_ms=latency_ms)
    link.target = target
    return link, port


def test_bytes_arrive_unchanged_and_late(echo_port: int) -> None:
    link, port = open_link(echo_port, latency_ms=30)
    sent = bytes(range(256)) * 4_000
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            begun = time.monotonic()
            client.sendall(sent)
            received = b""
            while len(received) < len(sent):
                received += client.recv(1 << 16)
            assert received == sent
            assert time.monotonic() - begun >= 0.06  # 30 ms in each direction
    finally:
        link.close()


def test_a_client_that_ends_its_stream_ends_the_connection(echo_port: int) -> None:
    link, port = open_link(echo_port, latency_ms=1)
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.shutdown(socket.SHUT_WR)
            client.settimeout(10)
            assert client.recv(1) == b""
    finally:
        link.close()


def test_a_target_that_refuses_closes_the_clients_connection() -> None:
    link, port = open_link(free_port(), latency_ms=1)
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.settimeout(10)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
    finally:
        link.close()


def test_a_link_closed_while_clients_connect_leaves_nothing_open(echo_port: int) -> None:
    stopping = threading.Event()
    ports = [0]

    def connect_all_the_time() -> None:
        while not stopping.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", ports[0]), 1):
                pass

    clients = [threading.Thread(target=connect_all_the_time) for _ in range(CLIENTS)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for client in clients:
            client.start()
        try:
            for _ in range(LINKS):
                link, ports[0] = open_link(echo_port, latency_ms=1)
                time.sleep(0.02)
                link.close()
        finally:
            stopping.set()
            for client in clients:
                client.join()
        gc.collect()
    assert [str(each.message) for each in caught] == []
