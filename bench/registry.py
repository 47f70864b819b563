"""The schema registry: reads by id, closed and at a steady rate, and registrations."""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import cast

import httpx
import numpy as np
import uvloop

from bench.figures import Figure, report
from bench.peers import cost_of
from penstock.node.http_process import HttpOptions, command_line
from penstock.testing.embedded import EmbeddedBroker

SCHEMAS = 200
CONNECTIONS = 32
SECONDS = 5.0
WARM_UP_SECONDS = 1.0
RATE = 2_000
REGISTRATIONS = 200
SERVER_CORE = 0


def measure() -> Iterator[Figure]:
    """One node over one broker of ours; the node is held to one core, the load runs on another."""
    with EmbeddedBroker() as broker, node(broker.bootstrap) as (url, pid):
        writes = measure_writes(url)
        hold_to_one_core(pid)
        with cost_of(pid) as cost:
            closed = run_load(url, rate=0)
        steady = run_load(url, rate=RATE)
    yield Figure(
        "GET /schemas/ids/{id} on one core", closed["per_second"], 5_000, "requests/s", ">= 1.0",
        "no peer: the bar is 5 000 requests/s",
    )  # fmt: skip
    yield Figure(
        "GET /schemas/ids/{id} per second of CPU", closed["answers"] / cost.cpu_seconds, 5_000,
        "requests/s", ">= 1.0", "what one core would answer if it had nothing else to do",
    )  # fmt: skip
    yield Figure(
        f"GET /schemas/ids/{{id}} at {RATE} requests/s: p99", steady["p99_ms"], 5.0, "ms",
        "<= 1.0", "no peer: the bar is 5 ms",
    )  # fmt: skip
    yield Figure(f"GET /schemas/ids/{{id}} at {RATE} requests/s: p50", steady["p50_ms"], None, "ms")
    yield Figure("first registrations, one client", writes, None, "registrations/s")


@contextlib.contextmanager
def node(kafka: str) -> Iterator[tuple[str, int]]:
    """A registry in a process of its own."""
    options = HttpOptions(kafka, http_port=0, log_level="WARNING")
    process = subprocess.Popen(command_line(options), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["http"], process.pid
    finally:
        process.terminate()
        process.wait(20)


def hold_to_one_core(pid: int) -> None:
    """All threads of the process, those of its Kafka client included."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {SERVER_CORE})


def measure_writes(url: str) -> float:
    """Registrations per second, one after another; leaves the schemas that are read later."""
    with httpx.Client(base_url=url, timeout=60) as http:
        started = time.perf_counter()
        for number in range(REGISTRATIONS):
            fields = [{"name": f"f{i}", "type": "string"} for i in range(20)]
            schema = {"type": "record", "name": f"R{number}", "fields": fields}
            http.post(
                f"/subjects/s{number}/versions", json={"schema": json.dumps(schema)}
            ).raise_for_status()
        return REGISTRATIONS / (time.perf_counter() - started)


def run_load(url: str, rate: int) -> dict[str, float]:
    """The load in a process of its own, on the other core."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.registry", "--load", url, "--rate", str(rate)],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


class Caller(asyncio.Protocol):
    """One keep-alive connection. Counts answers and remembers how long each took."""

    def __init__(self, host: str, closed: bool) -> None:
        self._host = host
        self._closed = closed  # the next request follows the answer to the last
        self._next = 0
        self._buffer = b""
        self._sent: deque[float] = deque()
        self.waits: list[float] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, due: float) -> None:
        """Send one request that was due at a time."""
        assert self.transport is not None
        self._next = self._next % SCHEMAS + 1
        self._sent.append(due)
        self.transport.write(
            f"GET /schemas/ids/{self._next} HTTP/1.1\r\nHost: {self._host}\r\n"
            "Accept: application/vnd.schemaregistry.v1+json\r\nUser-Agent: bench\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        self._buffer += data
        while self._sent:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            assert head.startswith(b"http/1.1 200"), head
            at = head.index(b"content-length:") + 15
            length = int(head[at : head.find(b"\r\n", at) if b"\r\n" in head[at:] else None])
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            now = time.perf_counter()
            self.waits.append(now - self._sent.popleft())
            if self._closed:
                self.ask(now)


async def load(url: str, rate: int) -> dict[str, float]:
    """Closed when the rate is 0; else requests leave on time, whether answers come or not."""
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda: Caller(host, rate == 0), host, int(port)))[1]
        for _ in range(CONNECTIONS)
    ]
    started = time.perf_counter()
    if rate == 0:
        for caller in callers:
            caller.ask(started)
        await asyncio.sleep(WARM_UP_SECONDS)
        before, began = _answers(callers), time.perf_counter()
        await asyncio.sleep(SECONDS)
        answers = _answers(callers)
        per_second = (answers - before) / (time.perf_counter() - began)
        return {"per_second": per_second, "answers": answers}
    due, number = started, 0
    while due < started + WARM_UP_SECONDS + SECONDS:
        while due <= time.perf_counter():
            callers[number % CONNECTIONS].ask(due)
            number += 1
            due = started + number / rate
        await asyncio.sleep(max(due - time.perf_counter(), 0))
    await asyncio.sleep(1)
    skip = int(WARM_UP_SECONDS * rate / CONNECTIONS)
    waits = np.array([wait for caller in callers for wait in caller.waits[skip:]]) * 1000
    return {"p50_ms": float(np.percentile(waits, 50)), "p99_ms": float(np.percentile(waits, 99))}


def _answers(callers: list[Caller]) -> int:
    return sum(len(caller.waits) for caller in callers)


def main() -> None:
    """The bench, or its load when called by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load")
    parser.add_argument("--rate", type=int, default=0)
    arguments, _ = parser.parse_known_args()
    if arguments.load is None:
        report(measure(), __doc__)
        return
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {SERVER_CORE} or {SERVER_CORE})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(load(arguments.load, arguments.rate))))


if __name__ == "__main__":
    main()
