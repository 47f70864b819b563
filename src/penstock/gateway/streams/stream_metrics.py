"""The counters of streams as metrics, read when `/metrics` is."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.gateway.streams.stream_hub import StreamHub


class StreamMetrics(Collector):
    """A collector for prometheus-client."""

    def __init__(self, hub: StreamHub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """As prometheus-client calls it."""
        hub = self._hub
        gauges = {
            "open": (len(hub.streams), "Streams that are open."),
            "stalled": (len(hub.pump.stalled), "Streams that cannot take more at present."),
            "positions": (hub.pump.feeds, "Positions that are read; streams at one share it."),
            "in_flight_bytes": (hub.in_flight_bytes(), "Sent and not acknowledged."),
            "cached_bytes": (hub.cache.size_bytes, "Events in memory for streams."),
        }
        for name, (value, text) in gauges.items():
            yield GaugeMetricFamily(f"penstock_streams_{name}", text, value=value)
        counters = {
            "stalls": (hub.pump.stalls, "How often a stream could not take more."),
            "chunks": (hub.pump.chunks, "Chunks of events that were framed."),
            "fetches": (hub.fetcher.fetches, "Fetches for all streams."),
        }
        for name, (value, text) in counters.items():
            yield CounterMetricFamily(f"penstock_streams_{name}", text, value=value)
