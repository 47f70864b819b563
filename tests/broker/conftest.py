"""A real broker in a thread on loopback, and a raw connection to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest
import uvloop

from penstock.broker.handler import result_of
from penstock.broker.new_topics import create_internal, new_topic_id
from penstock.broker.quotas import QuotaEntity, Rates
from penstock.coordination.controller.commands import CreateTopics, NewTopic
from penstock.errors import Refused
from penstock.node import run_broker as node
from penstock.node.data_folder import open_folder
from penstock.node.settings import NodeSettings, node_settings
from tests.support.wire import Wire, batch

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.broker.quotas import QuotaEntity, Rates

ResultT = TypeVar("ResultT")


class RunningBroker:
    """One broker, composed as a node composes it, on its own event loop in a thread."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.port = 0
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> RunningBroker:
        self._thread.start()
        assert self._ready.wait(20)
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(20)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed
        assert not self.server.connections, "the broker stopped and left connections open"

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run something on the broker's own event loop."""

        async def on_loop() -> ResultT:
            return work()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(20)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; configuration keys have underscores for dots."""
        overrides = tuple((key.replace("_", "."), value) for key, value in config.items())

        async def ask() -> list[object]:
            topic = NewTopic(name, new_topic_id(), partitions, 1, (), overrides)
            created = await result_of(
                self.broker.controller.submit(lambda caller: CreateTopics(caller, (topic,)))
            )
            assert isinstance(created, list)
            return created

        (created,) = asyncio.run_coroutine_threadsafe(ask(), self.loop).result(20)
        if isinstance(created, Refused):
            raise created

    def create_internal_topic(self, name: str) -> None:
        """Create `__transaction_state` or `__consumer_offsets`, as the first use of it does."""

        async def ask() -> object:
            return await result_of(create_internal(self.broker, name))

        refusal = asyncio.run_coroutine_threadsafe(ask(), self.loop).result(20)
        assert refusal is None

    def topic_id(self, name: str) -> bytes:
        topic = self.call(lambda: self.cluster.topic(name))
        assert topic is not None
        return topic.topic_id.bytes

    def replace_quotas(self, rates: dict[QuotaEntity, Rates]) -> None:
        self.call(lambda: self.broker.quotas.replace(rates))

    def connect(self) -> Wire:
        return Wire(self.port)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001 - raised again by start and stop
                self._failed = error
                self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        running = node.RunningBroker(self.settings, *open_folder(self.settings))
        self.broker, self.server = running.broker, running.server
        self.partitions, self.cluster = running.partitions, running.image
        self.port = await running.start()
        self._ready.set()
        await self._stopping.wait()
        await running.stop()


StartBroker = Callable[..., RunningBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers with given settings; all are stopped at the end."""
    started: list[RunningBroker] = []

    def start(**static: str) -> RunningBroker:
        """Keys of the broker's settings have underscores for dots."""
        settings = node_settings(
            folder=tmp_path,
            kafka_port=0,
            given={key.replace("_", "."): value for key, value in static.items()},
            quick=True,
        )
        broker = RunningBroker(settings).start()
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    """A broker with default settings."""
    return start_broker()


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    """A raw connection to the default broker."""
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def make_batch() -> Callable[..., bytearray]:
    """Build a batch as a producer would."""
    return batch
