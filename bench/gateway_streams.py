"""Streams of the gateway beside confluent-kafka: fan-out, latency, and readers that do not read.

Fan-out: all streams are open, then events are produced; CPU is that of the HTTP process.
Stalled streams: of a topic of 1 GB, with the memory of the process and of the kernel, and how soon
they are served again. In flight is what the kernel reports for both ends of a connection.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from confluent_kafka import Consumer, Producer

from bench.figures import LIMIT, Figure, report
from bench.floor import bare_server, latency_limit_ms, run_load
from bench.peers import cost_of
from bench.registry import node
from penstock.testing.embedded import EmbeddedBroker

FANS = ((1, 50_000), (100, 5_000), (1_000, 1_000))  # streams, events
RATE = 1_000
LATENCY_EVENTS = 10_000
LATENCY_STREAMS = 100
EVENT_BYTES = 100  # with its frame, approximately
LIMIT_MS = 20.0
SWITCH_MS = 100.0  # to stop sending, and to go on
STALLED = 200
RESUMED = 50
STOPPED = 20
RECEIVE_BYTES = 64 << 10  # of a client's kernel, so that it is full soon
IN_FLIGHT_BYTES = (256 << 10) + (64 << 10)  # the bound of a stream, and a chunk
STALL_TOPIC_BYTES = 1 << 30
STALL_VALUE = b'{"fill":"' + b"x" * 1000 + b'"}'
FULL_SPEED_EVENTS = 50_000
MIB = 1 << 20
PAGE_BYTES = 4096


def measure() -> Iterator[Figure]:
    """One broker, one HTTP process."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        peer = consume_rate(broker.bootstrap, FANS[0][1])
        for streams, events in FANS:
            yield from fan_out(broker.bootstrap, url, pid, streams, events, peer)
        yield from latency(broker.bootstrap, url)
        yield from stalled(broker.bootstrap, url, pid)


@contextlib.contextmanager
def readers(url: str, streams: int, events: int, *options: str) -> Iterator[Any]:
    """Readers in a process of their own, all open; `result()` waits for them."""
    command = [sys.executable, "-m", "bench.stream_load", url, "--streams", str(streams)]
    process = subprocess.Popen(
        [*command, "--events", str(events), *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert "opened" in json.loads(process.stdout.readline())
        stdout = process.stdout
        yield lambda: json.loads(stdout.readline())
    finally:
        process.terminate()
        process.wait()


def produce(bootstrap: str, topic: str, events: int, value: bytes) -> None:
    """As fast as it goes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    for _ in range(events):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def consume_rate(bootstrap: str, events: int) -> float:
    """Events per second of one consumer of confluent-kafka."""
    value = json.dumps({"n": 1, "fill": "x" * 150}).encode()
    produce(bootstrap, "peer", events, value)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "peer", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["peer"])
    consumed, started_s = 0, 0.0
    while consumed < events:
        consumed += len(consumer.consume(1000, 1.0))
        started_s = started_s or time.perf_counter()
    elapsed_s = time.perf_counter() - started_s
    consumer.close()
    return events / elapsed_s


def fan_out(
    bootstrap: str, url: str, pid: int, streams: int, events: int, peer: float
) -> Iterator[Figure]:
    """Events appended to streams that wait."""
    topic = f"fan-{streams}"
    value = json.dumps({"n": 1, "fill": "x" * 150}).encode()
    produce(bootstrap, topic, 1, value)
    address = f"{url}/topics/{topic}/stream?offset=latest"
    with readers(address, streams, events) as result, cost_of(pid) as cost:
        produce(bootstrap, topic, events, value)
        measured = result()
    name = f"SSE to {streams} {'stream' if streams == 1 else 'streams'}"
    delivered = measured["events"]
    yield Figure(
        f"{name}: events delivered", delivered / measured["seconds"], peer, "events/s",
        note="peer: one consumer that reads what is there",
    )  # fmt: skip
    yield Figure(f"{name}: CPU per event", cost.cpu_seconds / delivered * 1e6, None, "us")


def latency(bootstrap: str, url: str) -> Iterator[Figure]:
    """From just before produce to the client, at a steady rate."""
    topic = "steady"
    produce(bootstrap, topic, 1, b'{"t":0}')
    peer_ms: list[float] = []
    stop = threading.Event()
    arguments = (bootstrap, topic, stop, peer_ms)
    peer = threading.Thread(target=consume_latency, args=arguments, daemon=True)
    peer.start()
    address = f"{url}/topics/{topic}/stream?offset=latest"
    with readers(address, LATENCY_STREAMS, LATENCY_EVENTS, "--clock") as result:
        time.sleep(1)
        produce_steadily(bootstrap, topic)
        measured = result()
    stop.set()
    peer.join()
    with bare_server(EVENT_BYTES) as (bare_url, _):
        floor = run_load(bare_url, [1], "--rate", str(RATE), own_core=False)
    name = f"push latency at {RATE} events/s to {LATENCY_STREAMS} streams"
    note = f"the longest {measured['max_ms']:.1f} ms"
    yield Figure(
        f"{name}, p50", measured["p50_ms"], float(np.percentile(peer_ms, 50)), "ms",
        note="peer: one consumer in the process that produces", floor=floor["p50_ms"],
    )  # fmt: skip
    yield Figure(
        f"{name}, p99, against {LIMIT_MS:g} ms whatever the machine", measured["p99_ms"], LIMIT_MS,
        "ms", "<= 1.0", note, LIMIT, floor["p99_ms"],
    )  # fmt: skip
    yield Figure(
        f"{name}, p99", measured["p99_ms"], latency_limit_ms(floor["p99_ms"], LIMIT_MS), "ms",
        "<= 1.0", note, LIMIT, floor["p99_ms"],
    )  # fmt: skip


def produce_steadily(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    started_s = time.perf_counter()
    for number in range(LATENCY_EVENTS):
        due_s = started_s + number / RATE
        while (left_s := due_s - time.perf_counter()) > 0:
            time.sleep(left_s)
        producer.produce(topic, b'{"t":%d,"fill":"%b"}' % (time.time_ns(), b"x" * 150))
        producer.poll(0)
    producer.flush()


def consume_latency(
    bootstrap: str, topic: str, stop: threading.Event, latencies_ms: list[float]
) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "latency", "log_level": 0})
    consumer.subscribe([topic])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            sent_ns = json.loads(message.value() or b"{}").get("t", 0)
            latencies_ms.append((time.time_ns() - sent_ns) / 1e6)
    consumer.close()


def stalled(bootstrap: str, url: str, pid: int) -> Iterator[Figure]:
    """Streams that do not read, beside one that does."""
    topic = "large"
    produce(bootstrap, topic, STALL_TOPIC_BYTES // len(STALL_VALUE), STALL_VALUE)
    address = f"{url}/topics/{topic}/stream?offset=earliest"
    alone = full_speed(address)
    before = resident_bytes(pid), kernel_bytes()
    sockets = [connect(address) for _ in range(STALLED)]
    wait_until_stalled(sockets[0])
    resident = (resident_bytes(pid) - before[0]) / STALLED
    kernel = (kernel_bytes() - before[1]) / STALLED
    beside = full_speed(address)
    resumes_ms = [resume_ms(each) for each in sockets[:RESUMED]]
    for each in sockets:
        each.close()
    stops_ms = [stop_ms(url, address) for _ in range(STOPPED)]
    note = f"process {resident / 1024:.0f} KiB, kernel {kernel / 1024:.0f} KiB (both ends)"
    yield Figure(
        f"memory per stalled stream, {STALLED} of them, topic of 1 GB",
        (resident + kernel) / MIB, 1.0, "MiB", "<= 1.0", note, LIMIT,
    )  # fmt: skip
    yield Figure(
        f"SSE to 1 stream beside {STALLED} stalled ones", beside, alone, "events/s", ">= 0.9",
        peer_name="the same without them",
    )  # fmt: skip
    for name, times_ms in (
        ("sending stops after a client stops reading", stops_ms),
        ("a stalled stream is sent new events after its client reads again", resumes_ms),
    ):
        p90, note = float(np.percentile(times_ms, 90)), histogram(times_ms)
        yield Figure(f"{name}, 9 of 10", p90, SWITCH_MS, "ms", "<= 1.0", note, LIMIT)
        yield Figure(f"{name}, the longest", max(times_ms), SWITCH_MS, "ms", "<= 1.0", "", LIMIT)


def histogram(times_ms: list[float]) -> str:
    """How many took how long."""
    counts, edges = np.histogram(times_ms, bins=(0, 5, 10, 20, 50, 100, 200, 1e9))
    rows = [f"<{edge:g} ms: {count}" for count, edge in zip(counts, edges[1:-1], strict=False)]
    return "; ".join((*rows, f"longer: {counts[-1]}"))


def full_speed(address: str) -> float:
    """Events per second of one reader."""
    with readers(address, 1, FULL_SPEED_EVENTS) as result:
        return FULL_SPEED_EVENTS / float(result()["seconds"])


def connect(address: str, receive_bytes: int = 0) -> socket.socket:
    """A stream that is opened and not read."""
    parts = urlsplit(address)
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect((parts.hostname, parts.port))
    request = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
    client.sendall(request.encode())
    return client


def wait_until_stalled(client: socket.socket) -> None:
    """Until nothing more is sent to a client."""
    size, same = -1, 0
    while same < 20:
        time.sleep(0.1)
        now = in_flight_bytes(client)
        size, same = now, same + 1 if now == size else 0


def in_flight_bytes(client: socket.socket) -> int:
    """What the kernel has of a connection: unacknowledged at one end, unread at the other."""
    # Both ports: other connections on this machine may have the same port at one end.
    ends = {client.getsockname()[1], client.getpeername()[1]}
    total = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if ends == {int(end.partition(":")[2], 16) for end in columns[1:3]}:
            unsent, unread = columns[4].split(":")
            total += int(unsent, 16) + int(unread, 16)
    return total


def resume_ms(client: socket.socket) -> float:
    """How long a client that reads again waits for events that were not in flight."""
    client.settimeout(5)
    old = in_flight_bytes(client) + IN_FLIGHT_BYTES
    started_s = time.perf_counter()
    received = 0
    while received <= old:
        content = client.recv(1 << 20)
        assert content, "the gateway closed a stream that was not read"
        received += len(content)
    return (time.perf_counter() - started_s) * 1000


def stop_ms(url: str, address: str) -> float:
    """How long after a client stops reading the gateway still makes chunks for it."""
    with httpx.Client(base_url=url) as http:
        client = connect(address, receive_bytes=RECEIVE_BYTES)
        client.settimeout(5)
        made_chunks(http)  # connects
        end_s = time.perf_counter() + 0.1
        while time.perf_counter() < end_s:
            assert client.recv(1 << 20), "the gateway closed a stream"
        started_s = last_s = time.perf_counter()
        chunks = made_chunks(http)
        while (now_s := time.perf_counter()) < last_s + 0.3:
            now = made_chunks(http)
            if now != chunks:
                chunks, last_s = now, now_s
        client.close()
    return (last_s - started_s) * 1000


def made_chunks(http: httpx.Client) -> str:
    lines = http.get("/metrics").text.splitlines()
    return next(line for line in lines if line.startswith("penstock_streams_chunks_total"))


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * PAGE_BYTES


def kernel_bytes() -> int:
    """Memory of all TCP sockets."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * PAGE_BYTES
    raise AssertionError("no TCP in sockstat")


if __name__ == "__main__":
    report(measure(), __doc__, peer="confluent-kafka")
