"""Latency at a constant rate, compared with Apache Kafka.

A pause of the host shows in every percentile, and rounds differ by several times. So each load runs
several times, in turns with the peer and with a minimal server without log and disk
(`bench.kafka_floor`), all with the same client. It serves no consumers: the floor of end to end is
the acknowledgement at the same rate, which crosses the network as often. The result is the median
of each percentile over the rounds in which the host took little time (`bench.host`); the notes list
all of these rounds.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from bench.figures import Figure, report
from bench.host import Round, calm, timed
from bench.kafka_floor import bare_broker
from bench.peers import both_servers, make_topic
from tests.support.apache_kafka import VERSION

ACKNOWLEDGED = ("--count", "10000")
END_TO_END = ("--count", "80000", "--size", "100")
TOPIC = "latency"
PARTITIONS = 4
ROUNDS = 9


def measure() -> Iterator[Figure]:
    """p50 and p99 of both servers, and of the floor."""
    with both_servers() as servers, bare_broker(TOPIC, PARTITIONS) as bare:
        for server in servers:
            make_topic(server.bootstrap, TOPIC, partitions=PARTITIONS)
            run(server.bootstrap, "--rate", "5000", "--count", "30000")  # warm-up: ignored
        places = [server.bootstrap for server in servers]
        for name, rate, options, until in (
            ("acknowledged at 1 000/s", 1_000, ACKNOWLEDGED, ()),
            ("end to end at 10 000/s", 10_000, END_TO_END, ("--end-to-end",)),
        ):
            load = ("--rate", str(rate), *options)
            floor, ours, *peers = by_turns(
                [partial(run, bare, *load), *(partial(run, at, *load, *until) for at in places)]
            )
            for percentile in ("p50", "p99"):
                yield compared(f"{name}, {percentile}", f"{percentile}_ms", floor, ours, *peers)


def compared(
    name: str,
    percentile: str,
    floor: list[Round],
    ours: list[Round],
    peers: list[Round] | None = None,
) -> Figure:
    """The median of one percentile over the selected rounds."""
    mine = [each.measured[percentile] for each in ours]
    theirs = [each.measured[percentile] for each in peers or ()]
    stolen = listed([each.stolen_share for each in ours])
    return Figure(
        name,
        median(mine),
        median(theirs) if theirs else None,
        "ms",
        "<= 1.0",
        f"rounds {listed(mine)} (the host took {stolen}); peer's {listed(theirs)}",
        floor=median(each.measured[percentile] for each in floor),
        peer_kept_up=median(each.measured["kept_up"] for each in peers or ours) > 0,
    )


def by_turns(
    loads: Sequence[Callable[[], dict[str, float]]], count: int = ROUNDS
) -> list[list[Round]]:
    """The undisturbed rounds of each load."""
    rounds: list[list[Round]] = [[] for _ in loads]
    for _ in range(count):
        for load, done in zip(loads, rounds, strict=True):
            done.append(timed(load))
    return [calm(done) for done in rounds]


def listed(values: list[float]) -> str:
    """All values, to show how much they differ."""
    return " ".join(f"{value:.3g}" for value in values)


def run(bootstrap: str, *options: str) -> dict[str, float]:
    """Run one latency load in its own process."""
    command = [sys.executable, "-m", "bench.load", "latency", "--topic", TOPIC, "--acks", "all"]
    done = subprocess.run(
        [*command, "--bootstrap", bootstrap, *options],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    print(f"{bootstrap}: {' '.join(options)}: {done.stdout.strip()}", file=sys.stderr)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
