"""The console: starting the platform, what open pages cost, and how fast pages are.

Start: `penstock up` until it is ready. Pages: CPU and memory of the HTTP process for each page with
a live tail, beside none. Registry: the latency of a client that reads schemas while tails are
open, beside the same client without, in turns. Browser: pages with 10 000 topics and a
partition of 1 000 000 records in headless Chromium.
"""

import contextlib
import json
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from urllib.parse import urlsplit

import httpx
import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from websockets.sync.client import ClientConnection, connect

from bench.console_pages import page_figures
from bench.figures import LIMIT, Figure, report
from bench.peers import cost_of, resident_bytes
from bench.registry import node
from penstock.testing.embedded import EmbeddedBroker

STARTS = 5
START_S = 1.5
TAILED = "tailed"
TAILS = 10  # open while the registry is measured
PAGES = 50  # open while their cost is measured
SECONDS = 10.0
SETTLE_S = 2.0
RATE = 50  # records per second
ROUNDS = 4
REQUESTS = 2_000  # of a round
RATIO = "<= 1.2"
MIB = 1 << 20


def measure() -> Iterator[Figure]:
    """Start first, while the machine has nothing else to do."""
    yield start()
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TAILED, 1, 1)])[TAILED].result(30)
        with writing(broker.bootstrap):
            yield from open_pages(url, pid)
            yield registry(url)
        yield from page_figures(broker.bootstrap, url)


def start() -> Figure:
    """From the command to the line that says where the platform is."""
    options = ("--ephemeral", "--json", "--kafka-port", "0", "--http-port", "0")
    seconds = []
    for _ in range(STARTS):
        began_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", "up", *options], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            httpx.get(json.loads(process.stdout.readline())["http"]).raise_for_status()
            seconds.append(time.perf_counter() - began_s)
        finally:
            process.terminate()
            process.wait(40)
            process.stdout.close()
    median = statistics.median(seconds)
    return Figure("penstock up until ready", median, START_S, "s", "<= 1.0", peer_name=LIMIT)


@contextlib.contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """Write `RATE` records per second until the end."""
    is_over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        while not is_over.wait(0.1):
            for _ in range(RATE // 10):
                producer.produce(TAILED, key=b"k", value=b'{"cents": 1250, "city": "berlin"}')
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextlib.contextmanager
def open_tails(url: str, count: int) -> Iterator[None]:
    """Pages that read what they are sent."""
    address = f"ws://{urlsplit(url).netloc}/console/live"
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            socket = stack.enter_context(connect(address))
            socket.send(json.dumps({"subscribe": "tail", "topics": [TAILED]}))
            threading.Thread(target=_drain, args=(socket,), daemon=True).start()
        time.sleep(SETTLE_S)
        yield


def _drain(socket: ClientConnection) -> None:
    for _ in socket:
        pass


def open_pages(url: str, pid: int) -> Iterator[Figure]:
    """CPU and memory for each page."""
    with open_tails(url, 1):  # what the first page of a process loads is not the cost of a page
        time.sleep(SETTLE_S)
    with cost_of(pid) as idle:
        time.sleep(SECONDS)
    before = resident_bytes(pid)
    with open_tails(url, PAGES), cost_of(pid) as busy:
        time.sleep(SECONDS)
    cpu_ms = (busy.cpu_seconds - idle.cpu_seconds) * 1000 / SECONDS / PAGES
    yield Figure(f"CPU per open page, {PAGES} tails open", cpu_ms, None, "ms/s")
    grown = max(0, busy.resident_bytes - before) / PAGES / MIB
    yield Figure(f"memory per open page, {PAGES} tails open", grown, None, "MiB")


def registry(url: str) -> Figure:
    """The p99 of reads, without and with tails in turns; the client is a process of its own."""
    schema = httpx.post(f"{url}/subjects/s/versions", json={"schema": '"string"'}).json()["id"]
    alone: list[float] = []
    tailed: list[float] = []
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as client:
        client.submit(latencies_ms, url, schema).result()  # both are warm
        for _ in range(ROUNDS):
            alone += client.submit(latencies_ms, url, schema).result()
            with open_tails(url, TAILS):
                tailed += client.submit(latencies_ms, url, schema).result()
    with_tails, without = (float(np.percentile(each, 99)) for each in (tailed, alone))
    return Figure(
        f"registry p99 with {TAILS} open tails", with_tails, without, "ms", RATIO,
        peer_name="without tails", floor=without,
    )  # fmt: skip


def latencies_ms(url: str, schema: int) -> list[float]:
    """Reads of a schema, one after another."""
    times = []
    with httpx.Client(base_url=url) as http:
        for number in range(REQUESTS):
            began_s = time.perf_counter()
            http.get(f"/schemas/ids/{schema}", headers={"X-Number": str(number)})
            times.append((time.perf_counter() - began_s) * 1000)
    return times


if __name__ == "__main__":
    report(measure(), __doc__, peer="none")
