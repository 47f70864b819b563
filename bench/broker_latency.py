"""Latency at a steady rate: Penstock beside Apache Kafka, both warmed up.

A pause that the host makes shows in every percentile, and rounds differ by several times. So each
load runs several times, the servers taking turns. Of each server's rounds the calm ones count, in
which the host left it alone (`bench.host`), and of those the middle of each percentile; the notes
have all that count.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.figures import Figure, report
from bench.host import Round, calm, timed
from bench.peers import Server, both_servers, make_topic

ACKNOWLEDGED = ("--rate", "1000", "--count", "10000")
END_TO_END = ("--rate", "10000", "--count", "80000", "--size", "100", "--end-to-end")
ROUNDS = 9


def measure() -> Iterator[Figure]:
    """p50 and p99 of both servers."""
    with both_servers() as servers:
        for server in servers:
            make_topic(server.bootstrap, "latency", partitions=4)
            run(server, "--rate", "5000", "--count", "30000")  # warm-up: not looked at
        for name, options in (
            ("acknowledged at 1 000/s", ACKNOWLEDGED),
            ("end to end at 10 000/s", END_TO_END),
        ):
            ours, *peers = by_turns(servers, options)
            for percentile in ("p50", "p99"):
                mine = [each.measured[f"{percentile}_ms"] for each in ours]
                theirs = [each.measured[f"{percentile}_ms"] for each in peers[0]] if peers else []
                stolen = listed([each.stolen_share for each in ours])
                yield Figure(
                    f"{name}, {percentile}",
                    median(mine),
                    median(theirs) if theirs else None,
                    "ms",
                    "<= 1.0",
                    f"rounds {listed(mine)} (the host took {stolen}); peer's {listed(theirs)}",
                )


def by_turns(servers: list[Server], options: tuple[str, ...]) -> list[list[Round]]:
    """The calm rounds of a load, by server."""
    rounds: list[list[Round]] = [[] for _ in servers]
    for _ in range(ROUNDS):
        for server, done in zip(servers, rounds, strict=True):
            done.append(timed(partial(run, server, *options)))
    return [calm(done) for done in rounds]


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
