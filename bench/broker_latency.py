"""Latency at a steady rate: Penstock beside Apache Kafka, both warmed up.

A pause that the host makes shows in every percentile, and rounds differ by several times. So each
load runs several times and the middle of each percentile counts; the notes have every round.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from typing import TypeAlias

from bench.figures import Figure, report
from bench.peers import PeerUnavailable, Server, apache_kafka, make_topic, penstock

ACKNOWLEDGED = ("--rate", "1000", "--count", "15000")
END_TO_END = ("--rate", "10000", "--count", "80000", "--size", "100", "--end-to-end")
ROUNDS = 5

Rounds: TypeAlias = list[dict[str, float]]


def measure() -> Iterator[Figure]:
    """p50 and p99 of both servers."""
    ours = measure_server(penstock())
    try:
        theirs = measure_server(apache_kafka())
    except PeerUnavailable as reason:
        print(f"no peer to compare with: {reason}", file=sys.stderr)
        theirs = {}
    rows = (
        ("acknowledged at 1 000/s, p50", "acknowledged", "p50_ms", "<= 1.0"),
        ("acknowledged at 1 000/s, p99", "acknowledged", "p99_ms", "<= 1.0"),
        ("end to end at 10 000/s, p50", "end to end", "p50_ms", "<= 1.0"),
        ("end to end at 10 000/s, p99", "end to end", "p99_ms", "<= 1.0"),
    )
    for name, kind, key, target in rows:
        mine = [answer[key] for answer in ours[kind]]
        peer = [answer[key] for answer in theirs.get(kind, [])]
        note = f"rounds {listed(mine)}; peer's {listed(peer)}"
        yield Figure(name, median(mine), median(peer) if peer else None, "ms", target, note)


def listed(values: list[float]) -> str:
    """All of them, for who wants to know how much they differ."""
    return " ".join(f"{value:.3g}" for value in values)


def measure_server(server: Server) -> dict[str, Rounds]:
    """Both kinds of latency against one server, every round of them."""
    with server:
        make_topic(server.bootstrap, "latency", partitions=4)
        run(server, "--rate", "5000", "--count", "30000")  # warm-up: not looked at
        return {
            "acknowledged": [run(server, *ACKNOWLEDGED) for _ in range(ROUNDS)],
            "end to end": [run(server, *END_TO_END) for _ in range(ROUNDS)],
        }


def run(server: Server, *options: str) -> dict[str, float]:
    """One latency load in a process of its own."""
    command = [sys.executable, "-m", "bench.load", "latency", "--topic", "latency", "--acks", "all"]
    done = subprocess.run(
        [*command, "--bootstrap", server.bootstrap, *options],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    print(f"{type(server).__name__}: {' '.join(options)}: {done.stdout.strip()}", file=sys.stderr)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    report(measure(), __doc__)
