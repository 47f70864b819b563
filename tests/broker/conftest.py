"""A real broker in a thread on loopback, and a raw connection to speak to it with."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, TypeVar

import pytest
import uvloop

from penstock.broker.quotas import QuotaEntity, Rates
from penstock.coordination.controller.commands import CreateTopics, NewTopic
from penstock.errors import Refused
from penstock.model import Millis
from penstock.node import run_broker as node
from penstock.node.run_broker import open_folder
from penstock.node.settings import NodeSettings, node_settings
from penstock.protocol.headers import response_has_tags, write_request_header
from penstock.protocol.messages import encode, fill, request_type, response_reader
from penstock.protocol.records import KeyValue, Record, build_batch

SIZE = Struct(">i")
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

    def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Run something on the broker's own event loop."""

        async def on_loop() -> ResultT:
            return work()

        return asyncio.run_coroutine_threadsafe(on_loop(), self.loop).result(20)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; configuration keys have underscores for dots."""
        overrides = tuple((key.replace("_", "."), value) for key, value in config.items())

        async def ask() -> list[object]:
            wanted = NewTopic(name, self.cluster.mint_topic_id(), partitions, 1, (), overrides)
            made = await self.cluster.submit(lambda caller: CreateTopics(caller, (wanted,)))
            assert isinstance(made, list)
            return made

        (made,) = asyncio.run_coroutine_threadsafe(ask(), self.loop).result(20)
        if isinstance(made, Refused):
            raise made

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
        folder, cluster_id = open_folder(self.settings)
        running = node.RunningBroker(self.settings, folder, cluster_id)
        self.broker, self.server = running.broker, running.server
        self.partitions, self.cluster = running.partitions, running.cluster
        self.port = await running.start()
        self._ready.set()
        await self._stopping.wait()
        await running.stop()


def _clock() -> Millis:
    return Millis(int(time.time() * 1000))


class Wire:
    """A raw connection: requests by key and version, responses as kio reads them."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: list[tuple[int, int]] = []

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(
        self,
        api_key: int,
        version: int,
        *,
        client_id: str | None = "wire",
        answered: bool = True,
        **fields: Any,
    ) -> None:
        self.socket.sendall(
            frame(len(self._asked), api_key, version, client_id=client_id, **fields)
        )
        if answered:
            self._asked.append((api_key, version))

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        self.send(api_key, version, **fields)
        return self.receive()

    def receive(self) -> Any:
        """The next response; it must be to the oldest request without one."""
        body = self.receive_frame()
        api_key, version = self._asked.pop(0)
        start = 4 + response_has_tags(api_key, version)
        entity, _ = response_reader(api_key, version)(body, start)
        return entity

    def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(self._take(4))
        return self._take(size)

    def send_frame(self, content: bytes) -> None:
        """Any bytes, framed."""
        self.socket.sendall(SIZE.pack(len(content)) + content)

    def is_closed(self) -> bool:
        """Whether the broker has ended the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            chunk = self.socket.recv(size - len(taken))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            taken += chunk
        return bytes(taken)

    def produce(
        self,
        topic: str,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = 9,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Any:
        """Send one batch; what became of it, or None without acks."""
        self.send(
            0,
            version,
            answered=acks != 0,
            transactional_id=transactional_id,
            acks=acks,
            timeout=5000,
            topic_data=[
                {
                    "name": topic,
                    "partition_data": [
                        {
                            "index": partition,
                            "records": None if records is None else bytes(records),
                        }
                    ],
                }
            ],
        )
        if acks == 0:
            return None
        return self.receive().responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, version: int = 12, **fields: Any) -> Any:
        """Fetch from partition 0, outside a session; the partition's answer."""
        asked = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_epoch": -1,
            "partition_max_bytes": 1 << 20,
            **fields,
        }
        per_partition = {
            name: asked.pop(name)
            for name in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
            if name in asked
        }
        answer = self.ask(
            1,
            version,
            topics=[
                {
                    "topic": topic,
                    "partitions": [{"partition": 0, "fetch_offset": offset, **per_partition}],
                }
            ],
            **asked,
        )
        return answer.responses[0].partitions[0]


def frame(
    correlation_id: int,
    api_key: int,
    version: int,
    *,
    client_id: str | None = "wire",
    **fields: Any,
) -> bytes:
    """A whole request frame."""
    body = encode(fill(request_type(api_key, version), **fields))
    header = write_request_header(
        api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return SIZE.pack(len(header) + len(body)) + header + body


def batch(*records: Record | KeyValue, **fields: Any) -> bytearray:
    """A batch of records stamped with the present, unless the fields say otherwise."""
    return build_batch(records or [(b"k", b"v")], **{"timestamp": _clock(), **fields})


StartBroker = Callable[..., RunningBroker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers with settings of one's own; all are stopped at the end."""
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
