"""The client's plain counts as Prometheus metrics, read when they are scraped.

prometheus_client.REGISTRY.register(ClientMetrics(registry, consumers=[consumer]))
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from penstock.serde.errors import Reason
from penstock.serde.serializers import LATENCY_BOUNDS_S, SerdeStats


class Measured(Protocol):
    """A serializer or deserializer, of single events or of whole batches."""

    @property
    def subject(self) -> str:
        """What it is counted under."""

    stats: SerdeStats


class ClientMetrics:
    """A collector over what a program uses; nothing is counted twice and nothing is reset."""

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
        """As prometheus-client asks."""
        if self._registry is not None:
            yield from _of_registry(self._registry)
        reads = [(one.subject, one.stats) for one in self._deserializers]
        for consumer in self._consumers:
            reads += consumer.read_stats
        writes = [(one.subject, one.stats) for one in self._serializers]
        yield _errors(reads)
        yield from _serde({"write": writes, "read": reads})
        yield from _of_consumers(self._consumers)


def _of_registry(registry: Registry) -> Iterator[Metric]:
    stats = registry.request_stats
    yield CounterMetricFamily(
        "penstock_client_registry_requests", "Asked of the registry.", stats.requests
    )
    yield CounterMetricFamily("penstock_client_registry_failures", "Not answered.", stats.failures)
    yield CounterMetricFamily("penstock_client_registry_seconds", "Spent asking.", stats.seconds)
    ratio = GaugeMetricFamily(
        "penstock_client_schema_cache_hit_ratio", "Known without asking.", labels=["cache"]
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
        for subject, one in rows:
            events[subject, direction] += one.events
            seconds[subject, direction] += one.seconds
    families: tuple[tuple[str, str, Mapping[tuple[str, str], float]], ...] = (
        ("penstock_client_serde_events", "Events.", events),
        ("penstock_client_serde_seconds", "Spent.", seconds),
    )
    for name, told, counts in families:
        family = CounterMetricFamily(name, told, labels=["subject", "direction"])
        for labels, count in counts.items():
            family.add_metric(labels, count)
        yield family
    yield _latency(stats, seconds)


def _latency(
    stats: Mapping[str, Iterable[tuple[str, SerdeStats]]],
    seconds: Mapping[tuple[str, str], float],
) -> Metric:
    """How long one event took, or one of a batch on average."""
    counts: dict[tuple[str, str], list[int]] = {}
    for direction, rows in stats.items():
        for subject, one in rows:
            known = counts.get((subject, direction), [0] * len(one.by_latency))
            counts[subject, direction] = list(map(sum, zip(known, one.by_latency, strict=True)))
    family = HistogramMetricFamily(
        "penstock_client_serde_latency_seconds", "Of one event.", labels=["subject", "direction"]
    )
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for labels, by_latency in counts.items():
        buckets = list(zip(bounds, accumulate(by_latency), strict=True))
        family.add_metric(labels, buckets, seconds[labels])
    return family


def _of_consumers(consumers: Iterable[Consumer]) -> Iterator[Metric]:
    counts = {
        "penstock_client_consumer_pauses": (
            lambda one: one.flow_stats.pauses,
            "Times the queue was full.",
        ),
        "penstock_client_consumer_records": (
            lambda one: one.flow_stats.taken,
            "Taken by the program.",
        ),
        "penstock_client_quarantined": (lambda one: one.quarantined, "Put into quarantine."),
    }
    for name, (count, told) in counts.items():
        yield CounterMetricFamily(name, told, sum(map(count, consumers)))
