"""Latency of writes to three copies at a constant rate, compared with Apache Kafka.

Three brokers of each, two of three copies required, acks=all, one message per request. The two
clusters and a minimal server (`bench.kafka_floor`) take turns; the result is the median of each
percentile over the rounds in which the host took little time (`bench.host`).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from bench.broker_latency import ACKNOWLEDGED, TOPIC, by_turns, compared, run
from bench.clusters import BROKERS, both_clusters
from bench.figures import LIMIT, Figure, report
from bench.floor import latency_limit_ms
from bench.kafka_floor import bare_broker
from bench.peers import make_topic
from tests.support.apache_kafka import VERSION

RATE = 1_000
ROUNDS = 5
PARTITIONS = 6  # two led by each broker
LIMIT_MS = 10.0


def measure() -> Iterator[Figure]:
    """p50 and p99 of both clusters, and of the floor."""
    partitions = ("--partitions", str(PARTITIONS))
    with both_clusters() as clusters, bare_broker(TOPIC, PARTITIONS) as bare:
        for cluster in clusters:
            make_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=BROKERS)
            run(cluster.bootstrap, "--rate", str(RATE), "--count", "30000", *partitions)  # warm-up
        load = ("--rate", str(RATE), *ACKNOWLEDGED, *partitions)
        places = [bare, *(cluster.bootstrap for cluster in clusters)]
        floor, ours, *peers = by_turns([partial(run, at, *load) for at in places], ROUNDS)
    name = "acknowledged by all replicas at 1 000/s"
    yield replace(compared(f"{name}, p50", "p50_ms", floor, ours, *peers), target="")
    yield compared(f"{name}, p99", "p99_ms", floor, ours, *peers)
    floor_ms = median(each.measured["p99_ms"] for each in floor)
    yield Figure(
        f"{name}, p99, limit {LIMIT_MS:g} ms or 1.5 times a floor above 3 ms",
        median(each.measured["p99_ms"] for each in ours),
        latency_limit_ms(floor_ms, LIMIT_MS),
        "ms", "<= 1.0", peer_name=LIMIT, floor=floor_ms,
    )  # fmt: skip


if __name__ == "__main__":
    report(measure(), __doc__, peer=f"Apache Kafka {VERSION}")
