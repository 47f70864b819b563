"""The lines of the overview chart: the claims that matter most, one per subject.

A line names a figure of a benchmark by its two names; all others are in `docs/benchmarks.md`.
"""

from typing import Final, NamedTuple


class OverviewLine(NamedTuple):
    """One line: the benchmark, its figure, and the label of the chart."""

    bench: str
    figure: str
    label: str


OVERVIEW: Final = (
    OverviewLine("broker", "produce 1000 B, 16 kB batches", "produce, in batches of 16 kB"),
    OverviewLine("broker", "consume 1000 B", "consume"),
    OverviewLine(
        "broker_latency", "acknowledged at 1 000/s, p99", "latency of produce at 1 000/s, p99"
    ),
    OverviewLine(
        "cluster",
        "produce 1000 B, 16 kB batches",
        "produce to three brokers, in batches of 16 kB",
    ),
    OverviewLine(
        "cluster_failover",
        "leader killed: next acknowledgement",
        "time until writes continue after a leader was killed",
    ),
    OverviewLine("groups", "commits", "offset commits"),
    OverviewLine("transactions", "Java, 8 producers", "transactions of 8 producers"),
    OverviewLine(
        "registry", "GET /schemas/ids/{id} on one core", "schema look-ups by HTTP on one core"
    ),
    OverviewLine("serde", "frames to Arrow, all columns", "Avro events to Arrow columns"),
    OverviewLine("spark_read", "all columns", "Avro events into a Spark DataFrame"),
)
