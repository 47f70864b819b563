"""The metrics of every process of the platform."""

from functools import partial
from typing import Final

from penstock.metrics.row import MetricRow, MetricType, Source, rows_in

_counter = partial(MetricRow, Source.EVERY, MetricType.COUNTER)
_gauge = partial(MetricRow, Source.EVERY, MetricType.GAUGE)

BUILD_INFO: Final[MetricRow] = _gauge("build_info", "1, with the version.", ("version",))
START_TIME_SECONDS: Final[MetricRow] = _gauge(
    "start_time_seconds", "When the process started, as Unix time."
)
HEALTH_READY: Final[MetricRow] = _gauge(
    "health_ready", "1 if the process is ready to serve, as /health/ready."
)
LOOP_TURN_MAX_SECONDS: Final[MetricRow] = _gauge(
    "loop_turn_max_seconds", "Longest turn of the event loop in the last minute."
)
LOOP_BUSY_RATIO: Final[MetricRow] = _gauge(
    "loop_busy_ratio", "CPU time of the event loop's thread per second, in the last minute."
)
CPU_SECONDS: Final[MetricRow] = _counter("process_cpu_seconds_total", "CPU time of the process.")
RESIDENT_BYTES: Final[MetricRow] = _gauge("process_resident_bytes", "Memory of the process.")

PROCESS_ROWS: Final = rows_in(dict(globals()))
