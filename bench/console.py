"""What open pages of the console cost the HTTP process, and what they cost other clients.

Tails: pages with a live tail of one topic, 50 records per second; CPU and memory of the process for
each page, beside none. Registry: the latency of a client that reads schemas with 10 open tails,
beside the same client without, in one run. Reads: a page of 100 records at any offset of a million,
and the list of 1 000 topics.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from websockets.sync.client import ClientConnection, connect

from bench.figures import LIMIT, Figure, report
from bench.peers import cost_of, resident_bytes
from bench.registry import node
from penstock.testing.embedded import EmbeddedBroker

TAILS = 10
SECONDS = 10.0
RATE = 50
REQUESTS = 2_000
RECORDS = 1_000_000
TOPICS = 1_000
READS = 50
PAGE_MS = 300.0  # any offset
LIST_MS = 1_000.0  # rows in sight
RATIO = "<= 1.2"
MIB = 1 << 20


def measure() -> Iterator[Figure]:
    """One broker, one HTTP process."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("tailed", 1, 1)])["tailed"].result(30)
        with httpx.Client(base_url=url, timeout=30) as http:
            schema = http.post("/subjects/s/versions", json={"schema": '"string"'}).json()["id"]
            with writing(broker.bootstrap):
                yield from tails(url, pid, schema)
            yield from pages(broker.bootstrap, http)
            yield from lists(admin, http)


@contextlib.contextmanager
def writing(bootstrap: str) -> Iterator[None]:
    """Write `RATE` records per second until the end."""
    is_over = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        while not is_over.wait(0.1):
            for _ in range(RATE // 10):
                producer.produce("tailed", key=b"k", value=b'{"cents": 1250, "city": "berlin"}')
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
            socket.send(json.dumps({"subscribe": "tail", "topics": ["tailed"]}))
            threading.Thread(target=_drain, args=(socket,), daemon=True).start()
        time.sleep(2)
        yield


def _drain(socket: ClientConnection) -> None:
    for _ in socket:
        pass


def tails(url: str, pid: int, schema: int) -> Iterator[Figure]:
    """CPU and memory for each page, and the registry's latency beside them."""
    alone_ms = latency_ms(url, schema)
    with cost_of(pid) as idle:
        time.sleep(SECONDS)
    before = resident_bytes(pid)
    with open_tails(url, TAILS):
        with cost_of(pid) as busy:
            time.sleep(SECONDS)
        tailed_ms = latency_ms(url, schema)
    cpu_ms = (busy.cpu_seconds - idle.cpu_seconds) * 1000 / SECONDS / TAILS
    yield Figure(f"CPU per open tail, {TAILS} open", cpu_ms, None, "ms/s")
    grown = max(0, busy.resident_bytes - before) / TAILS / MIB
    yield Figure(f"memory per open tail, {TAILS} open", grown, None, "MiB")
    yield Figure(
        f"registry p99 with {TAILS} open tails", tailed_ms, alone_ms, "ms", RATIO,
        peer_name="without tails",
    )  # fmt: skip


def latency_ms(url: str, schema: int) -> float:
    """The p99 of a client that reads a schema, without the cache below ASGI."""
    times = []
    with httpx.Client(base_url=url) as http:
        for number in range(REQUESTS):
            began_s = time.perf_counter()
            http.get(f"/schemas/ids/{schema}", headers={"X-Number": str(number)})
            times.append(time.perf_counter() - began_s)
    return float(np.percentile(times, 99)) * 1000


def pages(bootstrap: str, http: httpx.Client) -> Iterator[Figure]:
    """A page of records at random offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce("million", key=b"%d" % number, value=b'{"n": %d}' % number)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)
    random = np.random.default_rng(1)
    times = []
    for offset in random.integers(0, RECORDS - 100, READS).tolist():
        began_s = time.perf_counter()
        body = {"partitions": [0], "from": {"offset": str(offset)}, "limit": 100}
        records = http.post("/topics/million/search", json=body).json()["records"]
        assert records[0]["offset"] == str(offset)
        times.append((time.perf_counter() - began_s) * 1000)
    worst = max(times)
    yield Figure(
        f"100 records at any offset of {RECORDS:,}, slowest of {READS}", worst, PAGE_MS, "ms",
        "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip


def lists(admin: AdminClient, http: httpx.Client) -> Iterator[Figure]:
    """The list of topics, from a sample that is there."""
    created = admin.create_topics([NewTopic(f"t{number}", 1, 1) for number in range(TOPICS)])
    for topic in created.values():
        topic.result(60)
    while len(http.get("/console/api/topics").json()["rows"]) < TOPICS:
        time.sleep(1)
    times = []
    for _ in range(READS):
        began_s = time.perf_counter()
        http.get("/console/api/topics")
        times.append((time.perf_counter() - began_s) * 1000)
    slowest = float(np.percentile(times, 95))
    yield Figure(
        f"list of {TOPICS:,} topics, p95", slowest, LIST_MS, "ms", "<= 1.0", peer_name=LIMIT
    )


if __name__ == "__main__":
    report(measure(), __doc__, peer="none")
