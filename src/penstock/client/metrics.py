"""The client's counts as Prometheus metrics, read when they are scraped.

prometheus_client.REGISTRY.register(ClientMetrics(registry, consumers=[consumer]))
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from penstock.serde.serde_stats import LATENCY_BOUNDS_S, SerdeStats

if TYPE_CHECKING:
    from penstock.serde.errors import Reason


class Measured(Protocol):
    """A serializer or deserializer, of single events or of batches."""

    @property
    def subject(self) -> str:
        """The label of its counts."""

    stats: SerdeStats


class ClientMetrics:
    """A collector over the parts that a program uses; nothing is counted twice or reset."""

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        consumers: Sequence[Consumer] = (),
        serializers: Sequence[Measured] = (),
        deserializers: Sequence[Measured] = (),
    ) -> None:
        self._registry = registry
        self._consumers = consumers
        self._serializers = serializers
        self._deserializers = deserializers

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus-client."""
        if self._registry is not None:
            yield from _of_registry(self._registry)
        reads = [(each.subject, each.stats) for each in self._deserializers]
        for consumer in self._consumers:
            reads += consumer.read_stats
        writes = [(each.subject, each.stats) for each in self._serializers]
        yield _errors(reads)
        yield from _serde({"write": writes, "read": reads})
        yield from _of_consumers(self._consumers)


def _of_registry(registry: Registry) -> Iterator[Metric]:
    stats = registry.request_stats
    counts = (
        ("penstock_client_registry_requests", "Requests to the registry.", stats.requests),
        ("penstock_client_registry_failures", "Failed requests to the registry.", stats.failures),
        ("penstock_client_registry_seconds", "Time spent on these requests.", stats.seconds),
    )
    for name, description, value in counts:
        yield CounterMetricFamily(name, description, value)
    ratio = GaugeMetricFamily(
        "penstock_client_schema_cache_hit_ratio",
        "Share of schemas found in the cache.",
        labels=["cache"],
    )
    for name, cache in registry.cache_stats.items():
        ratio.add_metric([name], cache.hit_ratio)
    yield ratio


def _errors(reads: Iterable[tuple[str, SerdeStats]]) -> Metric:
    counts: Counter[tuple[str, Reason]] = Counter()
    for _, stats in reads:
        counts.update(stats.errors)
    errors = CounterMetricFamily(
        "penstock_client_deserialize_errors",
        "Events that could not be read.",
        labels=["subject", "reason"],
    )
    for (subject, reason), count in counts.items():
        errors.add_metric([subject, str(reason)], count)
    return errors


def _serde(stats: Mapping[str, Iterable[tuple[str, SerdeStats]]]) -> Iterator[Metric]:
    events: Counter[tuple[str, str]] = Counter()
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for direction, rows in stats.items():
        for subject, each in rows:
            events[subject, direction] += each.events
            seconds[subject, direction] += each.seconds
    families: tuple[tuple[str, str, Mapping[tuple[str, str], float]], ...] = (
        ("penstock_client_serde_events", "Events read or written.", events),
        ("penstock_client_serde_seconds", "Time spent reading or writing.", seconds),
    )
    for name, description, counts in families:
        family = CounterMetricFamily(name, description, labels=["subject", "direction"])
        for labels, count in counts.items():
            family.add_metric(labels, count)
        yield family
    yield _latency(stats, seconds)


def _latency(
    stats: Mapping[str, Iterable[tuple[str, SerdeStats]]],
    seconds: Mapping[tuple[str, str], float],
) -> Metric:
    """The time per event, or the average in a batch."""
    counts: dict[tuple[str, str], list[int]] = {}
    for direction, rows in stats.items():
        for subject, each in rows:
            known = counts.get((subject, direction), [0] * len(each.by_latency))
            counts[subject, direction] = list(map(sum, zip(known, each.by_latency, strict=True)))
    family = HistogramMetricFamily(
        "penstock_client_serde_latency_seconds", "Time per event.", labels=["subject", "direction"]
    )
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for labels, by_latency in counts.items():
        buckets = list(zip(bounds, accumulate(by_latency), strict=True))
        family.add_metric(labels, buckets, seconds[labels])
    return family


def _of_consumers(consumers: Iterable[Consumer]) -> Iterator[Metric]:
    counts = {
        "penstock_client_consumer_pauses": (
            lambda each: each.flow_stats.pauses,
            "Times the queue was full.",
        ),
        "penstock_client_consumer_records": (
            lambda each: each.flow_stats.taken,
            "Taken by the program.",
        ),
        "penstock_client_quarantined": (lambda each: each.quarantined, "Sent to quarantine."),
    }
    for name, (count, description) in counts.items():
        yield CounterMetricFamily(name, description, sum(map(count, consumers)))
