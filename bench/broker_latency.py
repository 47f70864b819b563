"""Latency at a steady rate: Penstock beside Apache Kafka, both warmed up.

A pause that the host makes shows in every percentile, and rounds differ by several times. So each
load runs several times, the servers taking turns, and the middle of each percentile counts; the
notes have every round.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
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
    with ExitStack() as stack:
        servers = [stack.enter_context(penstock())]
        try:
            servers.append(stack.enter_context(apache_kafka()))
        except PeerUnavailable as reason:
            print(f"no peer to compare with: {reason}", file=sys.stderr)
        for server in servers:
            make_topic(server.bootstrap, "latency", partitions=4)
            run(server, "--rate", "5000", "--count", "30000")  # warm-up: not looked at
        for name, options in (
            ("acknowledged at 1 000/s", ACKNOWLEDGED),
            ("end to end at 10 000/s", END_TO_END),
        ):
            ours, *peers = by_turns(servers, options)
            for percentile in ("p50", "p99"):
                mine = [answer[f"{percentile}_ms"] for answer in ours]
                theirs = [answer[f"{percentile}_ms"] for answer in peers[0]] if peers else []
                yield Figure(
                    f"{name}, {percentile}",
                    median(mine),
                    median(theirs) if theirs else None,
                    "ms",
                    "<= 1.0",
                    f"rounds {listed(mine)}; peer's {listed(theirs)}",
                )


def by_turns(servers: list[Server], options: tuple[str, ...]) -> list[Rounds]:
    """Every round of a load, by server."""
    rounds: list[Rounds] = [[] for _ in servers]
    for _ in range(ROUNDS):
        for server, answers in zip(servers, rounds, strict=True):
            answers.append(run(server, *options))
    return rounds


def listed(values: list[float]) -> str:
    """All of them, for who wants to know how much they differ."""
    return " ".join(f"{value:.3g}" for value in values)


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
