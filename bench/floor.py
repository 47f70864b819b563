"""The floor of a latency: a minimal uvloop server that sends fixed bytes, under the same load.

It parses nothing and decides nothing, so its percentiles are those of the machine: the processors,
the kernel and other users of them, at this rate. As a program, this module is the server.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import uvloop

SERVER_CORE = 0
REQUEST_END = b"\r\n\r\n"


@contextlib.contextmanager
def bare_server(answer_bytes: int) -> Iterator[tuple[str, int]]:
    """Start the server; its URL and process id."""
    command = [sys.executable, "-m", "bench.floor", "--answer-bytes", str(answer_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["http"], process.pid
        finally:
            process.terminate()


def run_load(
    url: str, ids: Sequence[int], *options: str, own_core: bool = True
) -> dict[str, float]:
    """Run the HTTP load in its own process, on another core than the server if there is one."""
    other = max(set(range(os.cpu_count() or 1)) - {SERVER_CORE}, default=SERVER_CORE)
    core = ["--core", str(other)] if own_core else []
    listed = ",".join(map(str, ids))
    done = subprocess.run(
        [sys.executable, "-m", "bench.registry_load", url, listed, *core, *options],
        stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def hold_to_one_core(pid: int) -> None:
    """Restrict all threads of a process to one core; later threads inherit this."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {SERVER_CORE})


def latency_limit_ms(floor_ms: float, limit_ms: float) -> float:
    """The limit of a latency; if the floor is above 3 ms, at least 1.5 times the floor."""
    return max(limit_ms, 1.5 * floor_ms) if floor_ms > 3.0 else limit_ms


class FixedAnswers(asyncio.Protocol):
    """One connection: the same bytes for every request."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._tail = b""  # the end of a request may arrive in two pieces
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As asyncio calls it."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """As asyncio calls it."""
        assert self._transport is not None
        seen = self._tail + data
        requests = seen.count(REQUEST_END)
        after = seen.rfind(REQUEST_END) + len(REQUEST_END) if requests else 0
        self._tail = seen[after:][-len(REQUEST_END) + 1 :]
        if requests:
            self._transport.write(self._answer * requests)


async def serve(answer_bytes: int) -> None:
    """Serve until the process is ended; prints one JSON object when it listens."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {answer_bytes}\r\n\r\n".encode()
    answer = head + b"x" * answer_bytes
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: FixedAnswers(answer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(json.dumps({"http": f"http://{host}:{port}"}), flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer-bytes", type=int, default=1000)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().answer_bytes))


if __name__ == "__main__":
    main()
