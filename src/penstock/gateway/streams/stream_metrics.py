"""The metrics of streams, read from their counts when the process is scraped."""

from collections.abc import Iterator

from penstock.gateway.streams.stream_hub import StreamHub
from penstock.metrics import http_rows as rows
from penstock.metrics.text_format import Family


def stream_families(hub: StreamHub) -> Iterator[Family]:
    """All that the streams of this process count."""
    yield rows.STREAMS_OPEN, [((), len(hub.streams))]
    yield rows.STREAMS_STALLED, [((), len(hub.pump.stalled))]
    yield rows.STREAMS_POSITIONS, [((), hub.pump.feeds)]
    yield rows.STREAMS_IN_FLIGHT_BYTES, [((), hub.in_flight_bytes())]
    yield rows.STREAMS_CACHED_BYTES, [((), hub.cache.size_bytes)]
    yield rows.STREAMS_STALLS, [((), hub.pump.stalls)]
    yield rows.STREAMS_CHUNKS, [((), hub.pump.chunks)]
    yield rows.STREAMS_FETCHES, [((), hub.fetcher.fetches)]
