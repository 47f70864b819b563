"""The log's views of a topic's settings: layout on disk, and retention."""

from dataclasses import dataclass, replace
from typing import Annotated

from penstock.config.resolve import Row, Values, contains, view
from penstock.model import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How one partition is laid out on disk. None leaves flushing to the operating system."""

    segment_bytes: Annotated[int, Row("segment.bytes")]
    segment_ms: Annotated[Millis, Row("segment.ms")]
    segment_jitter_ms: Annotated[Millis, Row("segment.jitter.ms")]
    segment_index_bytes: Annotated[int, Row("segment.index.bytes")]
    index_interval_bytes: Annotated[int, Row("index.interval.bytes")]
    max_message_bytes: Annotated[int, Row("max.message.bytes")]
    flush_messages: Annotated[int | None, Row("flush.messages")]
    flush_ms: Annotated[Millis | None, Row("flush.ms")]
    file_delete_delay_ms: Annotated[Millis, Row("file.delete.delay.ms")]
    producer_id_expiration_ms: Millis  # the broker's `producer.id.expiration.ms`


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """When a closed segment is deleted. None is without limit."""

    delete: Annotated[bool, Row("cleanup.policy", contains("delete"))]
    retention_ms: Annotated[Millis | None, Row("retention.ms")]
    retention_bytes: Annotated[int | None, Row("retention.bytes")]


def log_settings(values: Values, *, producer_id_expiration_ms: Millis) -> LogSettings:
    """The view of a topic. A compacted topic rolls within its longest compaction lag."""
    settings = view(LogSettings, values, producer_id_expiration_ms=producer_id_expiration_ms)
    lag_max_ms = values.limit("max.compaction.lag.ms")
    if lag_max_ms is None or "compact" not in values.items("cleanup.policy"):
        return settings
    # The active segment is never compacted.
    return replace(settings, segment_ms=Millis(min(settings.segment_ms, lag_max_ms)))
