"""What metrics cost a broker: CPU time of a one-message produce with metrics, and without.

A client in a process of its own sends one request at a time to a broker with 10 000 partitions.
Rounds with and without metrics take turns, so that what else happens on the machine affects both.
With metrics, the broker counts, watches its event loop and is scraped over HTTP; without, the same
functions run, compiled without the lines that count, and nothing scrapes. The figures are medians
of the rounds. A second is one of the broker's CPU time, as on a core that it uses fully: so what
other programs take of the machine changes neither the share of a scrape nor its longest turn.
"""

import asyncio
import inspect
import multiprocessing
import shutil
import socket
import struct
import tempfile
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import uvloop

from bench.figures import LIMIT, Figure, report
from bench.produce_path import TOPIC, a_batch, create_topic, produce_frame
from penstock.broker.client_connection import ClientConnection
from penstock.broker.dispatch import Dispatcher
from penstock.broker.partition import Partition
from penstock.metrics.responder import TURN_S
from penstock.node.broker_monitor import BrokerMonitor
from penstock.node.data_folder import open_folder
from penstock.node.run_broker import RunningBroker
from penstock.node.settings import node_settings

PARTITIONS = 10_000
TOPICS = 40
PAIRS = 20
ROUND_S = 1.0  # of CPU time, with one scrape
WARM_REQUESTS = 10_000  # they open files and fill caches
TURN_MAX_S = 0.005


def without(function: Callable[..., Any], *counting: tuple[str, str]) -> Callable[..., Any]:
    """The function with each of these lines replaced by what is left without counting."""
    source = textwrap.dedent(inspect.getsource(function))
    for line, rest in counting:
        assert source.count(line) == 1, f"{function.__qualname__} has no line {line!r}"
        source = source.replace(line, rest)
    names: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", "silent", "exec")
    exec(code, function.__globals__, names)
    silent: Callable[..., Any] = names[function.__name__]
    return silent


SILENT_HANDLE_FRAMES = without(
    ClientConnection._handle_frames,  # noqa: SLF001 - a copy of it is measured
    ("began_s, seconds = now_s, self._start(frame)\n", "self._start(frame)\n"),
    ("            spent_s = now_s - began_s\n", ""),
    ("            seconds.counts[bisect_left(SECONDS, spent_s)] += 1\n", ""),
    ("            seconds.total += spent_s\n", ""),
)
SILENT_ENCODE = without(
    Dispatcher.encode,
    ("    if errors := context.counts.read_errors(response):\n", ""),
    ("        self.counts.note_errors(context.message.api, errors)\n", ""),
)
SILENT_APPEND = without(
    Partition.append, ("        self.counts.note_batch(len(batch), header.record_count)\n", "")
)


def send_and_scrape(port: int, url: str, is_due: Event, ends: Event) -> None:
    """The client: one request at a time, and a scrape whenever one is due."""

    def scrape() -> None:
        while not ends.is_set():
            if is_due.wait(0.2):
                is_due.clear()
                with urllib.request.urlopen(url, timeout=30) as response:
                    response.read()

    scraper = threading.Thread(target=scrape)
    scraper.start()
    request = produce_frame(a_batch(1, 100))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while not ends.is_set():
            for _ in range(100):
                connection.sendall(request)
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                connection.recv(size, socket.MSG_WAITALL)
    scraper.join()


async def round_us(running: RunningBroker) -> float:
    """CPU time of one request, in one round."""
    log = running.partitions.topics[TOPIC].partitions[0].log
    offset, before = log.end_offset, time.process_time()
    while time.process_time() < before + ROUND_S:  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(0.05)
    return (time.process_time() - before) / (log.end_offset - offset) * 1e6


async def compare(
    running: RunningBroker, monitor: BrokerMonitor, is_due: Event
) -> tuple[float, float]:
    """The median rounds with metrics, and without."""
    watch = monitor._watch  # noqa: SLF001 - it belongs to what is switched off
    with_metrics, without_metrics = [], []
    log = running.partitions.topics[TOPIC].partitions[0].log
    while log.end_offset < WARM_REQUESTS:  # noqa: ASYNC110 - nothing reports them
        await asyncio.sleep(0.1)
    for _ in range(PAIRS):
        watch.start()
        is_due.set()
        with_metrics.append(await round_us(running))
        watch.stop()
        with (
            patch.object(ClientConnection, "_handle_frames", SILENT_HANDLE_FRAMES),
            patch.object(Dispatcher, "encode", SILENT_ENCODE),
            patch.object(Partition, "append", SILENT_APPEND),
        ):
            without_metrics.append(await round_us(running))
    return median(with_metrics), median(without_metrics)


async def measure_all(folder: Path) -> list[Figure]:
    monitor = BrokerMonitor(node_settings(folder=folder, kafka_port=0, quick=True))
    settings = await monitor.start()
    running = RunningBroker(settings, *open_folder(settings))
    processes = multiprocessing.get_context("spawn")
    is_due, ends = processes.Event(), processes.Event()
    try:
        port = await running.start()
        monitor.attach(running)
        await create_topic(running, TOPIC, 1)
        for number in range(TOPICS):
            await create_topic(running, f"many-{number}", PARTITIONS // TOPICS)
        arguments = port, monitor.url, is_due, ends
        client = processes.Process(target=send_and_scrape, args=arguments)
        with ExitStack() as stack:
            stack.enter_context(patch("penstock.metrics.responder.perf_counter", time.thread_time))
            client.start()
            stack.callback(ends.set)
            ours, peer = await compare(running, monitor, is_due)
        await asyncio.to_thread(client.join)
    finally:
        await monitor.close()
        await running.stop()
    turn_s = monitor._responder.turn_max_s  # noqa: SLF001 - it is not a metric
    return [
        Figure("produce 1 message of 100 B, scraped every second", ours, peer, "us CPU", "<= 1.02"),
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
    report(measure(), __doc__, peer="without metrics")
