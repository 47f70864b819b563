"""A client beside ten that pipeline requests as fast as the broker reads them.

The client sends one request after another, with pauses. All of its requests count: the result is
their 99th percentile over the whole run. The floor is the same client on the same broker without
the others. All clients have the priority of the broker, so waiting for a processor is included.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bench.figures import LIMIT, Figure, report
from bench.peers import make_topic, penstock
from penstock.protocol.records import build_batch
from tests.broker import pipelining_clients
from tests.support.wire import frame

CLIENTS: Final = pipelining_clients.__file__
GREEDY: Final = 10
SECONDS: Final = 20
LIMIT_MS: Final = 50.0
TOPIC: Final = "t"


def measure() -> Iterator[Figure]:
    """Beside clients that pipeline small requests, and beside ones that pipeline large ones."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, penstock() as server:
        make_topic(server.bootstrap, TOPIC, partitions=1)
        port = server.bootstrap.rpartition(":")[2]
        polite = Path(folder, "polite")
        polite.write_bytes(frame(1, 18, 0))
        floor_ms = p99_ms(port, polite)
        for name, request in (("Metadata", metadata()), ("Produce of 200 kB", produce())):
            greedy = Path(folder, "greedy")
            greedy.write_bytes(request)
            with pipelining(port, greedy):
                waited_ms = p99_ms(port, polite)
            yield Figure(
                f"p99 beside {GREEDY} clients that pipeline {name}", waited_ms, LIMIT_MS, "ms",
                "<= 1.0", peer_name=LIMIT, floor=floor_ms,
            )  # fmt: skip


def metadata() -> bytes:
    """A small request."""
    return frame(1, 3, 1, topics=[{"name": TOPIC}])


def produce() -> bytes:
    """A large one that is refused: there is no such topic."""
    records = bytes(build_batch([(b"k", bytes(200_000))]))
    topics = [{"name": "unknown", "partition_data": [{"index": 0, "records": records}]}]
    return frame(1, 0, 9, transactional_id=None, acks=1, timeout=1000, topic_data=topics)


@contextlib.contextmanager
def pipelining(port: str, request: Path) -> Iterator[None]:
    """Clients that send until the end, in one process."""
    command = [sys.executable, CLIENTS, port, "greedy", str(request), str(GREEDY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as clients:
        assert clients.stdin is not None
        assert clients.stdout is not None
        assert clients.stdout.readline() == b"ready\n"
        yield
        assert clients.poll() is None, "the clients that pipeline ended early"
        clients.stdin.close()


def p99_ms(port: str, request: Path) -> float:
    """The 99th percentile of one client's requests."""
    command = [sys.executable, CLIENTS, port, "polite", str(request), str(SECONDS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60 + SECONDS)
    return float(np.percentile(json.loads(done.stdout), 99))


if __name__ == "__main__":
    report(measure(), __doc__, peer="none")
