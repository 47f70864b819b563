"""The views of upkeep: what compaction keeps of a topic, and how much work the broker allows."""

import sys
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from penstock.config.resolve import Row, contains
from penstock.model import Millis


def _rate(bytes_per_second: float) -> int | None:
    return int(bytes_per_second) if bytes_per_second < sys.float_info.max else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """What compaction keeps of a topic, and for how long."""

    compact: Annotated[bool, Row("cleanup.policy", contains("compact"))]
    min_cleanable_dirty_ratio: Annotated[float, Row("min.cleanable.dirty.ratio")]
    min_compaction_lag_ms: Annotated[Millis, Row("min.compaction.lag.ms")]
    max_compaction_lag_ms: Annotated[Millis | None, Row("max.compaction.lag.ms")]
    delete_retention_ms: Annotated[Millis, Row("delete.retention.ms")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    """How often a broker looks for work, and how much of the machine it may take."""

    retention_interval_ms: Annotated[Millis, Row("log.retention.check.interval.ms")]
    compaction_interval_ms: Annotated[Millis, Row("log.cleaner.backoff.ms")]
    map_bytes: Annotated[int, Row("log.cleaner.dedupe.buffer.size")]
    bytes_per_second: Annotated[int | None, Row("log.cleaner.io.max.bytes.per.second", _rate)]


class Intervals(NamedTuple):
    """Intervals that are not configurable."""

    sweep_ms: Millis = Millis(30_000)  # between two searches for files to unlink
    worker_idle_ms: Millis = Millis(120_000)  # then the worker process ends: it is large
    retry_ms: Millis = Millis(60_000)  # until a partition whose round failed is tried again
    restart_ms: Millis = Millis(1_000)  # after a round that failed as a whole; doubles each time
    restart_max_ms: Millis = Millis(300_000)


INTERVALS: Final = Intervals()
