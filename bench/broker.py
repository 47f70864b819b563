"""Produce and consume: throughput, server CPU and memory, compared with Apache Kafka.

Both servers run and are warmed up with the same load. They take turns, round by round, so that
other users of the machine affect both; the other server is idle meanwhile. The result is the median
of each quantity. `bench.memory` explains why memory is filled before each round.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bench.figures import Figure, report
from bench.memory import SettledMemory
from bench.peers import (
    Server,
    both_servers,
    cost_of,
    delete_topic,
    make_topic,
    resident_bytes,
)
from tests.support.apache_kafka import VERSION

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """One workload and the targets of its ratios."""

    name: str
    what: str
    size: int
    count: int
    batch_bytes: int
    rate_target: str
    cpu_target: str


READ = Load("consume 1000 B", "consume", 1000, 1_500_000, MB, ">= 1.1", "<= 1.0")
LOADS = (
    Load("produce 1000 B, 16 kB batches", "produce", 1000, 800_000, 16_384, ">= 2.5", "<= 0.4"),
    Load("produce 1000 B, 1 MB batches", "produce", 1000, 1_500_000, MB, ">= 1.1", "<= 0.6"),
    READ,  # while its records are still in memory
    Load("produce 100 B, 16 kB batches", "produce", 100, 3_000_000, 16_384, ">= 1.0", "<= 0.4"),
    Load("produce 100 B, 1 MB batches", "produce", 100, 5_000_000, MB, ">= 1.0", "<= 0.6"),
)
WARM_UP = 300_000
PARTITIONS = 4
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one server under one load."""

    mb_per_second: float
    cpu_seconds_per_gb: float
    client_busy_cores: float  # near 1: the client's sending thread is the limit
    server_busy_cores: float

    @property
    def limit(self) -> str:
        """What was busy: the rate of a server that waits for its client says little."""
        return (
            f"cores busy: client {self.client_busy_cores:.2f}, server {self.server_busy_cores:.2f}"
        )


def measure() -> Iterator[Figure]:
    """Measure both servers in turns, then compare."""
    with both_servers() as servers, SettledMemory() as memory:
        for server in servers:
            warm_up(server)
        for load in LOADS:
            yield from compared(
                load, [middle_of(rounds) for rounds in by_turns(load, servers, memory)]
            )
        ours, *peers = [resident_bytes(server.pid) / MB for server in servers]
    yield Figure("resident after the load", ours, peers[0] if peers else None, "MB")


def compared(load: Load, runs: list[Run]) -> Iterator[Figure]:
    """Rate and cost of one load; the results of the peer, if there is one, come second."""
    mine, *peers = runs
    peer = peers[0] if peers else None
    yield Figure(
        load.name,
        mine.mb_per_second,
        peer.mb_per_second if peer else None,
        "MB/s",
        load.rate_target,
        mine.limit,
    )
    yield Figure(
        f"{load.name}: server CPU",
        mine.cpu_seconds_per_gb,
        peer.cpu_seconds_per_gb if peer else None,
        "CPU-s/GB",
        load.cpu_target,
    )


def warm_up(server: Server) -> None:
    """Run every kind of work once, so that a JVM has compiled it."""
    make_topic(server.bootstrap, "warm-up", partitions=PARTITIONS)
    for batch_bytes in (16_384, MB):
        run_load(server.bootstrap, "produce", "warm-up", 1000, WARM_UP, batch_bytes)
    run_load(server.bootstrap, "consume", "warm-up", 1000, WARM_UP, MB)


def by_turns(load: Load, servers: list[Server], memory: SettledMemory) -> list[list[Run]]:
    """Every round of a load, by server."""
    rounds: list[list[Run]] = [[] for _ in servers]
    for number in range(ROUNDS):
        for server, runs in zip(servers, rounds, strict=True):
            memory.settle()
            runs.append(measure_load(server, load, number))
            print(f"{type(server).__name__}: {load.name}: {runs[-1]}", file=sys.stderr)
    return rounds


def middle_of(rounds: list[Run]) -> Run:
    """The median of each quantity."""
    return Run(
        median(run.mb_per_second for run in rounds),
        median(run.cpu_seconds_per_gb for run in rounds),
        median(run.client_busy_cores for run in rounds),
        median(run.server_busy_cores for run in rounds),
    )


def measure_load(server: Server, load: Load, number: int) -> Run:
    """One round of a load. Topics are deleted afterwards, except for the one that is read later."""
    read_topic = f"t-{READ.size}-{READ.batch_bytes}-0"
    topic = read_topic if load is READ else f"t-{load.size}-{load.batch_bytes}-{number}"
    if load is not READ:
        make_topic(server.bootstrap, topic, partitions=PARTITIONS)
    run = measure_topic(server.bootstrap, [server.pid], load, topic)
    if topic != read_topic:
        delete_topic(server.bootstrap, topic)
    return run


def measure_topic(
    bootstrap: str, pids: Sequence[int], load: Load, topic: str, *, partitions: int = PARTITIONS
) -> Run:
    """One round of a load on a topic, and what it cost these processes."""
    with cost_of(*pids) as cost:
        said = run_load(
            bootstrap, load.what, topic, load.size, load.count, load.batch_bytes, partitions
        )
    gigabytes = load.size * load.count / 1e9
    return Run(
        said["mb_per_second"],
        cost.cpu_seconds / gigabytes,
        said["busy_cores"],
        cost.cpu_seconds / said["seconds"],
    )


def run_load(
    bootstrap: str,
    what: str,
    topic: str,
    size: int,
    count: int,
    batch_bytes: int,
    partitions: int = PARTITIONS,
) -> dict[str, float]:
    """Run one load in its own process."""
    arguments = {
        "bootstrap": bootstrap,
        "topic": topic,
        "size": size,
        "count": count,
        "batch-bytes": batch_bytes,
        "partitions": partitions,
        "acks": "all",
    }
    options = [text for key, value in arguments.items() for text in (f"--{key}", str(value))]
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", what, *options],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
