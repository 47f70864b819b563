"""Latency at a steady rate: Penstock beside Apache Kafka, both warmed up.

A pause that the host makes shows in every percentile and is nobody's merit or fault. So each load
runs several times, and of each server the round counts from which the host took the least time,
by the kernel's own count.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import psutil

from bench.figures import Figure, report
from bench.peers import PeerUnavailable, Server, apache_kafka, make_topic, penstock

ACKNOWLEDGED = ("--rate", "1000", "--count", "15000")
END_TO_END = ("--rate", "10000", "--count", "80000", "--size", "100", "--end-to-end")
ROUNDS = 5


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
        peer = theirs[kind][key] if theirs else None
        yield Figure(name, ours[kind][key], peer, "ms", target)


def measure_server(server: Server) -> dict[str, dict[str, float]]:
    """Both kinds of latency against one server."""
    with server:
        make_topic(server.bootstrap, "latency", partitions=4)
        run(server, "--rate", "5000", "--count", "30000")  # warm-up: not looked at
        return {
            "acknowledged": quietest(server, *ACKNOWLEDGED),
            "end to end": quietest(server, *END_TO_END),
        }


def quietest(server: Server, *options: str) -> dict[str, float]:
    """The round from which the host took the least."""
    rounds = []
    for _ in range(ROUNDS):
        stolen_before = stolen_seconds()
        answer = run(server, *options)
        rounds.append((stolen_seconds() - stolen_before, answer))
        print(f"   stolen by the host: {rounds[-1][0]:.2f} s", file=sys.stderr)
    return min(rounds, key=lambda one: one[0])[1]


def stolen_seconds() -> float:
    """Time in which this machine was ready to run and its host ran something else."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


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
