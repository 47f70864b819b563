"""Load on a registry: `GET {url}/schemas/ids/{id}`, closed loop or at a constant rate.

It must use little CPU, because it runs on the measured machine: requests are encoded once, and the
length of each response is determined before, so that responses are counted and not parsed.
"""

import argparse
import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

CONNECTIONS = 32


class Question:
    """One request, and the length of its response with headers."""

    def __init__(self, url: str, schema_id: int) -> None:
        parts = urlsplit(url)
        self.request = (
            f"GET {parts.path}/schemas/ids/{schema_id} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Accept: application/vnd.schemaregistry.v1+json, application/json\r\n"
            "User-Agent: bench\r\n\r\n"
        ).encode()
        self.answer_bytes = 0


class Caller(asyncio.Protocol):
    """One keep-alive connection, and the latency of each response."""

    def __init__(self, questions: Sequence[Question], closed: bool) -> None:
        self._questions = questions
        self._closed = closed  # the next request follows the last response
        self._next = 0
        self._received_bytes = 0
        self._pending: deque[tuple[float, int]] = deque()
        self.waits_s: list[float] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, due_at_s: float) -> None:
        """Send one request that was due at the given time."""
        assert self.transport is not None
        question = self._questions[self._next]
        self._next = (self._next + 1) % len(self._questions)
        self._pending.append((due_at_s, question.answer_bytes))
        self.transport.write(question.request)

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        self._received_bytes += len(data)
        while self._pending and self._received_bytes >= self._pending[0][1]:
            due_at_s, answer_bytes = self._pending.popleft()
            self._received_bytes -= answer_bytes
            now_s = time.perf_counter()
            self.waits_s.append(now_s - due_at_s)
            if self._closed:
                self.ask(now_s)


async def learn(url: str, ids: Sequence[int]) -> list[Question]:
    """The requests, each sent twice: the second response is the one of the load."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    questions = [Question(url, schema_id) for schema_id in ids]
    for question in [*questions, *questions]:
        writer.write(question.request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        body_bytes = int(lines[b"content-length"])
        await reader.readexactly(body_bytes)
        question.answer_bytes = len(head) + body_bytes
    writer.close()
    return questions


async def connected(url: str, questions: Sequence[Question], *, closed: bool) -> list[Caller]:
    """All connections, each starting with another id."""
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    callers = []
    for number in range(CONNECTIONS):
        start = number * len(questions) // CONNECTIONS
        make = partial(Caller, [*questions[start:], *questions[:start]], closed)
        _, caller = await loop.create_connection(make, parts.hostname or "", parts.port or 80)
        callers.append(caller)
    return callers


async def load_closed(
    url: str, questions: Sequence[Question], warm_up_s: float, measured_s: float
) -> dict[str, float]:
    """Send the next request when the last response has arrived."""
    callers = await connected(url, questions, closed=True)
    for caller in callers:
        caller.ask(time.perf_counter())
    await asyncio.sleep(warm_up_s)
    before, began_s = _answers(callers), time.perf_counter()
    await asyncio.sleep(measured_s)
    answers, took_s = _answers(callers), time.perf_counter() - began_s
    return {"per_second": (answers - before) / took_s, "answers": answers}


async def load_steadily(
    url: str, questions: Sequence[Question], warm_up_s: float, measured_s: float, rate: int
) -> dict[str, float]:
    """Send requests on time, whether responses arrive or not; latency starts when one is due."""
    callers = await connected(url, questions, closed=False)
    started_s = time.perf_counter()
    due_at_s, number = started_s, 0
    while due_at_s < started_s + warm_up_s + measured_s:
        while due_at_s <= time.perf_counter():
            callers[number % CONNECTIONS].ask(due_at_s)
            number += 1
            due_at_s = started_s + number / rate
        await asyncio.sleep(max(due_at_s - time.perf_counter(), 0))
    await asyncio.sleep(1)
    skip = int(warm_up_s * rate / CONNECTIONS)
    waits_ms = np.array([wait for caller in callers for wait in caller.waits_s[skip:]]) * 1000
    return {
        "p50_ms": float(np.percentile(waits_ms, 50)),
        "p99_ms": float(np.percentile(waits_ms, 99)),
        "answers": float(number),
    }


def _answers(callers: list[Caller]) -> int:
    return sum(len(caller.waits_s) for caller in callers)


async def run(arguments: argparse.Namespace) -> dict[str, float]:
    """Run the load of the command line."""
    questions = await learn(
        arguments.url, [int(schema_id) for schema_id in arguments.ids.split(",")]
    )
    times = (arguments.warm_up_seconds, arguments.seconds)
    if arguments.rate:
        return await load_steadily(arguments.url, questions, *times, arguments.rate)
    return await load_closed(arguments.url, questions, *times)


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("ids", help="with commas between")
    parser.add_argument("--rate", type=int, default=0, help="requests/s; 0 waits for answers only")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up-seconds", type=float, default=2.0)
    parser.add_argument("--core", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.core is not None:
        os.sched_setaffinity(0, {arguments.core})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(arguments))))


if __name__ == "__main__":
    main()
