"""The client's plain counts as Prometheus metrics, read when they are scraped.

prometheus_client.REGISTRY.register(ClientMetrics(registry, consumers=[consumer]))
"""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.client.consumer import Consumer
from penstock.client.registry import Registry
from penstock.client.serializers import Deserializer, Serializer


class ClientMetrics:
    """A collector over what a program uses; nothing is counted twice and nothing is reset."""

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        consumers: Sequence[Consumer] = (),
        serializers: Sequence[Serializer] = (),
        deserializers: Sequence[Deserializer] = (),
    ) -> None:
        self._registry = registry
        self._consumers = consumers
        self._serializers = serializers
        self._deserializers = deserializers

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client asks."""
        if self._registry is not None:
            yield from _of_registry(self._registry)
        readers = [*self._deserializers]
        for consumer in self._consumers:
            readers += consumer.deserializers
        yield _errors(readers)
        yield from _serde(self._serializers, readers)
        yield from _of_consumers(self._consumers)


def _of_registry(registry: Registry) -> Iterator[Metric]:
    stats = registry.request_stats
    yield CounterMetricFamily("registry_requests", "Asked of the registry.", stats.requests)
    yield CounterMetricFamily("registry_failures", "Not answered.", stats.failures)
    yield CounterMetricFamily("registry_seconds", "Spent asking.", stats.seconds)
    ratio = GaugeMetricFamily("schema_cache_hit_ratio", "Known without asking.", labels=["cache"])
    for name, cache in registry.cache_stats.items():
        ratio.add_metric([name], cache.hit_ratio)
    yield ratio


def _errors(readers: Iterable[Deserializer]) -> Metric:
    errors = CounterMetricFamily(
        "deserialize_errors", "Events that could not be read.", labels=["subject", "reason"]
    )
    for reader in readers:
        for (subject, reason), count in reader.stats.errors.items():
            errors.add_metric([subject, str(reason)], count)
    return errors


def _serde(writers: Iterable[Serializer], readers: Iterable[Deserializer]) -> Iterator[Metric]:
    events = CounterMetricFamily("serde_events", "Events.", labels=["subject", "direction"])
    seconds = CounterMetricFamily("serde_seconds", "Spent.", labels=["subject", "direction"])
    rows = [(one.subject, "write", one.stats) for one in writers]
    rows += [(one.subject, "read", one.stats) for one in readers]
    for subject, direction, stats in rows:
        events.add_metric([subject, direction], stats.events)
        seconds.add_metric([subject, direction], stats.seconds)
    yield events
    yield seconds


def _of_consumers(consumers: Iterable[Consumer]) -> Iterator[Metric]:
    counts = {
        "consumer_pauses": (lambda one: one.flow_stats.pauses, "Times the queue was full."),
        "consumer_records": (lambda one: one.flow_stats.taken, "Taken by the program."),
        "quarantined": (lambda one: one.quarantined, "Put into quarantine."),
    }
    for name, (count, told) in counts.items():
        yield CounterMetricFamily(name, told, sum(map(count, consumers)))
