"""Connections: framing, order, limits; invalid bytes cost only the connection that sent them."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.broker.conftest import RunningBroker, StartBroker
    from tests.support.wire import Wire

API_VERSIONS = 18


def is_serving(broker: RunningBroker) -> bool:
    with broker.connect() as wire:
        return len(wire.call(API_VERSIONS, 0).api_keys) > 10


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 8,
        b"\xff" * 64,
        struct.pack(">hhih", 18, 3, 1, 100) + b"short",  # a client id that runs past the frame
        struct.pack(">hhih", 0, 9, 1, -1) + b"\x00\x00",  # a produce without a body
        struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2**31 - 1),  # a huge array
        struct.pack(">hhih", 3, 12, 1, -1) + b"\x00\xff\xff\xff\xff\x07",  # the same, compact
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_random_bytes_close_their_own_connection_with_one_log_line(
    broker: RunningBroker, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock.broker"), broker.connect() as wire:
        wire.send_frame(content)
        assert wire.is_closed()
    assert len([row for row in caplog.records if "closing" in row.message]) == 1
    assert is_serving(broker)


@pytest.mark.parametrize("size", [0, 3, -1, 2**31 - 1, (100 << 20) + 1])
def test_a_frame_of_an_impossible_size_closes_the_connection(
    broker: RunningBroker, size: int
) -> None:
    with broker.connect() as wire:
        wire.socket.sendall(struct.pack(">i", size))
        assert wire.is_closed()
    assert is_serving(broker)


def test_an_unknown_api_closes_the_connection(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", 4711, 0, 1, -1))
    assert wire.is_closed()


def test_a_version_that_is_not_served_closes_the_connection(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", 0, 2, 1, -1) + bytes(20))
    assert wire.is_closed()


def test_an_api_versions_that_is_too_new_gets_version_0(wire: Wire) -> None:
    wire.send_frame(struct.pack(">hhih", API_VERSIONS, 99, 7, -1))
    assert wire.receive_frame() == struct.pack(">ihihhh", 7, 35, 1, API_VERSIONS, 0, 4)
    assert wire.call(API_VERSIONS, 4).error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_api_versions_shows_the_table(wire: Wire, version: int) -> None:
    rows = {row.api_key: row for row in wire.call(API_VERSIONS, version).api_keys}
    assert (rows[0].min_version, rows[0].max_version) == (0, 13)
    assert (rows[1].min_version, rows[1].max_version) == (4, 18)


@pytest.mark.parametrize("version", [0, 3])  # a non-flexible header, a flexible one
def test_a_client_may_name_itself_otherwise_with_every_request(wire: Wire, version: int) -> None:
    tags = b"" if version == 0 else b"\0"
    body = b"" if version == 0 else b"\x02a\x02b\0"
    for number, name in enumerate([b"one", b"one", b"two", b"", None, b"one", b"onetwo", b"on"]):
        size = -1 if name is None else len(name)
        header = struct.pack(">hhih", API_VERSIONS, version, number, size) + (name or b"")
        wire.send_frame(header + tags + body)
        assert struct.unpack(">i", wire.receive_frame()[:4]) == (number,)
    wire.send_frame(struct.pack(">hhi", API_VERSIONS, version, 8))
    assert wire.is_closed(), "a header that ends before the name is none"


def test_a_request_in_single_bytes_is_a_request(wire: Wire) -> None:
    whole = struct.pack(">i", 10) + struct.pack(">hhih", API_VERSIONS, 0, 3, -1)
    for byte in whole:
        wire.socket.sendall(bytes((byte,)))
    assert struct.unpack(">i", wire.receive_frame()[:4]) == (3,)


def test_responses_keep_the_order_of_requests_behind_a_waiting_fetch(
    broker: RunningBroker, wire: Wire, make_batch: Callable[..., bytearray]
) -> None:
    broker.create_topic("t")
    topics = [
        {
            "topic": "t",
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
        }
    ]
    wire.send(1, 11, max_wait=10_000, min_bytes=1, session_epoch=-1, topics=topics)
    wire.send(API_VERSIONS, 0)
    wire.send(API_VERSIONS, 2)
    wire.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        wire.receive_frame()
    wire.socket.settimeout(20)
    with broker.connect() as other:
        assert other.produce("t", make_batch()).error_code == 0
    assert len(wire.receive().responses[0].partitions[0].records) > 61
    assert wire.receive().error_code == 0
    assert wire.receive().error_code == 0


def test_thousands_of_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    count = 5000
    request = struct.pack(">hhi", API_VERSIONS, 0, 0)
    sent = b"".join(
        struct.pack(">i", 10) + request[:4] + struct.pack(">ih", number, -1)
        for number in range(count)
    )
    received: list[int] = []
    wire.socket.setblocking(False)
    position = 0
    unread = b""
    give_up_at = time.monotonic() + 60
    while len(received) < count and time.monotonic() < give_up_at:
        with contextlib.suppress(BlockingIOError):
            position += wire.socket.send(sent[position : position + 65536])
        try:
            unread += wire.socket.recv(1 << 20)
        except BlockingIOError:
            continue
        while len(unread) >= 4 and len(unread) >= 4 + (size := struct.unpack_from(">i", unread)[0]):
            received += struct.unpack_from(">i", unread, 4)
            unread = unread[4 + size :]
    assert received == list(range(count))


def test_an_incomplete_request_is_closed_in_time(start_broker: StartBroker) -> None:
    broker = start_broker(penstock_request_timeout_ms="200")
    with broker.connect() as wire:
        wire.socket.sendall(struct.pack(">i", 100) + b"\x00\x12")
        assert wire.is_closed()
    assert is_serving(broker)


def test_an_idle_connection_is_closed_without_logging_and_a_waiting_fetch_is_not_idle(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(connections_max_idle_ms="300")
    broker.create_topic("t")
    with broker.connect() as idle, broker.connect() as waiting:
        topics = [
            {
                "topic": "t",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
            }
        ]
        waiting.send(1, 11, max_wait=2500, min_bytes=1, session_epoch=-1, topics=topics)
        assert idle.is_closed()
        assert waiting.receive().responses[0].partitions[0].error_code == 0
    assert "closing" not in caplog.text


def test_connections_beyond_the_limit_are_closed_immediately(start_broker: StartBroker) -> None:
    broker = start_broker(max_connections="3")
    wires = [broker.connect() for _ in range(3)]
    for wire in wires:
        assert wire.call(API_VERSIONS, 0).error_code == 0
    with broker.connect() as late:
        assert late.is_closed()
    for wire in wires:
        wire.close()
    give_up_at = time.monotonic() + 10
    while broker.call(lambda: len(broker.server.connections)):
        assert time.monotonic() < give_up_at
    assert is_serving(broker)


def test_one_host_cannot_take_all_connections(start_broker: StartBroker) -> None:
    broker = start_broker(max_connections_per_ip="2")
    wires = [broker.connect() for _ in range(2)]
    for wire in wires:
        assert wire.call(API_VERSIONS, 0).error_code == 0
    with broker.connect() as late:
        assert late.is_closed()
    for wire in wires:
        wire.close()


def test_a_client_that_never_reads_stops_being_read(broker: RunningBroker) -> None:
    request = struct.pack(">i", 10) + struct.pack(">hhih", API_VERSIONS, 0, 1, -1)
    with connect_small(broker.port) as connected:
        connected.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connected.sendall(request * 5_000_000)
    assert is_serving(broker)


def test_a_thousand_clients_that_never_read_cost_little_memory(
    start_broker: StartBroker, make_batch: Callable[..., bytearray]
) -> None:
    """Each requests 50 MB of records and half a megabyte of small responses, ten times.

    The broker's own memory grows by less than 100 kB for each; what the kernel maps of the log on
    their behalf is the same pages of the cache for all.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    count = 1000
    requests = b"".join(big_fetch(number) for number in range(10)) + b"".join(
        struct.pack(">i", 10) + struct.pack(">hhih", API_VERSIONS, 0, number, -1)
        for number in range(2000)
    )
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        broker = start_broker()
        broker.create_topic("t", max_message_bytes=str(4 << 20))
        with broker.connect() as wire:
            for _ in range(20):
                assert wire.produce("t", make_batch((None, os.urandom(3 << 20)))).error_code == 0
        before = own_memory_bytes()
        for _ in range(count):
            one = stack.enter_context(connect_small(broker.port))
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.sendall(requests)
        assert is_serving(broker)
        assert own_memory_bytes() - before < count * 100_000


def own_memory_bytes() -> int:
    """Of this process, without the pages of files it maps."""
    status = Path("/proc/self/status").read_text()
    (row,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(row.split()[1]) * 1024


def connect_small(port: int) -> socket.socket:
    """A client with a small receive buffer."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connected.connect(("127.0.0.1", port))
    return connected


def big_fetch(correlation_id: int) -> bytes:
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", 1)
    partition = struct.pack(">iqi", 0, 0, 50 << 20)
    body = struct.pack(">iiiib", -1, 0, 1, 50 << 20, 0) + struct.pack(">i", 1) + topic + partition
    content = struct.pack(">hhih", 1, 4, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


def test_a_stop_responds_to_what_waits_and_leaves_clean_logs(
    start_broker: StartBroker, make_batch: Callable[..., bytearray]
) -> None:
    broker = start_broker()
    broker.create_topic("t")
    with broker.connect() as wire:
        topics = [
            {
                "topic": "t",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
            }
        ]
        wire.send(1, 11, max_wait=60_000, min_bytes=1, session_epoch=-1, topics=topics)
        while not broker.call(lambda: broker.partitions.find("t", 0).polls):  # type: ignore[union-attr]  # it was made above
            time.sleep(0.01)
        broker.stop()
        assert wire.receive().responses[0].partitions[0].error_code == 0
        assert wire.is_closed()
