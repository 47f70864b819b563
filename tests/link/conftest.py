"""Brokers to connect to, Penstock and Apache Kafka, and both shells behind one interface."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import pytest

from penstock.link import aio, blocking
from penstock.link.settings import LinkSettings, read_bootstrap
from penstock.model import Millis, SequenceNumber
from penstock.protocol.messages.topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreateTopicsRequest,
    NewTopicConfig,
)
from penstock.protocol.records import build_batch
from penstock.testing.embedded import EmbeddedBroker
from tests.support.apache_kafka import ApacheKafka, PeerUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.link.routing import Operation, Routes, StreamOperation

T = TypeVar("T")
SETTINGS = LinkSettings(client_id="test", unknown_retry_ms=1_000, retry_timeout_ms=30_000)


class Server(Protocol):
    """A broker of either kind."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> Any: ...


class Shell(Protocol):
    """A cluster of either shell, without await."""

    @property
    def routes(self) -> Routes: ...

    def run(self, operation: Operation[T]) -> T: ...
    def stream(self, operation: StreamOperation[T]) -> Iterator[T]: ...
    def close(self) -> None: ...


class AioShell:
    """The asyncio cluster on a loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._runner = asyncio.Runner()
        self._cluster = aio.AsyncCluster(bootstrap, SETTINGS)
        self.routes = self._cluster.routes

    def run(self, operation: Operation[T]) -> T:
        return self._runner.run(self._cluster.run(operation))

    def stream(self, operation: StreamOperation[T]) -> Iterator[T]:
        items = self._cluster.stream(operation)
        while True:
            try:
                yield self._runner.run(anext(items))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        self._runner.run(self._cluster.close())
        self._runner.close()


MakeTopic: TypeAlias = Callable[..., str]


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    folder: Path = tmp_path_factory.mktemp("apache-kafka")
    try:
        peer = ApacheKafka(heap="512m", folder=folder)
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    with peer as running:
        yield running


KINDS = [
    "penstock",
    pytest.param("apache", marks=[pytest.mark.slow, pytest.mark.interop]),
]


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest) -> Server:
    """A broker that all tests share: do not stop it."""
    name = "broker" if request.param == "penstock" else "apache_kafka"
    running: Server = request.getfixturevalue(name)
    return running


@pytest.fixture(params=["blocking", "aio"])
def shell(server: Server, request: pytest.FixtureRequest) -> Iterator[Shell]:
    cluster: Shell
    if request.param == "aio":
        cluster = AioShell(server.bootstrap)
    else:
        cluster = blocking.BlockingCluster(server.bootstrap, SETTINGS)
    yield cluster
    cluster.close()


_numbers = itertools.count()


def create_topic(bootstrap: str, name: str, partitions: int = 1, **config: str) -> None:
    """Configuration keys have underscores for dots."""
    link = blocking.BlockingLink.connect(read_bootstrap(bootstrap)[0], SETTINGS)
    try:
        configs = [NewTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
        topic = CreatableTopic(name, partitions, 1, configs=configs)
        response = link.call(CREATE_TOPICS, CreateTopicsRequest([topic], 10_000))
        assert response.topics[0].error_code == 0, response
    finally:
        link.close()


@pytest.fixture
def make_topic(server: Server) -> MakeTopic:
    """A new topic for this test alone; its name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"link-{next(_numbers)}"
        create_topic(server.bootstrap, name, partitions, **config)
        return name

    return make


@pytest.fixture
def transactional_batch() -> Callable[..., bytes]:
    """A batch of values as a transaction's writer makes it: handle, first sequence, values."""

    def build(handle: Any, base_sequence: int, *values: bytes) -> bytes:
        return bytes(
            build_batch(
                [(None, value) for value in values],
                producer_id=handle.producer_id,
                producer_epoch=handle.producer_epoch,
                base_sequence=SequenceNumber(base_sequence),
                transactional=handle.transactional_id is not None,
                # A partition soon removes a producer whose records are old.
                timestamp=Millis(int(time.time() * 1000)),
            )
        )

    return build
