"""The metrics of the HTTP process: its requests, the registry, and the lag of groups."""

from functools import partial
from typing import Final

from penstock.metrics.row import SECONDS, MetricRow, MetricType, Source, rows_in

LAG_SERIES_MAX: Final = 2000  # pairs of group and topic with series of their own

_counter = partial(MetricRow, Source.HTTP, MetricType.COUNTER)
_gauge = partial(MetricRow, Source.HTTP, MetricType.GAUGE)
_histogram = partial(MetricRow, Source.HTTP, MetricType.HISTOGRAM)

HTTP_REQUESTS: Final[MetricRow] = _counter(
    "http_requests_total",
    "Requests by the first segment of the path (others are other). code is 2xx, 3xx, 4xx or 5xx.",
    ("route", "code"),
)
HTTP_REQUEST_SECONDS: Final[MetricRow] = _histogram(
    "http_request_seconds", "Time from a request to the end of its response.", ("route",), SECONDS
)
HTTP_CONNECTIONS_CLOSED: Final[MetricRow] = _counter(
    "http_connections_closed_total",
    "Connections that the server closed before their request was complete.",
    ("reason",),
)
KAFKA_REACHABLE: Final[MetricRow] = _gauge(
    "http_kafka_reachable", "1 if the last request to a broker worked."
)

REGISTRY_PRIMARY: Final[MetricRow] = _gauge("registry_primary", "1 if this node may write schemas.")
REGISTRY_SUBJECTS: Final[MetricRow] = _gauge(
    "registry_subjects", "Subjects, deleted ones included."
)
REGISTRY_VERSIONS: Final[MetricRow] = _gauge("registry_versions", "Versions of all subjects.")
REGISTRY_CONTEXTS: Final[MetricRow] = _gauge("registry_contexts", "Contexts.")
REGISTRY_END_OFFSET: Final[MetricRow] = _gauge(
    "registry_log_end_offset", "Offset up to which the log of schemas was applied."
)
REGISTRY_APPLY_LAG: Final[MetricRow] = _gauge(
    "registry_apply_lag_records", "Records of the log of schemas that were not applied yet."
)
REGISTRY_CACHE_HITS: Final[MetricRow] = _counter(
    "registry_response_cache_hits_total", "Reads that were served from the cache of responses."
)

GATEWAY_COUNTS: Final[MetricRow] = _counter(
    "gateway_operations_total",
    "What the gateway did. operation is events_fetched, events_quarantined or records_written.",
    ("operation",),
)

STREAMS_OPEN: Final[MetricRow] = _gauge("streams_open", "Streams that are open.")
STREAMS_STALLED: Final[MetricRow] = _gauge(
    "streams_stalled", "Streams that cannot take more at present."
)
STREAMS_POSITIONS: Final[MetricRow] = _gauge(
    "streams_positions", "Positions that are read; streams at the same position share it."
)
STREAMS_IN_FLIGHT_BYTES: Final[MetricRow] = _gauge(
    "streams_in_flight_bytes", "Bytes that were sent to streams and not acknowledged."
)
STREAMS_CACHED_BYTES: Final[MetricRow] = _gauge(
    "streams_cached_bytes", "Bytes of events in memory for streams."
)
STREAMS_STALLS: Final[MetricRow] = _counter(
    "streams_stalls_total", "Times that a stream could not take more."
)
STREAMS_CHUNKS: Final[MetricRow] = _counter(
    "streams_chunks_total", "Chunks of events that were framed."
)
STREAMS_FETCHES: Final[MetricRow] = _counter("streams_fetches_total", "Fetches for all streams.")

GROUP_LAG_RECORDS: Final[MetricRow] = _gauge(
    "group_lag_records",
    "Records of a topic that a group has not read, up to the last stable offset.",
    ("group", "topic"),
)
GROUP_LAG_SECONDS: Final[MetricRow] = _gauge(
    "group_lag_seconds", "Age of the oldest record that a group has not read.", ("group", "topic")
)
LAG_NOT_SHOWN: Final[MetricRow] = _gauge(
    "group_lag_not_shown", f"Pairs of group and topic without series: more than {LAG_SERIES_MAX}."
)
LAG_UPDATED: Final[MetricRow] = _gauge(
    "group_lag_updated_timestamp_seconds", "When the lag of groups was last computed, as Unix time."
)

HTTP_ROWS: Final = rows_in(dict(globals()))
