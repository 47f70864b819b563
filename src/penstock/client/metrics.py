"""The client's counts as Prometheus metrics, read when they are scraped.

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
from penstock.metrics import client_rows as rows
from penstock.metrics.row import MetricRow
from penstock.serde.errors import Reason
from penstock.serde.serde_stats import LATENCY_BOUNDS_S, SerdeStats


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
        (rows.REGISTRY_REQUESTS, stats.requests),
        (rows.REGISTRY_FAILURES, stats.failures),
        (rows.REGISTRY_SECONDS, stats.seconds),
    )
    for row, value in counts:
        yield CounterMetricFamily(row.name, row.help, value)
    row = rows.CACHE_HIT_RATIO
    ratio = GaugeMetricFamily(row.name, row.help, labels=row.labels)
    for name, cache in registry.cache_stats.items():
        ratio.add_metric([name], cache.hit_ratio)
    yield ratio


def _errors(reads: Iterable[tuple[str, SerdeStats]]) -> Metric:
    counts: Counter[tuple[str, Reason]] = Counter()
    for known, stats in reads:
        counts.update({(known, each): 0 for each in Reason})
        counts.update(stats.errors)
    errors = _counter(rows.DESERIALIZE_ERRORS)
    for (subject, reason), count in counts.items():
        errors.add_metric([subject, str(reason)], count)
    return errors


def _serde(stats: Mapping[str, Iterable[tuple[str, SerdeStats]]]) -> Iterator[Metric]:
    events: Counter[tuple[str, str]] = Counter()
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    for direction, parts in stats.items():
        for subject, each in parts:
            events[subject, direction] += each.events
            seconds[subject, direction] += each.seconds
    families: tuple[tuple[MetricRow, Mapping[tuple[str, str], float]], ...] = (
        (rows.SERDE_EVENTS, events),
        (rows.SERDE_SECONDS, seconds),
    )
    for row, counts in families:
        family = _counter(row)
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
    for direction, parts in stats.items():
        for subject, each in parts:
            known = counts.get((subject, direction), [0] * len(each.by_latency))
            counts[subject, direction] = list(map(sum, zip(known, each.by_latency, strict=True)))
    row = rows.SERDE_LATENCY
    family = HistogramMetricFamily(row.name, row.help, labels=row.labels)
    bounds = [*(f"{bound:g}" for bound in LATENCY_BOUNDS_S), "+Inf"]
    for labels, by_latency in counts.items():
        buckets = list(zip(bounds, accumulate(by_latency), strict=True))
        family.add_metric(labels, buckets, seconds[labels])
    return family


def _of_consumers(consumers: Iterable[Consumer]) -> Iterator[Metric]:
    counts = (
        (rows.CONSUMER_PAUSES, lambda each: each.flow_stats.pauses),
        (rows.CONSUMER_RECORDS, lambda each: each.flow_stats.taken),
        (rows.QUARANTINED, lambda each: each.quarantined),
    )
    for row, count in counts:
        yield CounterMetricFamily(row.name, row.help, sum(map(count, consumers)))


def _counter(row: MetricRow) -> CounterMetricFamily:
    return CounterMetricFamily(row.name, row.help, labels=row.labels)
