"""The metrics of the client library, which a program publishes with prometheus-client."""

from functools import partial
from typing import Final

from penstock.metrics.row import MetricRow, MetricType, Source, rows_in

_counter = partial(MetricRow, Source.CLIENT, MetricType.COUNTER)
_gauge = partial(MetricRow, Source.CLIENT, MetricType.GAUGE)
_histogram = partial(MetricRow, Source.CLIENT, MetricType.HISTOGRAM)

REGISTRY_REQUESTS: Final[MetricRow] = _counter(
    "client_registry_requests_total", "Requests to the schema registry."
)
REGISTRY_FAILURES: Final[MetricRow] = _counter(
    "client_registry_failures_total", "Requests to the schema registry that failed."
)
REGISTRY_SECONDS: Final[MetricRow] = _counter(
    "client_registry_seconds_total", "Time spent on requests to the schema registry."
)
CACHE_HIT_RATIO: Final[MetricRow] = _gauge(
    "client_schema_cache_hit_ratio", "Share of schemas that were in the cache.", ("cache",)
)
DESERIALIZE_ERRORS: Final[MetricRow] = _counter(
    "client_deserialize_errors_total", "Events that could not be read.", ("subject", "reason")
)
SERDE_EVENTS: Final[MetricRow] = _counter(
    "client_serde_events_total", "Events that were read or written.", ("subject", "direction")
)
SERDE_SECONDS: Final[MetricRow] = _counter(
    "client_serde_seconds_total", "Time spent on reading or writing.", ("subject", "direction")
)
SERDE_LATENCY: Final[MetricRow] = _histogram(
    "client_serde_latency_seconds", "Time per event.", ("subject", "direction")
)
CONSUMER_PAUSES: Final[MetricRow] = _counter(
    "client_consumer_pauses_total", "Times that the queue of a consumer was full."
)
CONSUMER_RECORDS: Final[MetricRow] = _counter(
    "client_consumer_records_total", "Records that the program took from consumers."
)
QUARANTINED: Final[MetricRow] = _counter(
    "client_quarantined_total", "Events that were sent to quarantine."
)

CLIENT_ROWS: Final = rows_in(dict(globals()))
