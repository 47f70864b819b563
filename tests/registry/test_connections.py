"""Slow, silent, many and sudden clients: what they cost, and who is served meanwhile."""

import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect as websocket

from penstock.node.http_process import HttpOptions, command_line

HALF = b"GET /subj"
BODY = b"POST /subjects/s/versions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY += b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


def connect(url: str) -> socket.socket:
    parts = httpx.URL(url)
    return socket.create_connection((parts.host, parts.port or 0), timeout=30)


def closed(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    connection.close()
    return received


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.fixture
def options(broker: Any) -> HttpOptions:
    return HttpOptions(broker.bootstrap, http_port=0, topic="_schemas-connections", group="c")


@pytest.fixture
def start(options: HttpOptions, node_class: Any) -> Iterator[Callable[..., Any]]:
    """Starts a node with other limits."""
    nodes = []

    def start_with(**limits: Any) -> Any:
        node = node_class(replace(options, **limits)).wait_ready()
        nodes.append(node)
        return node

    yield start_with
    for node in nodes:
        node.end()


def test_a_head_and_a_body_that_do_not_come_are_answered_with_408(
    start: Callable[..., Any],
) -> None:
    node = start(head_s=0.5, body_s=0.5)
    silent, head, body = (connect(node.url) for _ in range(3))
    head.sendall(HALF)
    body.sendall(BODY)
    assert closed(silent) == b""
    for answer in (closed(head), closed(body)):
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b'"message":"HTTP 408 the request was not complete in time"}')
    metrics = httpx.get(f"{node.url}/metrics").text
    assert 'penstock_http_connections_closed_total{reason="late"} 3' in metrics


def test_a_stream_of_records_lasts_while_records_come(
    broker: Any, start: Callable[..., Any]
) -> None:
    node, topic = start(body_s=0.5), broker.make_topic()
    connection = connect(node.url)
    head = f"POST /v3/clusters/-/topics/{topic}/records HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
    connection.sendall(head + b"Content-Type: application/json\r\nContent-Length: 10000\r\n\r\n")
    for _ in range(8):
        connection.sendall(b'{"value": {"type": "JSON", "data": 1}}')
        time.sleep(0.2)
    begin_s = time.monotonic()
    assert closed(connection).count(b'"error_code":200') == 8
    assert time.monotonic() - begin_s < 10  # silent for too long


def test_a_head_that_comes_byte_by_byte_is_not_waited_for_longer(start: Callable[..., Any]) -> None:
    node = start(head_s=1.0)
    with httpx.Client(base_url=node.url) as client:
        client.get("/subjects")  # the second request of a connection is limited as well
    connection = connect(node.url)
    begin_s = time.monotonic()
    try:
        for byte in b"GET /subjects HTTP/1.1\r\n" * 100:
            connection.sendall(bytes((byte,)))
            time.sleep(0.05)
    except OSError:
        pass
    assert time.monotonic() - begin_s < 60
    connection.close()


def test_empty_lines_do_not_keep_a_connection(start: Callable[..., Any]) -> None:
    node = start(head_s=0.5)
    connection = connect(node.url)
    request = b"GET /subjects HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    connection.sendall(request)
    answer = b""
    while not answer.endswith(b"[]"):
        answer += connection.recv(4096)
    connection.sendall(b"\r\n")
    assert closed(connection) == b""


def test_a_websocket_stays_open_although_it_sends_no_further_head(
    start: Callable[..., Any],
) -> None:
    node = start(head_s=0.5)
    with websocket(f"{node.url.replace('http', 'ws', 1)}/console/live") as page:
        with pytest.raises(TimeoutError):
            page.recv(timeout=1.5)
        page.send("{}")
        assert "error" in page.recv(timeout=30)


def test_a_head_without_end_is_refused(node: Any) -> None:
    connection = connect(node.url)
    connection.sendall(b"GET /subjects HTTP/1.1\r\n")
    try:
        for _ in range(200):
            connection.sendall(b"X-Filler: " + b"x" * 1_000 + b"\r\n")
    except OSError:
        pass
    answer = closed(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert httpx.get(f"{node.url}/subjects").is_success


def test_a_new_connection_takes_the_place_of_the_one_that_waited_longest(
    start: Callable[..., Any],
) -> None:
    node = start(connections_max=20, head_s=60.0)
    waiting = [connect(node.url) for _ in range(30)]
    for connection in waiting:
        with suppress(OSError):
            connection.sendall(HALF)
    for _ in range(5):
        assert httpx.get(f"{node.url}/subjects", timeout=10).json() == []
    assert sum(is_closed(connection) for connection in waiting) >= 10
    for connection in waiting:
        connection.close()
    assert 'reason="limit"' in httpx.get(f"{node.url}/metrics").text


def test_half_requests_do_not_lock_others_out_when_descriptors_are_few(
    options: HttpOptions,
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    process = subprocess.Popen(
        command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=limit
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        url = str(httpx.Response(200, content=process.stdout.readline()).json()["http"])
        halves = []
        for number in range(400):
            half = connect(url)
            half.sendall(HALF)
            halves.append(half)
            if number % 50 == 0:
                assert httpx.get(f"{url}/subjects", timeout=10).json() == []
        for _ in range(3):
            assert httpx.get(f"{url}/subjects", timeout=10).json() == []
        for half in halves:
            half.close()
    finally:
        process.terminate()
        assert process.wait(20) == 0
        process.stdin.close()
        process.stdout.close()


def test_clients_that_hang_up_in_their_body_leave_no_lines_in_the_log(options: HttpOptions) -> None:
    process = subprocess.Popen(
        command_line(replace(options, log_level="INFO")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = str(httpx.Response(200, content=process.stdout.readline()).json()["http"])
    for _ in range(20):
        connection = connect(url)
        connection.sendall(BODY)
        connection.close()
    for _ in range(20):
        assert httpx.get(f"{url}/subjects").is_success
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert len(errors.splitlines()) < 15
