"""The metrics port of a broker: its health while it starts and serves, and caps of its series."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own exports, undeclared
    ConfigResource,
)

from penstock.metrics import broker_rows as rows
from penstock.node import run_broker
from penstock.node.broker_monitor import LISTENER_KEY, BrokerMonitor
from penstock.node.data_folder import open_folder
from penstock.node.metadata_folder import recover_logs
from penstock.node.run_broker import RunningBroker
from penstock.node.settings import node_settings
from penstock.testing.embedded import EmbeddedBroker
from penstock.testing.embedded_cluster import EmbeddedCluster


class Monitored:
    """A broker of this process, its monitor, and an HTTP client."""

    def __init__(self, monitor: BrokerMonitor, running: RunningBroker) -> None:
        self.monitor, self.running = monitor, running
        self.bootstrap = ""
        self._client = httpx.AsyncClient(base_url=monitor.url.removesuffix("/metrics"))

    async def start(self) -> None:
        self.bootstrap = f"127.0.0.1:{await self.running.start()}"
        self.monitor.attach(self.running)

    async def status(self, path: str) -> int:
        return (await self._client.get(path)).status_code

    async def values(self, name: str) -> list[int]:
        """Of all series of a metric."""
        text = (await self._client.get("/metrics")).text
        found = re.findall(rf"^penstock_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return [int(float(value)) for value in found]

    async def close(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def monitored(folder: Path) -> AsyncIterator[Monitored]:
    monitor = BrokerMonitor(node_settings(folder=folder, kafka_port=0, quick=True))
    settings = await monitor.start()
    running = RunningBroker(settings, *open_folder(settings))
    broker = Monitored(monitor, running)
    try:
        yield broker
    finally:
        await broker.close()
        await running.stop()
        await monitor.close()


async def wait_for(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)


def produce(bootstrap: str, *topics: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in topics:
        producer.produce(topic, b"v", key=b"k")
    assert producer.flush(20) == 0


def test_a_broker_that_recovers_is_alive_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(tmp_path) as killed:
        produce(killed.bootstrap, "t")
        killed.kill()

    async def check() -> None:
        begins, may_end = asyncio.Event(), asyncio.Event()

        async def wait_and_recover(*arguments: object) -> None:
            begins.set()
            await may_end.wait()
            await recover_logs(*arguments)  # type: ignore[arg-type]  # as they came

        monkeypatch.setattr(run_broker, "recover_logs", wait_and_recover)
        async with monitored(tmp_path) as broker:
            start = asyncio.create_task(broker.start())
            await begins.wait()
            assert await broker.status("/health/live") == 200
            assert await broker.status("/health/ready") == 503
            may_end.set()
            await start
            assert await broker.status("/health/ready") == 200

    asyncio.run(check())


def test_a_broker_is_not_ready_while_it_is_fenced(tmp_path: Path) -> None:
    async def check() -> None:
        async with monitored(tmp_path) as broker:
            await broker.start()
            assert await broker.status("/health/ready") == 200

            async def has_status(status: int) -> bool:
                return await broker.status("/health/ready") == status

            broker.running.lifecycle.wants_fence = True
            await wait_for(lambda: has_status(503))
            assert await broker.status("/health/live") == 200
            broker.running.lifecycle.wants_fence = False
            await wait_for(lambda: has_status(200))

    asyncio.run(check())


@pytest.mark.slow
def test_a_broker_that_reaches_no_controller_is_not_ready() -> None:
    with EmbeddedCluster() as cluster:
        last, *others = sorted(cluster.brokers, key=lambda node: node == cluster.controller())
        broker = ConfigResource(ConfigResource.Type.BROKER, str(last))
        settings = cluster.admin.describe_configs([broker])[broker].result(20)
        base = str(settings[LISTENER_KEY].value).removesuffix("/metrics")

        def wait_status(status: int) -> None:
            deadline = time.monotonic() + 30
            while httpx.get(f"{base}/health/ready").status_code != status:
                assert time.monotonic() < deadline
                time.sleep(0.1)

        wait_status(200)
        for other in others:
            cluster.pause(other)
        wait_status(503)
        assert httpx.get(f"{base}/health/live").status_code == 200
        cluster.heal()
        wait_status(200)


def test_series_of_topics_are_capped_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "TOPICS_MAX", 2)

    async def check() -> None:
        async with monitored(tmp_path) as broker:
            await broker.start()
            await asyncio.to_thread(produce, broker.bootstrap, "a", "b", "c", "d", "e")
            assert await broker.values("broker_records_total") == [1, 1]
            assert len(await broker.values("log_size_bytes")) == 2
            assert await broker.values("broker_topics_not_shown") == [3]
            upkeep = broker.running.upkeep
            upkeep.dirty_ratios = {"a": 0.5, "b": 0.5, "c": 0.5}
            assert len(await broker.values("compaction_dirty_ratio")) == 2
            assert await broker.values("compaction_topics_not_shown") == [1]

    asyncio.run(check())


def test_series_of_groups_are_capped_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "GROUPS_MAX", 1)

    async def check() -> None:
        async with monitored(tmp_path) as broker:
            await broker.start()
            await asyncio.to_thread(produce, broker.bootstrap, "t")
            consumers = []
            for group in ("g1", "g2", "g3"):
                consumer = Consumer(
                    {
                        "bootstrap.servers": broker.bootstrap,
                        "group.id": group,
                        "auto.offset.reset": "earliest",
                    }
                )
                consumer.subscribe(["t"])
                consumers.append(consumer)
            for consumer in consumers:
                assert await asyncio.to_thread(consumer.poll, 20) is not None
            assert await broker.values("groups") == [3]
            assert await broker.values("group_members") == [1]
            assert await broker.values("groups_not_shown") == [2]
            for consumer in consumers:
                await asyncio.to_thread(consumer.close)

    asyncio.run(check())
