"""Latency at a steady rate: Penstock beside Apache Kafka, both warmed up."""

import json
import subprocess
import sys
from collections.abc import Iterator

from bench.figures import Figure, report
from bench.peers import PeerUnavailable, Server, apache_kafka, make_topic, penstock

ACKNOWLEDGED = ("--rate", "1000", "--count", "15000")
END_TO_END = ("--rate", "10000", "--count", "120000", "--size", "100", "--end-to-end")


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
            "acknowledged": run(server, *ACKNOWLEDGED),
            "end to end": run(server, *END_TO_END),
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
