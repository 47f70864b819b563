"""Produce to three copies: throughput, CPU and memory of three brokers, compared with Apache Kafka.

Three brokers of each on the same machine, two of three copies required, acks=all. Both clusters run
and are warmed up with the same load. They take turns, round by round; the other one is idle. The
result is the median of each quantity, and for the longest turn of an event loop the longest of all
rounds, of any broker.
"""

import sys
import urllib.request
from collections.abc import Iterator

from bench.broker import MB, Load, Run, compared, measure_topic, middle_of, run_load
from bench.clusters import BROKERS, Cluster, both_clusters
from bench.figures import LIMIT, Figure, report
from bench.memory import SettledMemory
from bench.peers import delete_topic, make_topic, resident_bytes
from penstock.link.blocking import BlockingCluster
from penstock.monitor.cluster_requests import metrics_urls, request_brokers
from tests.support.apache_kafka import VERSION

LOADS = (
    Load("produce 1000 B, 1 MB batches", "produce", 1000, 600_000, MB, ">= 1.5", "<= 0.5"),
    Load("produce 1000 B, 16 kB batches", "produce", 1000, 200_000, 16_384, ">= 5.0", "<= 0.5"),
)
PARTITIONS = 6  # two led by each broker
WARM_UP = 500_000  # of each kind: until then Java gets faster
ROUNDS = 3
RESIDENT_MAX_MB = 500
TURN_MAX_MS = 100
TURN_METRIC = "penstock_loop_turn_max_seconds"


def measure() -> Iterator[Figure]:
    """Measure both clusters in turns, then compare."""
    with both_clusters() as clusters, SettledMemory() as memory:
        for cluster in clusters:
            warm_up(cluster)
        longest_ms = 0.0
        for load in LOADS:
            rounds: list[list[Run]] = [[] for _ in clusters]
            for number in range(ROUNDS):
                for cluster, runs in zip(clusters, rounds, strict=True):
                    memory.settle()
                    runs.append(measure_round(cluster, load, number))
                    print(f"{cluster.name}: {load.name}: {runs[-1]}", file=sys.stderr)
                longest_ms = max(longest_ms, longest_turn_ms(clusters[0]))
            yield from compared(load, [middle_of(runs) for runs in rounds])
        ours, *peers = [resident_bytes(*cluster.pids) / MB for cluster in clusters]
    yield Figure("resident after the load", ours, peers[0] if peers else None, "MB")
    yield Figure(
        f"resident after the load, limit {RESIDENT_MAX_MB} MB", ours, RESIDENT_MAX_MB, "MB",
        "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip
    yield Figure(
        f"longest turn of an event loop, limit {TURN_MAX_MS} ms", longest_ms, TURN_MAX_MS, "ms",
        "<= 1.0", peer_name=LIMIT,
    )  # fmt: skip


def warm_up(cluster: Cluster) -> None:
    """Run every kind of work once, so that a JVM has compiled it."""
    make_topic(cluster.bootstrap, "warm-up", partitions=PARTITIONS, replicas=BROKERS)
    for load in LOADS:
        run_load(
            cluster.bootstrap, load.what, "warm-up", load.size, WARM_UP, load.batch_bytes,
            PARTITIONS,
        )  # fmt: skip
    delete_topic(cluster.bootstrap, "warm-up")


def measure_round(cluster: Cluster, load: Load, number: int) -> Run:
    """One round of a load, on a topic of its own."""
    topic = f"t-{load.batch_bytes}-{number}"
    make_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=BROKERS)
    run = measure_topic(cluster.bootstrap, cluster.pids, load, topic, partitions=PARTITIONS)
    delete_topic(cluster.bootstrap, topic)
    return run


def longest_turn_ms(cluster: Cluster) -> float:
    """The longest turn of any broker's event loop in the last minute."""
    with BlockingCluster(cluster.bootstrap) as link:
        link.run(request_brokers())
        urls = link.run(metrics_urls()).values()
    assert len(urls) == BROKERS, "every broker serves metrics"
    return max(map(_turn_ms, urls))


def _turn_ms(url: str) -> float:
    with urllib.request.urlopen(url, timeout=10) as response:
        lines = response.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith((f"{TURN_METRIC} ", f"{TURN_METRIC}{{"))]
    return float(line.rpartition(" ")[2]) * 1e3


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
