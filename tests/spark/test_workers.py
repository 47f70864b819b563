"""Tasks and rows are acknowledged when they arrive."""

import pickle
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.link.transactions import TransactionHandle
from penstock.model import ProducerEpoch, ProducerId
from penstock.spark.source import batch_reader, read_schema, stream_reader
from penstock.spark.workers import acknowledge_all, acknowledged
from penstock.spark.write_task import WriteTarget

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has quick acknowledgements"
)


@pytest.fixture
def sender() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a TCP connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as near,
        closing(server.accept()[0]) as far,
    ):
        yield near, far


def test_only_tcp_connections_are_acknowledged(
    sender: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    near, far = sender
    here, there = socket.socketpair()
    with here, there, (tmp_path / "file").open("w") as file:
        descriptors = set(acknowledge_all())
        assert {near.fileno(), far.fileno()} <= descriptors
        assert not {here.fileno(), there.fileno(), file.fileno()} & descriptors


def test_connections_stay_open_and_items_pass_unchanged(
    sender: tuple[socket.socket, socket.socket],
) -> None:
    near, far = sender
    assert list(acknowledged(iter(["one", "two"]))) == ["one", "two"]
    near.sendall(b"still here")
    assert far.recv(100) == b"still here"


def test_a_connection_that_is_closed_meanwhile_is_no_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())

        def arriving() -> Iterator[int]:
            yield 1
            near.close()
            yield 2

        assert list(acknowledged(arriving())) == [1, 2]


def _work() -> list[object]:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "orders"}
    handle = TransactionHandle("sink", ProducerId(1), ProducerEpoch(0))
    return [
        stream_reader(options, read_schema(options)),
        batch_reader(options, read_schema(options)),
        WriteTarget({}, handle),
    ]


@pytest.mark.parametrize("work", _work(), ids=lambda work: type(work).__name__)
def test_work_is_acknowledged_before_it_starts(
    sender: tuple[socket.socket, socket.socket], work: object
) -> None:
    _, far = sender
    sent = pickle.dumps(work)
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert not far.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    pickle.loads(sent)
    assert far.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
