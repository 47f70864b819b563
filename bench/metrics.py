"""What metrics cost a broker: CPU time of a one-message produce with metrics, and without.

Counting and not counting take turns in one process, so that what else happens on the machine
affects both; without, the same functions run, compiled without the lines that count. That is
without a socket. What a request costs over a connection is measured in a broker of its own, with
one request at a time. A scrape of 10 000 partitions is added at its share, as if the broker served
nothing but such requests and were scraped every second. A turn is measured in CPU time.
"""

import asyncio
import inspect
import shutil
import socket
import struct
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import uvloop
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic as KafkaTopic

from bench.figures import LIMIT, Figure, report
from bench.produce_path import TOPIC, a_batch, create_topic, produce_frame, start_broker
from penstock.broker.client_connection import ClientConnection
from penstock.broker.dispatch import Dispatcher
from penstock.broker.metrics import BrokerMetrics, MeasuredParts
from penstock.broker.partition import Partition
from penstock.metrics.responder import TURN_S
from penstock.metrics.text_format import write_families
from penstock.node.run_broker import RunningBroker
from penstock.testing.embedded import EmbeddedBroker
from tests.support.socketless import SocketlessConnection

PARTITIONS = 10_000
ROUNDS = 40
REQUESTS = 1000
PER_READ = 1
SCRAPES = 5
CONNECTED_REQUESTS = 20_000
TURN_MAX_S = 0.005


def without(function: Callable[..., Any], *counting: str) -> Callable[..., Any]:
    """The function as it is without these lines."""
    source = textwrap.dedent(inspect.getsource(function))
    for line in counting:
        assert source.count(line) == 1, line
        source = source.replace(line, "")
    names: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", "silent", "exec")
    exec(code, function.__globals__, names)
    silent: Callable[..., Any] = names[function.__name__]
    return silent


SILENT_HANDLE_FRAMES = without(
    ClientConnection._handle_frames,  # noqa: SLF001 - a copy of it is measured
    "            seconds, spent_s = self._counts.by_api[api].seconds, now_s - began_s\n",
    "            seconds.counts[bisect_left(SECONDS, spent_s)] += 1\n",
    "            seconds.total += spent_s\n",
)
SILENT_ENCODE = without(
    Dispatcher.encode,
    "    api = context.message.api\n",
    "    if errors := self.counts.by_api[api].read_errors(response):\n",
    "        self.counts.note_errors(api, errors)\n",
)
SILENT_APPEND = without(
    Partition.append, "        self.counts.note_batch(len(batch), header.record_count)\n"
)


async def produce_us(line: SocketlessConnection, arriving: bytes) -> float:
    """CPU time of one request, in one round."""
    before = time.process_time()
    for _ in range(REQUESTS // PER_READ):
        line.receive(arriving)
        await line.drain()
    return (time.process_time() - before) / REQUESTS * 1e6


async def compare_produce(running: RunningBroker) -> tuple[float, float]:
    """With and without counting: the best round of each."""
    line = SocketlessConnection(running.server)
    arriving = produce_frame(a_batch(1, 100)) * PER_READ
    counting, silent = [], []
    for _ in range(ROUNDS):
        counting.append(await produce_us(line, arriving))
        with (
            patch.object(ClientConnection, "_handle_frames", SILENT_HANDLE_FRAMES),
            patch.object(Dispatcher, "encode", SILENT_ENCODE),
            patch.object(Partition, "append", SILENT_APPEND),
        ):
            silent.append(await produce_us(line, arriving))
    return min(counting), min(silent)


async def scrape(running: RunningBroker) -> tuple[float, float]:
    """CPU seconds of a scrape on average, and of the longest turn of all."""
    parts = MeasuredParts(running.broker, running.server, running.flusher, str(running.folder.path))
    metrics = BrokerMetrics(parts)
    spent_s, longest_s = 0.0, 0.0
    for _ in range(SCRAPES):
        began_s = time.process_time()
        for _piece in write_families(metrics.families()):
            turn_s = time.process_time() - began_s
            if turn_s > TURN_S:
                longest_s, spent_s = max(longest_s, turn_s), spent_s + turn_s
                await asyncio.sleep(0)
                began_s = time.process_time()
        spent_s += time.process_time() - began_s
        await asyncio.sleep(1)  # every second; a survey of all partitions is due less often
    return spent_s / SCRAPES, longest_s


def connected_us() -> float:
    """CPU time of the broker for one request over a connection."""
    with EmbeddedBroker() as broker:
        host, _, port = broker.bootstrap.partition(":")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([KafkaTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        request = produce_frame(a_batch(1, 100))
        process = psutil.Process(broker.pid)
        with socket.create_connection((host, int(port))) as connection:
            for _ in range(REQUESTS):
                _exchange(connection, request)
            before = process.cpu_times()
            for _ in range(CONNECTED_REQUESTS):
                _exchange(connection, request)
            after = process.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    return float(spent_s) / CONNECTED_REQUESTS * 1e6


def _exchange(connection: socket.socket, request: bytes) -> None:
    connection.sendall(request)
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    connection.recv(size, socket.MSG_WAITALL)


async def measure_all(folder: Path) -> list[Figure]:
    running = await start_broker(folder)
    try:
        await create_topic(running, TOPIC, 1)
        for number in range(10):
            await create_topic(running, f"many-{number}", PARTITIONS // 10)
        counting, silent = await compare_produce(running)
        scrape_s, turn_s = await scrape(running)
    finally:
        await running.stop()
    connected = await asyncio.to_thread(connected_us)
    counted_us = counting - silent
    scraped = connected / (1 - scrape_s)  # what is left of a second for requests
    name = "produce 1 message of 100 B"
    peer = connected - counted_us
    return [
        Figure(f"{name}, without a socket", counting, silent, "us CPU"),
        Figure(f"{name}, one at a time", connected, peer, "us CPU", "<= 1.02"),
        Figure(f"{name}, scraped every second", scraped, peer, "us CPU", "<= 1.02"),
        Figure("longest turn of a scrape of 10 000 partitions", turn_s * 1e3, TURN_MAX_S * 1e3,
               "ms", "<= 1", f"gives the loop back every {TURN_S * 1e3:g} ms", LIMIT),
    ]  # fmt: skip


def measure() -> Iterator[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            yield from runner.run(measure_all(folder))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    report(measure(), __doc__, peer="without counting")
