"""Readers of a stream of server-sent events, in a process of their own; meant to cost little.

    python -m bench.stream_load URL --streams 100 --events 1000

Prints a line when all streams are open, and one with the results when each has received the
events. With `--clock`, events have `"t":` with the time at which they were sent, in nanoseconds.
"""

import argparse
import asyncio
import json
import re
import time
from typing import cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

MARK = b"\ndata: "
TIME = re.compile(rb'"t": ?(\d+)')


class StreamReader(asyncio.Protocol):
    """One stream: counts events by their marks, also those that are split between reads."""

    def __init__(self, url: str, events: int, with_clock: bool) -> None:
        parts = urlsplit(url)
        self._request = (
            f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
        )
        self._events = events + 1  # and the opening event
        self._with_clock = with_clock
        self._rest = b""
        self.count = 0
        self.latencies_ns: list[int] = []
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[float] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        text = self._rest + data
        self.count += text.count(MARK)
        self._rest = text[-len(MARK) + 1 :]
        if self._with_clock:
            now_ns = time.time_ns()
            self.latencies_ns += [now_ns - int(each) for each in TIME.findall(text)]
        if self.count and not self.opened.done():
            self.opened.set_result(None)
        if self.count >= self._events and not self.finished.done():
            self.finished.set_result(time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        """As asyncio calls it."""
        for future in (self.opened, self.finished):
            if not future.done():
                future.set_exception(ConnectionError(f"the stream ended ({exc})"))


async def read(url: str, streams: int, events: int, with_clock: bool) -> None:
    """Open all streams, then read."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    loop = asyncio.get_running_loop()
    readers = []
    for _ in range(streams):
        _, reader = await loop.create_connection(
            lambda: StreamReader(url, events, with_clock), parts.hostname, parts.port
        )
        readers.append(reader)
    await asyncio.gather(*(reader.opened for reader in readers))
    print(json.dumps({"opened": streams}), flush=True)
    started_s = time.perf_counter()
    ended = await asyncio.gather(*(reader.finished for reader in readers))
    measured: dict[str, float] = {"seconds": max(ended) - started_s, "events": streams * events}
    latencies = [each for reader in readers for each in reader.latencies_ns]
    if latencies:
        p50, p99, p100 = np.percentile(np.array(latencies) / 1e6, (50, 99, 100))
        measured |= {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(p100)}
    print(json.dumps(measured), flush=True)


def main() -> None:
    """The process itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--clock", action="store_true")
    options = parser.parse_args()
    uvloop.run(read(options.url, options.streams, options.events, options.clock))


if __name__ == "__main__":
    main()
